"""The desk: who may, in time, counted, and whatever happens is an answer."""

import asyncio

import pytest

from consumer.memory.policy import Rules
from consumer.tools import dispatcher as desk_module
from consumer.tools.credentials import Agent
from consumer.tools.dispatcher import Visit
from consumer.tools.results import Answer, Tool, ToolOutcome
from tests.unit.tools.office import ADA, ADAS_RUN, BEN, Office, bearer, gateway

OK = Answer("fine", ToolOutcome.LIVE)


def raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


async def fine(_: Agent) -> Answer:
    return OK


async def test_an_agent_is_served_and_counted() -> None:
    office = Office()
    desk = office.desk
    visit = await desk.enter(raw(bearer(ADA, ADAS_RUN)))
    assert isinstance(visit.who, Agent)
    assert await desk.call(Tool.RECALL, visit, fine) is OK
    assert office.counted == {(Tool.RECALL, ToolOutcome.LIVE): 1}


async def test_only_enabled_agents() -> None:
    office = Office(rules=Rules(enabled_agents=frozenset({BEN})))
    desk = office.desk
    for headers in (bearer(ADA), gateway(ADA)):
        answer = await desk.call(Tool.RETAIN, await desk.enter(raw(headers)), fine)
        assert (answer.status, answer.outcome) == (403, ToolOutcome.DENIED)
        assert "enabled_agent_ids" in answer.text
    assert await desk.call(Tool.RETAIN, await desk.enter(raw(bearer(BEN))), fine) is OK


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
    office = Office()
    desk = office.desk
    visit = await desk.enter(raw(headers))
    assert visit.admitted is admitted
    answer = await desk.call(Tool.RECALL, visit, fine)
    assert (answer.status, answer.outcome) == (status, ToolOutcome.DENIED)
    assert office.counted == {(Tool.RECALL, ToolOutcome.DENIED): 1}


async def test_paperclip_down_is_503_and_admitted() -> None:
    office = Office()
    office.paperclip.down = True
    desk = office.desk
    visit = await desk.enter(raw(bearer(ADA)))
    answer = await desk.call(Tool.RECALL, visit, fine)
    assert (visit.admitted, answer.status, answer.retry_after) == (True, 503, 5)
    assert answer.text.startswith("Who you are could not be checked: Paperclip is not available now.")
    assert office.counted == {(Tool.RECALL, ToolOutcome.FAILED): 1}


async def test_time_is_shared_by_the_proof_and_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "BUDGET", 0.05)
    office = Office()
    office.paperclip.hangs = True
    desk = office.desk
    visit = await desk.enter(raw(bearer(ADA)))
    assert isinstance(visit.who, Answer)
    assert (visit.who.status, visit.who.outcome) == (504, ToolOutcome.FAILED)

    async def for_ever(_: Agent) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    for tool, words in ((Tool.RECALL, "not searched"), (Tool.RETAIN, "may be saved later all the same")):
        visit = await desk.enter(raw(gateway()))
        answer = await desk.call(tool, visit, for_ever)
        assert (answer.status, answer.outcome) == (504, ToolOutcome.FAILED)
        assert words in answer.text


async def test_a_fault_of_ours_is_an_answer_that_tells_nothing() -> None:
    office = Office()
    desk = office.desk

    async def broken(_: Agent) -> Answer:
        raise KeyError("hunter2")

    answer = await desk.call(Tool.RECALL, await desk.enter(raw(gateway())), broken)
    assert (answer.status, answer.outcome) == (500, ToolOutcome.FAILED)
    assert "hunter2" not in answer.text
    assert office.warnings == ["a tool call failed by a fault of ours"]


async def test_an_abandoned_call_ends() -> None:
    office = Office()
    desk = office.desk
    visit = Visit(asyncio.get_running_loop().time(), Agent("c", ADA), admitted=True)
    waiting = asyncio.Event()

    async def wait(_: Agent) -> Answer:
        waiting.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.create_task(desk.call(Tool.RECALL, visit, wait))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
