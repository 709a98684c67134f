"""What the tools answer: from the map, live, and after storing; each vector of the plugin has a test of its name."""

from typing import Any

import pytest

from consumer.errors import DeadLetterReason, Permanent, Transient, Upstream
from consumer.memory.policy import BankPart, Rules
from consumer.tools.arguments import RecallArguments, RetainArguments
from consumer.tools.credentials import Agent, Refused
from consumer.tools.results import ToolOutcome
from consumer.tools.service import document_id
from schemas.recalls import RecallStatus
from tests.support.fakes import rejected, unreachable
from tests.unit.tools.office import (
    ADA,
    ADAS_RUN,
    BENS_ISSUE,
    BENS_RUN,
    COMPANY,
    EVES_RUN,
    ISSUE,
    KEY,
    OLD_RUN,
    SERVED,
    Office,
    bank,
)

USERS = Rules(granularity=(BankPart.COMPANY, BankPart.AGENT, BankPart.USER))
JOS = f"{bank(ADA)}::user::jo@example.org"


def agent(run: str | None = None, issue: str | None = None, key: str | None = KEY[ADA]) -> Agent:
    return Agent(COMPANY, ADA, run, issue, key)


def query(text: str = "release train?", **others: Any) -> RecallArguments:
    return RecallArguments(query=text, **others)


@pytest.fixture
def office() -> Office:
    return Office()


async def test_recall_answers_from_the_run_s_memories_without_a_call(office: Office) -> None:
    office.recalled(texts=[SERVED, "Two\n lines."])
    answer = await office.memories.recall(agent(ADAS_RUN), query())
    assert answer.text == f"<paperclip-memory>\n- {SERVED}\n- Two lines.\n</paperclip-memory>"
    assert answer.outcome is ToolOutcome.CACHED
    assert office.hindsight.calls == []
    assert office.paperclip.asked == []  # the record proves whose run it is


async def test_recall_without_cached_memories_asks_live(office: Office) -> None:
    office.hindsight.banks[bank(ADA)] = {}
    await office.memories.retain(agent(), RetainArguments(content=SERVED))
    office.hindsight.digest()
    answer = await office.memories.recall(agent(ADAS_RUN), query())
    assert answer.outcome is ToolOutcome.LIVE
    assert answer.text == f"<paperclip-memory>\n- {SERVED}\n</paperclip-memory>"
    assert office.hindsight.called("recall")[0][:2] == (bank(ADA), "release train?")


async def test_recall_with_no_result_answers_no_relevant_memories_found(office: Office) -> None:
    for run in (None, ADAS_RUN):
        answer = await office.memories.recall(agent(run), query())
        assert (answer.text, answer.outcome, answer.status) == ("No relevant memories found.", ToolOutcome.EMPTY, 200)
    assert len(office.hindsight.calls) == 2


async def test_a_run_that_had_nothing_relevant_is_answered_without_a_call(office: Office) -> None:
    office.recalled(texts=[])
    answer = await office.memories.recall(agent(ADAS_RUN), query())
    assert (answer.text, answer.outcome) == ("No relevant memories found.", ToolOutcome.EMPTY)
    assert office.hindsight.calls == []


async def test_fresh_always_asks(office: Office) -> None:
    office.recalled()
    answer = await office.memories.recall(agent(ADAS_RUN), query(fresh=True))
    assert answer.outcome is ToolOutcome.EMPTY
    assert len(office.hindsight.called("recall")) == 1


async def test_a_failed_recall_is_made_up_for_live_in_the_same_bank(office: Office) -> None:
    office.recalled(texts=[], status=RecallStatus.FAILED, bank_id="paperclip::elsewhere")
    await office.memories.recall(agent(ADAS_RUN), query())
    assert office.hindsight.called("recall")[0][0] == "paperclip::elsewhere"


async def test_retain_stores_with_agentid_companyid_runid_and_answers_memory_saved(office: Office) -> None:
    answer = await office.memories.retain(agent(ADAS_RUN), RetainArguments(content=SERVED))
    assert (answer.text, answer.outcome) == ("Memory saved.", ToolOutcome.LIVE)
    stored_in, memory, _ = office.hindsight.called("retain")[0]
    assert stored_in == bank(ADA)
    assert memory.content == SERVED
    assert memory.document_id == answer.document_id
    assert dict(memory.metadata) == {"agentId": ADA, "companyId": COMPANY, "runId": ADAS_RUN, "issueId": ISSUE}


async def test_retain_without_a_run_leaves_the_run_out(office: Office) -> None:
    await office.memories.retain(agent(), RetainArguments(content=SERVED))
    assert dict(office.hindsight.called("retain")[0][1].metadata) == {"agentId": ADA, "companyId": COMPANY}


async def test_the_same_text_of_the_same_run_is_one_document_and_one_operation(office: Office) -> None:
    for text in (SERVED, SERVED, f"{SERVED} And on Fridays."):
        await office.memories.retain(agent(ADAS_RUN), RetainArguments(content=text))
    office.hindsight.digest()
    assert len(office.hindsight.documents) == 2
    operations = [operation for _, _, operation in office.hindsight.called("retain")]
    assert operations[0] == operations[1] != operations[2]


def test_other_runs_and_other_agents_have_other_documents() -> None:
    ids = {document_id(each, SERVED) for each in (agent(), agent(ADAS_RUN), agent(OLD_RUN), Agent(COMPANY, "other"))}
    assert len(ids) == 4
    assert document_id(agent(ADAS_RUN, ISSUE, None), SERVED) == document_id(agent(ADAS_RUN), SERVED)


async def test_what_memory_served_is_not_saved_again(office: Office) -> None:
    office.recalled()
    served = (await office.memories.recall(agent(ADAS_RUN), query())).text
    await office.memories.retain(agent(ADAS_RUN), RetainArguments(content=f"We keep it.\n{served}\nDone."))
    assert office.hindsight.called("retain")[0][1].content == "We keep it.\n\n\nDone."
    for nothing in (served, f"> {served}", "\u200b\n", "<paperclip-memory> never closed"):
        with pytest.raises(Refused, match="nothing to save"):
            await office.memories.retain(agent(ADAS_RUN), RetainArguments(content=nothing))


async def test_an_unreachable_hindsight_is_an_answer_in_words_not_an_exception(office: Office) -> None:
    office.hindsight.fail("recall", unreachable(Upstream.HINDSIGHT))
    answer = await office.memories.recall(agent(), query())
    assert (answer.outcome, answer.status, answer.retry_after) == (ToolOutcome.FAILED, 503, 5)
    assert answer.text == "Memory was not searched: Hindsight is not available now. Try again in 5 s."
    office.hindsight.fail("retain", Transient("busy", upstream=Upstream.HINDSIGHT, retry_after=17.2))
    answer = await office.memories.retain(agent(), RetainArguments(content=SERVED))
    assert (answer.outcome, answer.retry_after) == (ToolOutcome.FAILED, 17)
    assert answer.text.startswith("The memory was not saved: Hindsight is not available")


async def test_hindsight_s_refusal_is_an_answer_in_words(office: Office) -> None:
    too_large = Permanent("413", reason=DeadLetterReason.TOO_LARGE, upstream=Upstream.HINDSIGHT)
    office.hindsight.fail("retain", too_large)
    answer = await office.memories.retain(agent(), RetainArguments(content=SERVED))
    assert (answer.text, answer.status) == ("The memory was not saved: Hindsight refuses it.", 502)


async def test_with_hindsight_down_the_map_still_answers(office: Office) -> None:
    office.recalled()
    office.hindsight.fail("recall", unreachable(Upstream.HINDSIGHT))
    assert (await office.memories.recall(agent(ADAS_RUN), query())).outcome is ToolOutcome.CACHED


async def test_a_long_query_is_cut_and_on_an_old_hindsight_halved(office: Office) -> None:
    office.hindsight.fail("recall", rejected(400))
    await office.memories.recall(agent(), query("word " * 1600))
    assert [len(call[1]) for call in office.hindsight.called("recall")] == [2000, 1000]


@pytest.mark.parametrize("text", ["?!", " ", "…"])
async def test_a_query_without_a_word_is_refused(office: Office, text: str) -> None:
    with pytest.raises(Refused, match="no word"):
        await office.memories.recall(agent(), query(text))
    assert office.hindsight.calls == []


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("run", [BENS_RUN, EVES_RUN, "b0000000-0000-4000-8000-0000000000ff"])
async def test_another_agents_run_is_refused(office: Office, run: str, known: bool) -> None:
    for each in (BENS_RUN, EVES_RUN):
        office.recalled(each)
    office.known = known
    for work in (
        office.memories.recall(agent(run), query()),
        office.memories.recall(agent(run), query(fresh=True)),
        office.memories.retain(agent(run), RetainArguments(content=SERVED)),
        office.memories.run_memories(agent(run)),
    ):
        with pytest.raises(Refused) as refusal:
            await work
        assert refusal.value.status == 401
    assert office.hindsight.calls == []


async def test_even_the_gateway_gets_no_other_agents_run(office: Office) -> None:
    office.recalled(BENS_RUN)
    with pytest.raises(Refused):
        await office.memories.recall(agent(BENS_RUN, key=None), query())


async def test_paperclip_away_while_a_run_must_be_proven_is_an_answer(office: Office) -> None:
    office.paperclip.down = True
    answer = await office.memories.recall(agent(ADAS_RUN), query())
    assert answer.text == "Memory was not searched: Paperclip is not available now. Try again in 5 s."
    assert (await office.memories.recall(agent(ADAS_RUN, key=None), query())).outcome is ToolOutcome.EMPTY


# Banks that need a user


@pytest.fixture
def with_users() -> Office:
    return Office(rules=USERS)


@pytest.mark.parametrize("key", [KEY[ADA], None])
async def test_the_user_comes_from_the_runs_issue(with_users: Office, key: str | None) -> None:
    await with_users.memories.recall(agent(ADAS_RUN, key=key), query())
    await with_users.memories.retain(agent(ADAS_RUN, key=key), RetainArguments(content=SERVED))
    assert [call[0] for call in with_users.hindsight.calls] == ["recall", "retain"]
    assert {call[1] for call in with_users.hindsight.calls} == {JOS}
    assert with_users.hindsight.called("retain")[0][1].metadata["userId"] == "jo@example.org"


async def test_a_failed_record_names_the_issue(with_users: Office) -> None:
    with_users.recalled(texts=[], status=RecallStatus.FAILED, bank_id=None)
    await with_users.memories.recall(agent(ADAS_RUN), query())
    assert with_users.hindsight.called("recall")[0][0] == JOS


async def test_without_a_run_an_issue_of_the_agent_names_the_user(with_users: Office) -> None:
    await with_users.memories.recall(agent(issue=ISSUE), query())
    assert with_users.hindsight.called("recall")[0][0] == JOS
    with pytest.raises(Refused, match="not assigned to you"):
        await with_users.memories.recall(agent(issue=BENS_ISSUE), query())


@pytest.mark.parametrize("run", [None, OLD_RUN])
async def test_without_run_and_issue_there_is_no_wider_bank(with_users: Office, run: str | None) -> None:
    with pytest.raises(Refused, match="not known whose this is") as refusal:
        await with_users.memories.recall(agent(run), query())
    assert refusal.value.status == 409
    assert with_users.hindsight.calls == []


async def test_a_user_that_cannot_be_looked_up_now_is_an_answer_never_a_wider_bank(with_users: Office) -> None:
    with_users.paperclip.down = True
    for key in (KEY[ADA], None):
        answer = await with_users.memories.recall(agent(ADAS_RUN, key=key), query())
        assert answer.outcome is ToolOutcome.FAILED
    assert with_users.hindsight.calls == []


async def test_a_user_known_to_be_absent_is_the_handlers_bank(with_users: Office) -> None:
    with_users.paperclip.issues[ISSUE]["originId"] = None
    await with_users.memories.recall(agent(ADAS_RUN), query())
    assert with_users.hindsight.called("recall")[0][0] == bank(ADA)


@pytest.mark.parametrize("granularity", [(BankPart.USER,), (BankPart.COMPANY, BankPart.USER)])
async def test_no_user_where_one_is_required(granularity: tuple[BankPart, ...]) -> None:
    office = Office(rules=Rules(granularity=granularity, user_required=True))
    office.paperclip.issues[ISSUE]["originId"] = None
    with pytest.raises(Refused, match="this issue has none"):
        await office.memories.recall(agent(ADAS_RUN), query())


async def test_an_issue_of_another_company_names_nobody(with_users: Office) -> None:
    with_users.paperclip.issues[ISSUE]["companyId"] = "c0000000-0000-4000-8000-0000000000aa"
    with pytest.raises(Refused):
        await with_users.memories.recall(agent(ADAS_RUN, key=None), query())


async def test_the_gateway_cannot_borrow_a_run_to_reach_its_user(with_users: Office) -> None:
    with pytest.raises(Refused):
        await with_users.memories.recall(agent(BENS_RUN, key=None), query())


async def test_a_static_bank_is_everybodys() -> None:
    office = Office(rules=Rules(static_bank="shared"))
    await office.memories.recall(agent(), query())
    assert office.hindsight.called("recall")[0][0] == "shared"


# GET /v1/runs/{runId}/memories


async def test_memories_of_a_run(office: Office) -> None:
    office.recalled()
    answer = await office.memories.run_memories(agent(ADAS_RUN))
    assert (SERVED in answer.text, answer.outcome) == (True, ToolOutcome.CACHED)
    assert office.hindsight.calls == []


async def test_memories_of_an_unknown_run_are_what_the_handler_would_recall(office: Office) -> None:
    await office.memories.run_memories(agent(ADAS_RUN))
    assert office.hindsight.called("recall")[0][:2] == (bank(ADA), "Plan the release train")
    office.paperclip.runs[ADAS_RUN]["contextSnapshot"]["paperclipWake"] = None
    await office.memories.run_memories(agent(ADAS_RUN, key=None))
    assert office.hindsight.called("recall")[1][:2] == (bank(ADA), "Plan the release")


async def test_memories_of_a_failed_run_are_asked_with_its_query(office: Office) -> None:
    office.recalled(texts=[], status=RecallStatus.FAILED, query="the old question")
    await office.memories.run_memories(agent(ADAS_RUN))
    assert office.hindsight.called("recall")[0][1] == "the old question"


async def test_a_run_about_nothing_has_no_memories(office: Office) -> None:
    assert (await office.memories.run_memories(agent(OLD_RUN))).outcome is ToolOutcome.EMPTY
    assert office.hindsight.calls == []


async def test_hindsight_away_for_a_run(office: Office) -> None:
    office.hindsight.fail("recall", unreachable(Upstream.HINDSIGHT))
    assert (await office.memories.run_memories(agent(ADAS_RUN))).outcome is ToolOutcome.FAILED
