"""What the tools answer: from the map, live, and after storing; each vector of the plugin has a test of its name."""

from typing import Any

import pytest

from consumer.errors import DeadLetterReason, Permanent, Transient, Upstream
from consumer.memory.policy import BankPart, Rules
from consumer.tools.arguments import RecallArguments, RetainArguments
from consumer.tools.credentials import Agent, ToolError
from consumer.tools.results import ToolOutcome
from consumer.tools.service import document_id
from schemas.recalls import RecallStatus
from tests.support.fakes import rejected, unreachable
from tests.support.tools_fixture import (
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
    ToolsFixture,
    bank,
)

USERS = Rules(granularity=(BankPart.COMPANY, BankPart.AGENT, BankPart.USER))
JOS = f"{bank(ADA)}::user::jo@example.org"


def agent(run: str | None = None, issue: str | None = None, key: str | None = KEY[ADA]) -> Agent:
    return Agent(COMPANY, ADA, run, issue, key)


def query(text: str = "release train?", **others: Any) -> RecallArguments:
    return RecallArguments(query=text, **others)


@pytest.fixture
def tools() -> ToolsFixture:
    return ToolsFixture()


async def test_recall_answers_from_the_run_s_memories_without_a_call(tools: ToolsFixture) -> None:
    tools.recalled(texts=[SERVED, "Two\n lines."])
    answer = await tools.memories.recall(agent(ADAS_RUN), query())
    assert answer.text == f"<paperclip-memory>\n- {SERVED}\n- Two lines.\n</paperclip-memory>"
    assert answer.outcome is ToolOutcome.CACHED
    assert tools.hindsight.calls == []
    assert tools.paperclip.asked == []  # the record proves whose run it is


async def test_recall_without_cached_memories_asks_live(tools: ToolsFixture) -> None:
    tools.hindsight.banks[bank(ADA)] = {}
    await tools.memories.retain(agent(), RetainArguments(content=SERVED))
    tools.hindsight.digest()
    answer = await tools.memories.recall(agent(ADAS_RUN), query())
    assert answer.outcome is ToolOutcome.LIVE
    assert answer.text == f"<paperclip-memory>\n- {SERVED}\n</paperclip-memory>"
    assert tools.hindsight.called("recall")[0][:2] == (bank(ADA), "release train?")


async def test_recall_with_no_result_answers_no_relevant_memories_found(tools: ToolsFixture) -> None:
    for run in (None, ADAS_RUN):
        answer = await tools.memories.recall(agent(run), query())
        assert (answer.text, answer.outcome, answer.status) == ("No relevant memories found.", ToolOutcome.EMPTY, 200)
    assert len(tools.hindsight.calls) == 2


async def test_a_run_that_had_nothing_relevant_is_answered_without_a_call(tools: ToolsFixture) -> None:
    tools.recalled(texts=[])
    answer = await tools.memories.recall(agent(ADAS_RUN), query())
    assert (answer.text, answer.outcome) == ("No relevant memories found.", ToolOutcome.EMPTY)
    assert tools.hindsight.calls == []


async def test_fresh_always_asks(tools: ToolsFixture) -> None:
    tools.recalled()
    answer = await tools.memories.recall(agent(ADAS_RUN), query(fresh=True))
    assert answer.outcome is ToolOutcome.EMPTY
    assert len(tools.hindsight.called("recall")) == 1


async def test_a_failed_recall_is_made_up_for_live_in_the_same_bank(tools: ToolsFixture) -> None:
    tools.recalled(texts=[], status=RecallStatus.FAILED, bank_id="paperclip::elsewhere")
    await tools.memories.recall(agent(ADAS_RUN), query())
    assert tools.hindsight.called("recall")[0][0] == "paperclip::elsewhere"


async def test_retain_stores_with_agentid_companyid_runid_and_answers_memory_saved(tools: ToolsFixture) -> None:
    answer = await tools.memories.retain(agent(ADAS_RUN), RetainArguments(content=SERVED))
    assert (answer.text, answer.outcome) == ("Memory saved.", ToolOutcome.LIVE)
    stored_in, memory, _ = tools.hindsight.called("retain")[0]
    assert stored_in == bank(ADA)
    assert memory.content == SERVED
    assert memory.document_id == answer.document_id
    assert dict(memory.metadata) == {"agentId": ADA, "companyId": COMPANY, "runId": ADAS_RUN, "issueId": ISSUE}


async def test_retain_without_a_run_leaves_the_run_out(tools: ToolsFixture) -> None:
    await tools.memories.retain(agent(), RetainArguments(content=SERVED))
    assert dict(tools.hindsight.called("retain")[0][1].metadata) == {"agentId": ADA, "companyId": COMPANY}


async def test_the_same_text_of_the_same_run_is_one_document_and_one_operation(tools: ToolsFixture) -> None:
    for text in (SERVED, SERVED, f"{SERVED} And on Fridays."):
        await tools.memories.retain(agent(ADAS_RUN), RetainArguments(content=text))
    tools.hindsight.digest()
    assert len(tools.hindsight.documents) == 2
    operations = [operation for _, _, operation in tools.hindsight.called("retain")]
    assert operations[0] == operations[1] != operations[2]


def test_other_runs_and_other_agents_have_other_documents() -> None:
    ids = {document_id(each, SERVED) for each in (agent(), agent(ADAS_RUN), agent(OLD_RUN), Agent(COMPANY, "other"))}
    assert len(ids) == 4
    assert document_id(agent(ADAS_RUN, ISSUE, None), SERVED) == document_id(agent(ADAS_RUN), SERVED)


async def test_what_memory_served_is_not_saved_again(tools: ToolsFixture) -> None:
    tools.recalled()
    served = (await tools.memories.recall(agent(ADAS_RUN), query())).text
    await tools.memories.retain(agent(ADAS_RUN), RetainArguments(content=f"We keep it.\n{served}\nDone."))
    assert tools.hindsight.called("retain")[0][1].content == "We keep it.\n\n\nDone."
    for nothing in (served, f"> {served}", "\u200b\n", "<paperclip-memory> never closed"):
        with pytest.raises(ToolError, match="nothing to save"):
            await tools.memories.retain(agent(ADAS_RUN), RetainArguments(content=nothing))


async def test_an_unreachable_hindsight_is_an_answer_in_words_not_an_exception(tools: ToolsFixture) -> None:
    tools.hindsight.fail("recall", unreachable(Upstream.HINDSIGHT))
    answer = await tools.memories.recall(agent(), query())
    assert (answer.outcome, answer.status, answer.retry_after) == (ToolOutcome.FAILED, 503, 5)
    assert answer.text == "Memory was not searched: Hindsight is not available now. Try again in 5 s."
    tools.hindsight.fail("retain", Transient("busy", upstream=Upstream.HINDSIGHT, retry_after=17.2))
    answer = await tools.memories.retain(agent(), RetainArguments(content=SERVED))
    assert (answer.outcome, answer.retry_after) == (ToolOutcome.FAILED, 17)
    assert answer.text.startswith("The memory was not saved: Hindsight is not available")


async def test_hindsight_s_refusal_is_an_answer_in_words(tools: ToolsFixture) -> None:
    too_large = Permanent("413", reason=DeadLetterReason.TOO_LARGE, upstream=Upstream.HINDSIGHT)
    tools.hindsight.fail("retain", too_large)
    answer = await tools.memories.retain(agent(), RetainArguments(content=SERVED))
    assert (answer.text, answer.status) == ("The memory was not saved: Hindsight refuses it.", 502)


async def test_with_hindsight_down_the_map_still_answers(tools: ToolsFixture) -> None:
    tools.recalled()
    tools.hindsight.fail("recall", unreachable(Upstream.HINDSIGHT))
    assert (await tools.memories.recall(agent(ADAS_RUN), query())).outcome is ToolOutcome.CACHED


async def test_a_long_query_is_cut_and_on_an_old_hindsight_halved(tools: ToolsFixture) -> None:
    tools.hindsight.fail("recall", rejected(400))
    await tools.memories.recall(agent(), query("word " * 1600))
    assert [len(call[1]) for call in tools.hindsight.called("recall")] == [2000, 1000]


@pytest.mark.parametrize("text", ["?!", " ", "…"])
async def test_a_query_without_a_word_is_refused(tools: ToolsFixture, text: str) -> None:
    with pytest.raises(ToolError, match="no word"):
        await tools.memories.recall(agent(), query(text))
    assert tools.hindsight.calls == []


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("run", [BENS_RUN, EVES_RUN, "b0000000-0000-4000-8000-0000000000ff"])
async def test_another_agents_run_is_refused(tools: ToolsFixture, run: str, known: bool) -> None:
    for each in (BENS_RUN, EVES_RUN):
        tools.recalled(each)
    tools.known = known
    for work in (
        tools.memories.recall(agent(run), query()),
        tools.memories.recall(agent(run), query(fresh=True)),
        tools.memories.retain(agent(run), RetainArguments(content=SERVED)),
        tools.memories.run_memories(agent(run)),
    ):
        with pytest.raises(ToolError) as refusal:
            await work
        assert refusal.value.status == 401
    assert tools.hindsight.calls == []


async def test_even_the_gateway_gets_no_other_agents_run(tools: ToolsFixture) -> None:
    tools.recalled(BENS_RUN)
    with pytest.raises(ToolError):
        await tools.memories.recall(agent(BENS_RUN, key=None), query())


async def test_paperclip_away_while_a_run_must_be_proven_is_an_answer(tools: ToolsFixture) -> None:
    tools.paperclip.down = True
    answer = await tools.memories.recall(agent(ADAS_RUN), query())
    assert answer.text == "Memory was not searched: FakePaperclip is not available now. Try again in 5 s."
    assert (await tools.memories.recall(agent(ADAS_RUN, key=None), query())).outcome is ToolOutcome.EMPTY


# Banks that need a user


@pytest.fixture
def with_users() -> ToolsFixture:
    return ToolsFixture(rules=USERS)


@pytest.mark.parametrize("key", [KEY[ADA], None])
async def test_the_user_comes_from_the_runs_issue(with_users: ToolsFixture, key: str | None) -> None:
    await with_users.memories.recall(agent(ADAS_RUN, key=key), query())
    await with_users.memories.retain(agent(ADAS_RUN, key=key), RetainArguments(content=SERVED))
    assert [call[0] for call in with_users.hindsight.calls] == ["recall", "retain"]
    assert {call[1] for call in with_users.hindsight.calls} == {JOS}
    assert with_users.hindsight.called("retain")[0][1].metadata["userId"] == "jo@example.org"


async def test_a_failed_record_names_the_issue(with_users: ToolsFixture) -> None:
    with_users.recalled(texts=[], status=RecallStatus.FAILED, bank_id=None)
    await with_users.memories.recall(agent(ADAS_RUN), query())
    assert with_users.hindsight.called("recall")[0][0] == JOS


async def test_without_a_run_an_issue_of_the_agent_names_the_user(with_users: ToolsFixture) -> None:
    await with_users.memories.recall(agent(issue=ISSUE), query())
    assert with_users.hindsight.called("recall")[0][0] == JOS
    with pytest.raises(ToolError, match="not assigned to you"):
        await with_users.memories.recall(agent(issue=BENS_ISSUE), query())


@pytest.mark.parametrize("run", [None, OLD_RUN])
async def test_without_run_and_issue_there_is_no_wider_bank(with_users: ToolsFixture, run: str | None) -> None:
    with pytest.raises(ToolError, match="not known whose this is") as refusal:
        await with_users.memories.recall(agent(run), query())
    assert refusal.value.status == 409
    assert with_users.hindsight.calls == []


async def test_a_user_that_cannot_be_looked_up_now_is_an_answer_never_a_wider_bank(with_users: ToolsFixture) -> None:
    with_users.paperclip.down = True
    for key in (KEY[ADA], None):
        answer = await with_users.memories.recall(agent(ADAS_RUN, key=key), query())
        assert answer.outcome is ToolOutcome.FAILED
    assert with_users.hindsight.calls == []


async def test_a_user_known_to_be_absent_is_the_handlers_bank(with_users: ToolsFixture) -> None:
    with_users.paperclip.issues[ISSUE]["originId"] = None
    await with_users.memories.recall(agent(ADAS_RUN), query())
    assert with_users.hindsight.called("recall")[0][0] == bank(ADA)


@pytest.mark.parametrize("granularity", [(BankPart.USER,), (BankPart.COMPANY, BankPart.USER)])
async def test_no_user_where_one_is_required(granularity: tuple[BankPart, ...]) -> None:
    tools = ToolsFixture(rules=Rules(granularity=granularity, user_required=True))
    tools.paperclip.issues[ISSUE]["originId"] = None
    with pytest.raises(ToolError, match="this issue has none"):
        await tools.memories.recall(agent(ADAS_RUN), query())


async def test_an_issue_of_another_company_names_nobody(with_users: ToolsFixture) -> None:
    with_users.paperclip.issues[ISSUE]["companyId"] = "c0000000-0000-4000-8000-0000000000aa"
    with pytest.raises(ToolError):
        await with_users.memories.recall(agent(ADAS_RUN, key=None), query())


async def test_the_gateway_cannot_borrow_a_run_to_reach_its_user(with_users: ToolsFixture) -> None:
    with pytest.raises(ToolError):
        await with_users.memories.recall(agent(BENS_RUN, key=None), query())


async def test_a_static_bank_is_everybodys() -> None:
    tools = ToolsFixture(rules=Rules(static_bank="shared"))
    await tools.memories.recall(agent(), query())
    assert tools.hindsight.called("recall")[0][0] == "shared"


# GET /v1/runs/{runId}/memories


async def test_memories_of_a_run(tools: ToolsFixture) -> None:
    tools.recalled()
    answer = await tools.memories.run_memories(agent(ADAS_RUN))
    assert (SERVED in answer.text, answer.outcome) == (True, ToolOutcome.CACHED)
    assert tools.hindsight.calls == []


async def test_memories_of_an_unknown_run_are_what_the_handler_would_recall(tools: ToolsFixture) -> None:
    await tools.memories.run_memories(agent(ADAS_RUN))
    assert tools.hindsight.called("recall")[0][:2] == (bank(ADA), "Plan the release train")
    tools.paperclip.runs[ADAS_RUN]["contextSnapshot"]["paperclipWake"] = None
    await tools.memories.run_memories(agent(ADAS_RUN, key=None))
    assert tools.hindsight.called("recall")[1][:2] == (bank(ADA), "Plan the release")


async def test_memories_of_a_failed_run_are_asked_with_its_query(tools: ToolsFixture) -> None:
    tools.recalled(texts=[], status=RecallStatus.FAILED, query="the old question")
    await tools.memories.run_memories(agent(ADAS_RUN))
    assert tools.hindsight.called("recall")[0][1] == "the old question"


async def test_a_run_about_nothing_has_no_memories(tools: ToolsFixture) -> None:
    assert (await tools.memories.run_memories(agent(OLD_RUN))).outcome is ToolOutcome.EMPTY
    assert tools.hindsight.calls == []


async def test_hindsight_away_for_a_run(tools: ToolsFixture) -> None:
    tools.hindsight.fail("recall", unreachable(Upstream.HINDSIGHT))
    assert (await tools.memories.run_memories(agent(ADAS_RUN))).outcome is ToolOutcome.FAILED
