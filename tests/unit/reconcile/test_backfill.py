"""Backfill: past comments, the oldest first."""

import json
from typing import Any

import pytest

from consumer.reconcile import backfill as module
from consumer.reconcile.backfill import BackfillRequest, plan_backfill, publish_backfill
from consumer.relay.event_builder import OutgoingEvent
from schemas.timestamps import parse_timestamp
from tests.support.fake_feed import COMPANY, NOON, new_id
from tests.unit.relay.harness import RelayHarness


@pytest.fixture
def relay() -> RelayHarness:
    return RelayHarness()


async def planned(relay: RelayHarness, **request: Any) -> list[OutgoingEvent]:
    plan = await plan_backfill(relay.feed, relay.enricher, BackfillRequest(COMPANY, **request), lambda *_: None)
    return plan.events


async def test_comments_of_all_issues_are_replays_in_order_without_bodies_and_deleted_ones(
    relay: RelayHarness,
) -> None:
    first, second = relay.feed.add_issue(), relay.feed.add_issue()
    comments = [relay.feed.add_comment(issue, "x" * 5_000) for issue in (first, second, first, second)]
    relay.feed.delete_comment(comments.pop())
    events = await planned(relay)
    assert [event.key for event in events] == comments
    for event in events:
        assert event.replay
        assert event.embedded.keys() == {"issue"}
        assert len(json.dumps(event.value())) < 2_000


async def test_since_and_issue_limit_the_comments(relay: RelayHarness) -> None:
    first, second = relay.feed.add_issue(), relay.feed.add_issue()
    relay.feed.add_comment(first)
    relay.feed.advance(100)
    comment, other = relay.feed.add_comment(first), relay.feed.add_comment(second)
    assert [event.key for event in await planned(relay, since=NOON + 50)] == [comment, other]
    assert [event.key for event in await planned(relay, since=NOON + 50, issue=first)] == [comment]
    assert await planned(relay, issue=new_id()) == []


async def test_error_of_one_issue_is_raised_as_itself(relay: RelayHarness) -> None:
    relay.feed.add_comment(relay.feed.add_issue())
    relay.feed.failures["comments"].append(ValueError("odd"))
    with pytest.raises(ValueError, match="odd"):
        await planned(relay)


async def test_position_is_saved_after_each_batch_is_acknowledged(
    relay: RelayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAVE_INTERVAL", 2)
    issue = relay.feed.add_issue()
    for _ in range(5):
        relay.feed.add_comment(issue)
    events = await planned(relay)
    saved: list[tuple[float, int]] = []
    progress: list[tuple[int, int]] = []

    async def save(position: float) -> None:
        saved.append((position, len(relay.publisher.events)))

    await publish_backfill(events, relay.publisher, save, lambda done, total: progress.append((done, total)), None)
    times = [parse_timestamp(event.occurred_at) for event in events]
    assert saved == [(times[1], 2), (times[3], 4), (times[4], 5)]
    assert progress == [(2, 5), (4, 5), (5, 5)]


async def test_rate_of_two_a_second_waits_a_second_after_every_two(
    relay: RelayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    monkeypatch.setattr("consumer.reconcile.backfill.asyncio.sleep", sleep)
    monkeypatch.setattr("consumer.reconcile.backfill.time.monotonic", lambda: 0.0)
    issue = relay.feed.add_issue()
    for _ in range(4):
        relay.feed.add_comment(issue)

    async def save(_: float) -> None: ...

    await publish_backfill(await planned(relay), relay.publisher, save, lambda *_: None, 2.0)
    assert delays == [1.0, 2.0]
