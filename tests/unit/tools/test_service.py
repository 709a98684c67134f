"""The tools' results: cached, live, and after storing. Each vector of the plugin has a test of its name."""

from typing import Any

import pytest

from consumer.errors import DeadLetterReason, Permanent, Transient, Upstream
from consumer.memory.policy import BankPart, MemoryPolicy
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

USERS = MemoryPolicy(granularity=(BankPart.COMPANY, BankPart.AGENT, BankPart.USER))
JOS = f"{bank(ADA)}::user::jo@example.org"


def agent(run: str | None = None, issue: str | None = None, key: str | None = KEY[ADA]) -> Agent:
    return Agent(COMPANY, ADA, run, issue, key)


def query(text: str = "release train?", **others: Any) -> RecallArguments:
    return RecallArguments(query=text, **others)


@pytest.fixture
def tools() -> ToolsFixture:
    return ToolsFixture()


async def test_recall_answers_from_the_run_s_memories_without_a_call(tools: ToolsFixture) -> None:
    tools.record_recall(texts=[SERVED, "Two\n lines."])
    result = await tools.service.recall(agent(ADAS_RUN), query())
    assert result.text == f"<paperclip-memory>\n- {SERVED}\n- Two lines.\n</paperclip-memory>"
    assert result.outcome is ToolOutcome.CACHED
    assert tools.hindsight.calls == []
    assert tools.paperclip.requests == []  # the record proves whose run it is


async def test_recall_without_cached_memories_asks_live(tools: ToolsFixture) -> None:
    tools.hindsight.banks[bank(ADA)] = {}
    await tools.service.retain(agent(), RetainArguments(content=SERVED))
    tools.hindsight.run_workers()
    result = await tools.service.recall(agent(ADAS_RUN), query())
    assert result.outcome is ToolOutcome.LIVE
    assert result.text == f"<paperclip-memory>\n- {SERVED}\n</paperclip-memory>"
    assert tools.hindsight.called("recall")[0][:2] == (bank(ADA), "release train?")


async def test_recall_with_no_result_answers_no_relevant_memories_found(tools: ToolsFixture) -> None:
    for run in (None, ADAS_RUN):
        result = await tools.service.recall(agent(run), query())
        assert (result.text, result.outcome, result.status) == ("No relevant memories found.", ToolOutcome.EMPTY, 200)
    assert len(tools.hindsight.calls) == 2


async def test_recall_for_a_run_with_an_empty_record_makes_no_request(tools: ToolsFixture) -> None:
    tools.record_recall(texts=[])
    result = await tools.service.recall(agent(ADAS_RUN), query())
    assert (result.text, result.outcome) == ("No relevant memories found.", ToolOutcome.EMPTY)
    assert tools.hindsight.calls == []


async def test_recall_with_fresh_searches_live_despite_cached_memories(tools: ToolsFixture) -> None:
    tools.record_recall()
    result = await tools.service.recall(agent(ADAS_RUN), query(fresh=True))
    assert result.outcome is ToolOutcome.EMPTY
    assert len(tools.hindsight.called("recall")) == 1


async def test_recall_for_a_run_with_a_failed_record_searches_its_bank_live(tools: ToolsFixture) -> None:
    tools.record_recall(texts=[], status=RecallStatus.FAILED, bank_id="paperclip::elsewhere")
    await tools.service.recall(agent(ADAS_RUN), query())
    assert tools.hindsight.called("recall")[0][0] == "paperclip::elsewhere"


async def test_retain_stores_with_agentid_companyid_runid_and_answers_memory_saved(tools: ToolsFixture) -> None:
    result = await tools.service.retain(agent(ADAS_RUN), RetainArguments(content=SERVED))
    assert (result.text, result.outcome) == ("Memory saved.", ToolOutcome.LIVE)
    stored_in, memory, _ = tools.hindsight.called("retain")[0]
    assert stored_in == bank(ADA)
    assert memory.content == SERVED
    assert memory.document_id == result.document_id
    assert dict(memory.metadata) == {"agentId": ADA, "companyId": COMPANY, "runId": ADAS_RUN, "issueId": ISSUE}


async def test_retain_without_a_run_stores_no_run_id(tools: ToolsFixture) -> None:
    await tools.service.retain(agent(), RetainArguments(content=SERVED))
    assert dict(tools.hindsight.called("retain")[0][1].metadata) == {"agentId": ADA, "companyId": COMPANY}


async def test_retain_of_the_same_text_in_one_run_is_one_document_and_one_operation(tools: ToolsFixture) -> None:
    for text in (SERVED, SERVED, f"{SERVED} And on Fridays."):
        await tools.service.retain(agent(ADAS_RUN), RetainArguments(content=text))
    tools.hindsight.run_workers()
    assert len(tools.hindsight.documents) == 2
    operations = [operation for _, _, operation in tools.hindsight.called("retain")]
    assert operations[0] == operations[1] != operations[2]


def test_document_ids_differ_by_run_and_agent_but_not_by_issue() -> None:
    ids = {
        document_id(caller, SERVED) for caller in (agent(), agent(ADAS_RUN), agent(OLD_RUN), Agent(COMPANY, "other"))
    }
    assert len(ids) == 4
    assert document_id(agent(ADAS_RUN, ISSUE, None), SERVED) == document_id(agent(ADAS_RUN), SERVED)


async def test_retain_strips_recalled_memories_and_refuses_an_empty_rest(tools: ToolsFixture) -> None:
    tools.record_recall()
    served = (await tools.service.recall(agent(ADAS_RUN), query())).text
    await tools.service.retain(agent(ADAS_RUN), RetainArguments(content=f"We keep it.\n{served}\nDone."))
    assert tools.hindsight.called("retain")[0][1].content == "We keep it.\n\n\nDone."
    for nothing in (served, f"> {served}", "\u200b\n", "<paperclip-memory> never closed"):
        with pytest.raises(ToolError, match="nothing to save") as raised:
            await tools.service.retain(agent(ADAS_RUN), RetainArguments(content=nothing))
        assert raised.value.status == 400


async def test_an_unreachable_hindsight_is_an_answer_in_words_not_an_exception(tools: ToolsFixture) -> None:
    tools.hindsight.fail("recall", unreachable(Upstream.HINDSIGHT))
    result = await tools.service.recall(agent(), query())
    assert (result.outcome, result.status, result.retry_after) == (ToolOutcome.FAILED, 503, 5)
    assert result.text == "Memory was not searched: Hindsight is not available. Try again in 5 s."
    tools.hindsight.fail("retain", Transient("busy", upstream=Upstream.HINDSIGHT, retry_after=17.2))
    result = await tools.service.retain(agent(), RetainArguments(content=SERVED))
    assert (result.outcome, result.retry_after) == (ToolOutcome.FAILED, 17)
    assert result.text.startswith("The memory was not saved: Hindsight is not available")


async def test_a_rejection_by_hindsight_gives_a_502_result(tools: ToolsFixture) -> None:
    too_large = Permanent("413", reason=DeadLetterReason.TOO_LARGE, upstream=Upstream.HINDSIGHT)
    tools.hindsight.fail("retain", too_large)
    result = await tools.service.retain(agent(), RetainArguments(content=SERVED))
    assert (result.text, result.status) == ("The memory was not saved: Hindsight rejected the request.", 502)


async def test_recall_returns_cached_memories_while_hindsight_is_down(tools: ToolsFixture) -> None:
    tools.record_recall()
    tools.hindsight.fail("recall", unreachable(Upstream.HINDSIGHT))
    assert (await tools.service.recall(agent(ADAS_RUN), query())).outcome is ToolOutcome.CACHED


async def test_a_long_query_is_truncated_and_halved_after_a_400(tools: ToolsFixture) -> None:
    tools.hindsight.fail("recall", rejected(400))
    await tools.service.recall(agent(), query("word " * 1600))
    assert [len(call[1]) for call in tools.hindsight.called("recall")] == [2000, 1000]


@pytest.mark.parametrize("text", ["?!", " ", "…"])
async def test_a_query_without_a_word_is_refused_without_a_request(tools: ToolsFixture, text: str) -> None:
    with pytest.raises(ToolError, match="contains no word") as raised:
        await tools.service.recall(agent(), query(text))
    assert raised.value.status == 400
    assert tools.hindsight.calls == []


@pytest.mark.parametrize("caught_up", [True, False])
@pytest.mark.parametrize("run", [BENS_RUN, EVES_RUN, "b0000000-0000-4000-8000-0000000000ff"])
async def test_every_tool_refuses_another_agents_run(tools: ToolsFixture, run: str, caught_up: bool) -> None:
    for other_run in (BENS_RUN, EVES_RUN):
        tools.record_recall(other_run)
    tools.caught_up = caught_up
    for work in (
        tools.service.recall(agent(run), query()),
        tools.service.recall(agent(run), query(fresh=True)),
        tools.service.retain(agent(run), RetainArguments(content=SERVED)),
        tools.service.run_memories(agent(run)),
    ):
        with pytest.raises(ToolError) as raised:
            await work
        assert raised.value.status == 401
    assert tools.hindsight.calls == []


async def test_the_gateway_cannot_use_another_agents_run(tools: ToolsFixture) -> None:
    tools.record_recall(BENS_RUN)
    with pytest.raises(ToolError):
        await tools.service.recall(agent(BENS_RUN, key=None), query())


async def test_while_paperclip_is_down_only_a_run_that_needs_a_check_fails(tools: ToolsFixture) -> None:
    tools.paperclip.down = True
    result = await tools.service.recall(agent(ADAS_RUN), query())
    assert result.text == "Memory was not searched: Paperclip is not available. Try again in 5 s."
    assert (await tools.service.recall(agent(ADAS_RUN, key=None), query())).outcome is ToolOutcome.EMPTY


# Banks that need a user


@pytest.fixture
def user_tools() -> ToolsFixture:
    return ToolsFixture(policy=USERS)


@pytest.mark.parametrize("key", [KEY[ADA], None])
async def test_the_bank_has_the_user_of_the_runs_issue(user_tools: ToolsFixture, key: str | None) -> None:
    await user_tools.service.recall(agent(ADAS_RUN, key=key), query())
    await user_tools.service.retain(agent(ADAS_RUN, key=key), RetainArguments(content=SERVED))
    assert [call[0] for call in user_tools.hindsight.calls] == ["recall", "retain"]
    assert {call[1] for call in user_tools.hindsight.calls} == {JOS}
    assert user_tools.hindsight.called("retain")[0][1].metadata["userId"] == "jo@example.org"


async def test_a_failed_record_still_gives_the_issue_and_its_user(user_tools: ToolsFixture) -> None:
    user_tools.record_recall(texts=[], status=RecallStatus.FAILED, bank_id=None)
    await user_tools.service.recall(agent(ADAS_RUN), query())
    assert user_tools.hindsight.called("recall")[0][0] == JOS


async def test_without_a_run_an_issue_assigned_to_the_agent_gives_the_user(user_tools: ToolsFixture) -> None:
    await user_tools.service.recall(agent(issue=ISSUE), query())
    assert user_tools.hindsight.called("recall")[0][0] == JOS
    with pytest.raises(ToolError, match="not assigned to you"):
        await user_tools.service.recall(agent(issue=BENS_ISSUE), query())


@pytest.mark.parametrize("run", [None, OLD_RUN])
async def test_without_run_and_issue_user_banks_are_refused_with_409(user_tools: ToolsFixture, run: str | None) -> None:
    with pytest.raises(ToolError, match="the user is unknown") as raised:
        await user_tools.service.recall(agent(run), query())
    assert raised.value.status == 409
    assert user_tools.hindsight.calls == []


async def test_a_run_whose_issue_is_not_an_id_gives_no_user(user_tools: ToolsFixture) -> None:
    user_tools.paperclip.runs[OLD_RUN]["contextSnapshot"]["issueId"] = "PAP-12"
    with pytest.raises(ToolError, match="the user is unknown"):
        await user_tools.service.recall(agent(OLD_RUN), query())


async def test_while_paperclip_is_down_user_banks_fail_without_a_request(user_tools: ToolsFixture) -> None:
    user_tools.paperclip.down = True
    for key in (KEY[ADA], None):
        result = await user_tools.service.recall(agent(ADAS_RUN, key=key), query())
        assert result.outcome is ToolOutcome.FAILED
    assert user_tools.hindsight.calls == []


async def test_an_issue_without_a_user_gives_the_agents_bank(user_tools: ToolsFixture) -> None:
    user_tools.paperclip.issues[ISSUE]["originId"] = None
    await user_tools.service.recall(agent(ADAS_RUN), query())
    assert user_tools.hindsight.called("recall")[0][0] == bank(ADA)


@pytest.mark.parametrize("granularity", [(BankPart.USER,), (BankPart.COMPANY, BankPart.USER)])
async def test_an_issue_without_a_user_is_refused_where_a_user_is_required(granularity: tuple[BankPart, ...]) -> None:
    tools = ToolsFixture(policy=MemoryPolicy(granularity=granularity, user_required=True))
    tools.paperclip.issues[ISSUE]["originId"] = None
    with pytest.raises(ToolError, match="has no user"):
        await tools.service.recall(agent(ADAS_RUN), query())


async def test_an_issue_of_another_company_gives_no_user(user_tools: ToolsFixture) -> None:
    user_tools.paperclip.issues[ISSUE]["companyId"] = "c0000000-0000-4000-8000-0000000000aa"
    with pytest.raises(ToolError) as raised:
        await user_tools.service.recall(agent(ADAS_RUN, key=None), query())
    assert raised.value.status == 409


async def test_the_gateway_cannot_reach_a_user_through_another_agents_run(user_tools: ToolsFixture) -> None:
    with pytest.raises(ToolError):
        await user_tools.service.recall(agent(BENS_RUN, key=None), query())


async def test_a_static_bank_is_used_for_every_agent() -> None:
    tools = ToolsFixture(policy=MemoryPolicy(static_bank="shared"))
    await tools.service.recall(agent(), query())
    assert tools.hindsight.called("recall")[0][0] == "shared"


# GET /v1/runs/{runId}/memories


async def test_run_memories_returns_the_cached_memories(tools: ToolsFixture) -> None:
    tools.record_recall()
    result = await tools.service.run_memories(agent(ADAS_RUN))
    assert (SERVED in result.text, result.outcome) == (True, ToolOutcome.CACHED)
    assert tools.hindsight.calls == []


async def test_run_memories_without_a_record_searches_with_the_handlers_query(tools: ToolsFixture) -> None:
    await tools.service.run_memories(agent(ADAS_RUN))
    assert tools.hindsight.called("recall")[0][:2] == (bank(ADA), "Plan the release train")
    tools.paperclip.runs[ADAS_RUN]["contextSnapshot"]["paperclipWake"] = None
    await tools.service.run_memories(agent(ADAS_RUN, key=None))
    assert tools.hindsight.called("recall")[1][:2] == (bank(ADA), "Plan the release")


async def test_run_memories_for_a_failed_record_searches_with_its_query(tools: ToolsFixture) -> None:
    tools.record_recall(texts=[], status=RecallStatus.FAILED, query="the old question")
    await tools.service.run_memories(agent(ADAS_RUN))
    assert tools.hindsight.called("recall")[0][1] == "the old question"


async def test_run_memories_for_a_run_without_an_issue_is_empty(tools: ToolsFixture) -> None:
    assert (await tools.service.run_memories(agent(OLD_RUN))).outcome is ToolOutcome.EMPTY
    assert tools.hindsight.calls == []


async def test_run_memories_for_a_run_whose_issue_is_not_an_id_is_empty(tools: ToolsFixture) -> None:
    tools.paperclip.runs[OLD_RUN]["contextSnapshot"]["issueId"] = "PAP-12"
    assert (await tools.service.run_memories(agent(OLD_RUN))).outcome is ToolOutcome.EMPTY


async def test_run_memories_fails_while_hindsight_is_down(tools: ToolsFixture) -> None:
    tools.hindsight.fail("recall", unreachable(Upstream.HINDSIGHT))
    assert (await tools.service.run_memories(agent(ADAS_RUN))).outcome is ToolOutcome.FAILED
