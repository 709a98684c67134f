"""Backfill: past comments, the oldest first."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from consumer.paperclip.models import Json
from consumer.reconcile import backfill as module
from consumer.reconcile.backfill import BackfillRequest, plan_backfill, publish_backfill
from consumer.relay.checkpoints import BackfillPosition
from consumer.relay.event_builder import OutgoingEvent
from schemas.timestamps import parse_timestamp
from tests.support.fake_feed import COMPANY, FORBIDDEN, NOON, new_id
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


async def test_issue_that_changes_while_issues_are_listed_is_not_left_out(
    relay: RelayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moves to the front of the list, whose first page is already read."""
    moving, other = relay.feed.add_issue(), relay.feed.add_issue()
    comments = [relay.feed.add_comment(issue) for issue in (moving, other)]
    list_issues = relay.feed.issues

    async def issues(company_id: str, since: str | None = None) -> AsyncIterator[Json]:
        async for issue in list_issues(company_id, since):
            if relay.feed.calls["issues"] > 1 or issue["id"] != moving:
                yield issue
        if relay.feed.calls["issues"] == 1:
            relay.feed.advance(1)
            relay.feed.issues_by_id[moving]["updatedAt"] = relay.feed.time

    monkeypatch.setattr(relay.feed, "issues", issues)
    assert [event.key for event in await planned(relay)] == comments


class Publishing:
    """Backfills of a company, each with the position that the one before has left."""

    def __init__(self, relay: RelayHarness) -> None:
        self.relay = relay
        self.position: BackfillPosition | None = None
        self.saved: list[tuple[float | None, int]] = []
        self.progress: list[tuple[int, int]] = []

    async def run(self, request: BackfillRequest) -> list[str]:
        """The comments that are published."""
        self.relay.restart()
        plan = await plan_backfill(self.relay.feed, self.relay.enricher, request, lambda *_: None)
        publisher = self.relay.publisher
        await publish_backfill(request, plan, self.position, publisher, self.save, self.report)
        return [event.key for event in publisher.events]

    async def save(self, position: BackfillPosition | None) -> None:
        self.position = position
        reached = None if position is None else position.reached
        self.saved.append((reached, len(self.relay.publisher.events)))

    def report(self, done: int, total: int) -> None:
        self.progress.append((done, total))


@pytest.fixture
def publishing(relay: RelayHarness) -> Publishing:
    return Publishing(relay)


async def test_position_is_saved_after_each_batch_is_acknowledged_and_removed_at_the_end(
    relay: RelayHarness, publishing: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAVE_INTERVAL", 2)
    issue = relay.feed.add_issue()
    for _ in range(5):
        relay.feed.add_comment(issue)
    times = [parse_timestamp(event.occurred_at) for event in await planned(relay)]
    await publishing.run(BackfillRequest(COMPANY))
    assert publishing.saved == [(times[1], 2), (times[3], 4), (times[4], 5), (None, 5)]
    assert publishing.progress == [(2, 5), (4, 5), (5, 5)]


async def test_interrupted_backfill_is_resumed_with_a_later_since_and_not_with_an_earlier_one(
    relay: RelayHarness, publishing: Publishing
) -> None:
    """`--since 7d` means a later time each time that the command is run."""
    issue = relay.feed.add_issue()
    comments = [relay.feed.add_comment(issue) for _ in range(4)]
    times = [parse_timestamp(event.occurred_at) for event in await planned(relay)]
    interrupted = BackfillPosition(since=NOON - 100, reached=times[2])
    publishing.position = interrupted
    assert await publishing.run(BackfillRequest(COMPANY, NOON - 50)) == comments[2:]
    publishing.position = interrupted
    assert await publishing.run(BackfillRequest(COMPANY, NOON - 200)) == comments


async def test_issue_that_could_not_be_read_is_published_by_the_next_run(
    relay: RelayHarness, publishing: Publishing
) -> None:
    readable, refused = relay.feed.add_issue(), relay.feed.add_issue()
    first, second, third, fourth = (relay.feed.add_comment(issue) for issue in (readable, refused, readable, refused))
    relay.feed.failures["comments"].append(FORBIDDEN)  # the issue that was updated last is read first
    assert await publishing.run(BackfillRequest(COMPANY)) == [first, third]
    assert publishing.position is not None
    assert publishing.position.skipped == (refused,)
    # The comment at whose time the first run had arrived is published again.
    assert await publishing.run(BackfillRequest(COMPANY)) == [second, third, fourth]
    assert publishing.position is None


async def test_rate_of_two_a_second_waits_a_second_after_every_two(
    relay: RelayHarness, publishing: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    issue = relay.feed.add_issue()
    for _ in range(4):
        relay.feed.add_comment(issue)
    monkeypatch.setattr("consumer.reconcile.backfill.asyncio.sleep", sleep)
    monkeypatch.setattr("consumer.reconcile.backfill.time.monotonic", lambda: 0.0)
    await publishing.run(BackfillRequest(COMPANY, rate=2.0))
    assert delays == [1.0, 2.0]
