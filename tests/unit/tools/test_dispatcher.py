"""The dispatcher authenticates, times and counts every call, and never raises."""

import asyncio

import pytest

from consumer.memory.policy import MemoryPolicy
from consumer.tools import dispatcher as dispatcher_module
from consumer.tools.credentials import Agent
from consumer.tools.dispatcher import CallContext
from consumer.tools.results import Tool, ToolOutcome, ToolResult
from tests.support.tools_fixture import ADA, ADAS_RUN, BEN, ToolsFixture, bearer, gateway

OK = ToolResult("fine", ToolOutcome.LIVE)


def raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


async def fine(_: Agent) -> ToolResult:
    return OK


async def test_an_authenticated_call_is_run_and_counted() -> None:
    tools = ToolsFixture()
    dispatcher = tools.dispatcher
    context = await dispatcher.authenticate(raw(bearer(ADA, ADAS_RUN)))
    assert isinstance(context.caller, Agent)
    assert await dispatcher.call(Tool.RECALL, context, fine) is OK
    assert tools.counted == {(Tool.RECALL, ToolOutcome.LIVE): 1}


async def test_an_agent_that_is_not_enabled_gets_403() -> None:
    tools = ToolsFixture(policy=MemoryPolicy(enabled_agents=frozenset({BEN})))
    dispatcher = tools.dispatcher
    for headers in (bearer(ADA), gateway(ADA)):
        result = await dispatcher.call(Tool.RETAIN, await dispatcher.authenticate(raw(headers)), fine)
        assert (result.status, result.outcome) == (403, ToolOutcome.DENIED)
        assert "enabled_agent_ids" in result.text
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
async def test_an_unauthenticated_call_gets_401(headers: dict[str, str], admitted: bool, status: int) -> None:
    tools = ToolsFixture()
    dispatcher = tools.dispatcher
    context = await dispatcher.authenticate(raw(headers))
    assert context.admitted is admitted
    result = await dispatcher.call(Tool.RECALL, context, fine)
    assert (result.status, result.outcome) == (status, ToolOutcome.DENIED)
    assert tools.counted == {(Tool.RECALL, ToolOutcome.DENIED): 1}


async def test_while_paperclip_is_down_a_call_is_admitted_and_gets_503() -> None:
    tools = ToolsFixture()
    tools.paperclip.down = True
    dispatcher = tools.dispatcher
    context = await dispatcher.authenticate(raw(bearer(ADA)))
    result = await dispatcher.call(Tool.RECALL, context, fine)
    assert (context.admitted, result.status, result.retry_after) == (True, 503, 5)
    assert result.text.startswith("Your identity could not be checked: Paperclip is not available.")
    assert tools.counted == {(Tool.RECALL, ToolOutcome.FAILED): 1}


async def test_authentication_and_call_share_one_time_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher_module, "BUDGET", 0.05)
    tools = ToolsFixture()
    tools.paperclip.hangs = True
    dispatcher = tools.dispatcher
    context = await dispatcher.authenticate(raw(bearer(ADA)))
    assert isinstance(context.caller, ToolResult)
    assert (context.admitted, context.caller.status, context.caller.outcome) == (True, 504, ToolOutcome.FAILED)

    async def for_ever(_: Agent) -> ToolResult:
        await asyncio.Event().wait()
        raise AssertionError

    for tool, message in ((Tool.RECALL, "not searched"), (Tool.RETAIN, "may still be saved")):
        context = await dispatcher.authenticate(raw(gateway()))
        result = await dispatcher.call(tool, context, for_ever)
        assert (result.status, result.outcome) == (504, ToolOutcome.FAILED)
        assert message in result.text


async def test_an_unexpected_error_gets_500_without_details() -> None:
    tools = ToolsFixture()
    dispatcher = tools.dispatcher

    async def broken(_: Agent) -> ToolResult:
        raise KeyError("hunter2")

    result = await dispatcher.call(Tool.RECALL, await dispatcher.authenticate(raw(gateway())), broken)
    assert (result.status, result.outcome) == (500, ToolOutcome.FAILED)
    assert "hunter2" not in result.text
    assert tools.warnings == ["tool call failed unexpectedly"]


async def test_a_cancelled_call_raises_cancelled() -> None:
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
