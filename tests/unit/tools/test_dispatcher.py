"""The dispatcher: who may, in time, counted, and whatever happens is an answer."""

import asyncio

import pytest

from consumer.memory.policy import Rules
from consumer.tools import dispatcher as dispatcher_module
from consumer.tools.credentials import Agent
from consumer.tools.dispatcher import CallContext
from consumer.tools.results import ToolResult, Tool, ToolOutcome
from tests.support.tools_fixture import ADA, ADAS_RUN, BEN, ToolsFixture, bearer, gateway

OK = ToolResult("fine", ToolOutcome.LIVE)


def raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


async def fine(_: Agent) -> ToolResult:
    return OK


async def test_an_agent_is_served_and_counted() -> None:
    tools = ToolsFixture()
    dispatcher = tools.dispatcher
    context = await dispatcher.authenticate(raw(bearer(ADA, ADAS_RUN)))
    assert isinstance(context.caller, Agent)
    assert await dispatcher.call(Tool.RECALL, context, fine) is OK
    assert tools.counted == {(Tool.RECALL, ToolOutcome.LIVE): 1}


async def test_only_enabled_agents() -> None:
    tools = ToolsFixture(rules=Rules(enabled_agents=frozenset({BEN})))
    dispatcher = tools.dispatcher
    for headers in (bearer(ADA), gateway(ADA)):
        answer = await dispatcher.call(Tool.RETAIN, await dispatcher.authenticate(raw(headers)), fine)
        assert (answer.status, answer.outcome) == (403, ToolOutcome.DENIED)
        assert "enabled_agent_ids" in answer.text
    assert await dispatcher.call(Tool.RETAIN, await dispatcher.authenticate(raw(bearer(BEN))), fine) is OK


@pytest.mark.parametrize(
    ("headers", "admitted", "status"),
    [
        ({}, False, 401),
        ({"Authorization": "Bearer wrong"}, False, 401),
        ({"Authorization": "Bearer wrong", "x-paperclip-agent-id": ADA}, False, 401),
        (gateway(None), True, 401),
        (bearer(ADA) | {"x-paperclip-run-id": "no-uuid"}, False, 401),
    ],
)
async def test_who_is_not_let_in(headers: dict[str, str], admitted: bool, status: int) -> None:
    tools = ToolsFixture()
    dispatcher = tools.dispatcher
    context = await dispatcher.authenticate(raw(headers))
    assert context.admitted is admitted
    answer = await dispatcher.call(Tool.RECALL, context, fine)
    assert (answer.status, answer.outcome) == (status, ToolOutcome.DENIED)
    assert tools.counted == {(Tool.RECALL, ToolOutcome.DENIED): 1}


async def test_paperclip_down_is_503_and_admitted() -> None:
    tools = ToolsFixture()
    tools.paperclip.down = True
    dispatcher = tools.dispatcher
    context = await dispatcher.authenticate(raw(bearer(ADA)))
    answer = await dispatcher.call(Tool.RECALL, context, fine)
    assert (context.admitted, answer.status, answer.retry_after) == (True, 503, 5)
    assert answer.text.startswith("Who you are could not be checked: FakePaperclip is not available now.")
    assert tools.counted == {(Tool.RECALL, ToolOutcome.FAILED): 1}


async def test_time_is_shared_by_the_proof_and_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher_module, "BUDGET", 0.05)
    tools = ToolsFixture()
    tools.paperclip.hangs = True
    dispatcher = tools.dispatcher
    context = await dispatcher.authenticate(raw(bearer(ADA)))
    assert isinstance(context.caller, ToolResult)
    assert (context.caller.status, context.caller.outcome) == (504, ToolOutcome.FAILED)

    async def for_ever(_: Agent) -> ToolResult:
        await asyncio.Event().wait()
        raise AssertionError

    for tool, words in ((Tool.RECALL, "not searched"), (Tool.RETAIN, "may be saved later all the same")):
        context = await dispatcher.authenticate(raw(gateway()))
        answer = await dispatcher.call(tool, context, for_ever)
        assert (answer.status, answer.outcome) == (504, ToolOutcome.FAILED)
        assert words in answer.text


async def test_a_fault_of_ours_is_an_answer_that_tells_nothing() -> None:
    tools = ToolsFixture()
    dispatcher = tools.dispatcher

    async def broken(_: Agent) -> ToolResult:
        raise KeyError("hunter2")

    answer = await dispatcher.call(Tool.RECALL, await dispatcher.authenticate(raw(gateway())), broken)
    assert (answer.status, answer.outcome) == (500, ToolOutcome.FAILED)
    assert "hunter2" not in answer.text
    assert tools.warnings == ["a tool call failed by a fault of ours"]


async def test_an_abandoned_call_ends() -> None:
    tools = ToolsFixture()
    dispatcher = tools.dispatcher
    context = CallContext(asyncio.get_running_loop().time(), Agent("c", ADA), admitted=True)
    waiting = asyncio.Event()

    async def wait(_: Agent) -> ToolResult:
        waiting.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.create_task(dispatcher.call(Tool.RECALL, context, wait))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
