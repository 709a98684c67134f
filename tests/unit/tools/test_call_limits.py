"""Fairness: one agent or company with many calls gets 429 and delays no other."""

import asyncio
from contextlib import ExitStack

import pytest

from consumer.tools.call_limits import RECALLS, RETAINS, CallLimits, Rate
from consumer.tools.credentials import Agent, ToolError
from consumer.tools.dispatcher import CallContext
from consumer.tools.results import Tool, ToolOutcome, ToolResult
from tests.support.tools_fixture import ADA, BEN, COMPANY, EVE, OTHER_COMPANY, ToolsFixture, gateway

AGENT_ADA, AGENT_BEN, AGENT_EVE = Agent(COMPANY, ADA), Agent(COMPANY, BEN), Agent(OTHER_COMPANY, EVE)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def calls(limits: CallLimits, tool: Tool, agent: Agent, count: int) -> None:
    for _ in range(count):
        with limits.call(tool, agent):
            pass


def test_an_agent_beyond_its_share_in_flight_is_refused_and_others_are_not() -> None:
    limits = CallLimits(8)
    with ExitStack() as in_flight:
        for _ in range(2):
            in_flight.enter_context(limits.call(Tool.RECALL, AGENT_ADA))
        with pytest.raises(ToolError, match="You have too many memory calls in progress") as raised:
            in_flight.enter_context(limits.call(Tool.RECALL, AGENT_ADA))
        assert (raised.value.status, raised.value.retry_after) == (429, 1)
        in_flight.enter_context(limits.call(Tool.RECALL, AGENT_BEN))
    calls(limits, Tool.RECALL, AGENT_ADA, 1)


def test_a_finished_call_frees_one_slot_and_no_more() -> None:
    limits = CallLimits(8)
    with limits.call(Tool.RECALL, AGENT_ADA):
        with limits.call(Tool.RECALL, AGENT_ADA):
            pass
        with limits.call(Tool.RECALL, AGENT_ADA), pytest.raises(ToolError):
            calls(limits, Tool.RECALL, AGENT_ADA, 1)


def test_the_smallest_limit_admits_one_call() -> None:
    limits = CallLimits(1)
    with limits.call(Tool.RECALL, AGENT_ADA), pytest.raises(ToolError):
        calls(limits, Tool.RECALL, AGENT_ADA, 1)


def test_a_company_beyond_its_share_in_flight_is_refused_and_others_are_not() -> None:
    limits = CallLimits(8)
    with ExitStack() as in_flight:
        for number in range(6):
            in_flight.enter_context(limits.call(Tool.RECALL, Agent(COMPANY, f"agent-{number}")))
        with pytest.raises(ToolError, match="Your company has too many memory calls in progress"):
            in_flight.enter_context(limits.call(Tool.RECALL, AGENT_ADA))
        in_flight.enter_context(limits.call(Tool.RECALL, AGENT_EVE))


@pytest.mark.parametrize(
    ("tool", "rate"), [(Tool.RECALL, RECALLS[0]), (Tool.RUN_MEMORIES, RECALLS[0]), (Tool.RETAIN, RETAINS[0])]
)
def test_an_agent_that_calls_too_often_is_refused_until_it_has_waited(tool: Tool, rate: Rate) -> None:
    clock = Clock()
    limits = CallLimits(8, clock)
    calls(limits, tool, AGENT_ADA, rate.burst)
    with pytest.raises(ToolError, match=r"You have made too many memory calls\. Try again in 1 s") as raised:
        calls(limits, tool, AGENT_ADA, 1)
    assert (raised.value.status, raised.value.retry_after) == (429, 1)
    calls(limits, tool, AGENT_BEN, 1)
    clock.now += 1
    calls(limits, tool, AGENT_ADA, int(rate.per_second))


def test_a_company_that_calls_too_often_is_refused_and_others_are_not() -> None:
    limits = CallLimits(8, Clock())
    for number in range(RETAINS[1].burst):
        calls(limits, Tool.RETAIN, Agent(COMPANY, f"agent-{number}"), 1)
    with pytest.raises(ToolError, match="Your company has made too many memory calls"):
        calls(limits, Tool.RETAIN, AGENT_ADA, 1)
    calls(limits, Tool.RETAIN, AGENT_EVE, 1)
    calls(limits, Tool.RECALL, AGENT_ADA, 1)


async def test_400_live_recalls_of_one_agent_do_not_delay_another() -> None:
    tools = ToolsFixture()
    dispatcher = tools.dispatcher
    release = asyncio.Event()

    async def slow(_: Agent) -> ToolResult:
        await release.wait()
        return ToolResult("fine", ToolOutcome.LIVE)

    async def quick(_: Agent) -> ToolResult:
        return ToolResult("fine", ToolOutcome.LIVE)

    async def context(agent: str) -> CallContext:
        headers = [(name.encode(), value.encode()) for name, value in gateway(agent).items()]
        return await dispatcher.authenticate(headers)

    flood = [asyncio.create_task(dispatcher.call(Tool.RECALL, await context(ADA), slow)) for _ in range(400)]
    await asyncio.sleep(0)
    assert (await dispatcher.call(Tool.RECALL, await context(BEN), quick)).ok
    release.set()
    results = await asyncio.gather(*flood)
    assert sum(result.ok for result in results) == 8
    assert {result.status for result in results if not result.ok} == {429}
    assert tools.counted[Tool.RECALL, ToolOutcome.LIMITED] == 392


async def test_cached_recalls_are_not_limited() -> None:
    tools = ToolsFixture()
    dispatcher = tools.dispatcher

    async def cached(_: Agent) -> ToolResult:
        return ToolResult("fine", ToolOutcome.CACHED)

    headers = [(name.encode(), value.encode()) for name, value in gateway(ADA).items()]
    for _ in range(3 * RECALLS[0].burst):
        assert (await dispatcher.call(Tool.RECALL, await dispatcher.authenticate(headers), cached)).ok
