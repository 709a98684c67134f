"""`agent.run.finished`, `.failed`, `.cancelled`."""

from typing import get_args

import pytest

from consumer.errors import UpstreamDown
from consumer.handlers.recall import recall
from consumer.handlers.results import Done
from consumer.handlers.run_end import run_end
from demo import recording
from schemas.codec import parse
from schemas.events import RunEnd
from tests.support.fakes import HandlerFixture
from tests.unit.handlers.samples import FRESH, RUN, started

ENDS = [event for event in map(parse, recording.events()) if isinstance(event, get_args(RunEnd))]


async def test_every_recorded_run_end_publishes_a_tombstone() -> None:
    fixture = HandlerFixture()
    for event in ENDS:
        assert await run_end(event, FRESH, fixture.context) == Done()
    assert fixture.recalls.log == [(event.payload.run_id, None) for event in ENDS]
    assert {event.event_type for event in ENDS} == {"agent.run.finished", "agent.run.failed", "agent.run.cancelled"}


async def test_a_run_end_removes_the_record_of_the_start() -> None:
    fixture = HandlerFixture()
    await recall(started(), FRESH, fixture.context)
    assert RUN in fixture.recalls.compacted
    await run_end(next(event for event in ENDS if event.payload.run_id == RUN), FRESH, fixture.context)
    assert RUN not in fixture.recalls.compacted


async def test_an_unacknowledged_tombstone_is_raised() -> None:
    fixture = HandlerFixture()
    fixture.recalls.down = True
    with pytest.raises(UpstreamDown):
        await run_end(ENDS[0], FRESH, fixture.context)
