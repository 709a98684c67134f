"""Polling comments: what is published, how far is read, and what is left to the audit feed."""

import asyncio
from collections.abc import Iterable

import pytest

from consumer.errors import DownKind, Permanent, Transient, Upstream, UpstreamDown
from consumer.paperclip.models import Json
from consumer.relay import comment_poller as module
from consumer.relay.checkpoints import CommentPosition
from consumer.relay.concurrency import CONCURRENT_ITEMS
from consumer.relay.event_builder import CANCELLED, CREATED, DELETED, OutgoingEvent
from tests.support.fake_feed import FORBIDDEN, NOON
from tests.unit.relay.harness import RelayHarness


@pytest.fixture
def relay() -> RelayHarness:
    return RelayHarness()


async def test_comments_and_a_deletion_are_published_in_order_with_embedded_objects(relay: RelayHarness) -> None:
    ada = relay.feed.agent_ids[0]
    issue = relay.feed.add_issue(agent=ada)
    by_user, by_agent = relay.feed.add_comment(issue), relay.feed.add_comment(issue, agent=ada)
    relay.feed.advance(1)
    relay.feed.delete_comment(by_user)
    await relay.poll_comments()
    assert relay.publisher.published == [(CREATED, by_user), (CREATED, by_agent), (DELETED, by_user)]
    users, agents, _ = relay.publisher.events
    assert users.embedded["comment"]["deletedAt"] is not None  # as it is now: its handler forgets it
    assert users.embedded["issue"]["assigneeAgentId"] == ada
    assert agents.embedded.keys() == {"comment"}
    assert [event.replay for event in relay.publisher.events] == [False, False, False]


async def test_overlap_that_is_read_again_is_not_published_again(relay: RelayHarness) -> None:
    relay.feed.add_comment(relay.feed.add_issue())
    await relay.poll_comments()
    relay.feed.advance(1)
    await relay.poll_comments()
    assert len(relay.publisher.events) == 1


async def test_audit_row_that_appears_behind_a_newer_one_is_published(relay: RelayHarness) -> None:
    """`createdAt` is the start of a transaction, and a long transaction shows its rows late."""
    issue = relay.feed.add_issue()
    slow = relay.feed.add_comment(issue)
    late = relay.feed.audit_rows.pop()
    relay.feed.advance(10)
    relay.feed.add_comment(issue)
    await relay.poll_comments(full_sweep=False)
    relay.feed.audit_rows.append(late)
    await relay.poll_comments(full_sweep=False)
    assert (CREATED, slow) in relay.publisher.published


async def test_restart_publishes_missed_comments_as_replays_without_bodies(relay: RelayHarness) -> None:
    issue = relay.feed.add_issue()
    relay.feed.add_comment(issue)
    relay.feed.advance(module.LOOK_BACK + 1)
    last = relay.feed.add_comment(issue)
    await relay.poll_comments()
    relay.feed.advance(7_200)
    missed = relay.feed.add_comment(issue)
    relay.feed.advance(7_200)
    relay.restart()
    await relay.poll_comments()
    assert relay.publisher.published == [(CREATED, last), (CREATED, missed)]  # the overlap is published twice
    for event in relay.publisher.events:
        assert event.replay
        assert "comment" not in event.embedded


async def test_comments_from_before_the_start_are_not_published() -> None:
    relay = RelayHarness(start=NOON + 60)
    issue = relay.feed.add_issue()
    relay.feed.add_comment(issue)
    relay.feed.add_comment(issue, audited=False)
    relay.feed.advance(61)
    comment = relay.feed.add_comment(issue)
    relay.feed.advance(10)
    await relay.poll_comments()
    assert relay.publisher.published == [(CREATED, comment)]


async def test_comment_without_activity_is_published_once_it_is_settled(relay: RelayHarness) -> None:
    comment = relay.feed.add_comment(relay.feed.add_issue(), audited=False)
    assert not (await relay.poll_comments()).settled
    assert relay.publisher.events == []
    relay.feed.advance(module.SETTLE_TIME)
    assert (await relay.poll_comments()).settled
    assert relay.publisher.published == [(CREATED, comment)]


async def test_issue_is_embedded_in_a_comment_without_activity_only_if_no_agent_wrote_it(relay: RelayHarness) -> None:
    ada = relay.feed.agent_ids[0]
    issue = relay.feed.add_issue(agent=ada)
    relay.feed.add_comment(issue, agent=ada, audited=False)
    relay.feed.add_comment(issue, audited=False, derivedAuthorAgentId=ada)
    relay.feed.add_comment(issue, audited=False)
    relay.feed.advance(module.SETTLE_TIME)
    await relay.poll_comments()
    assert ["issue" in event.embedded for event in relay.publisher.events] == [False, False, True]
    assert all(event.embedded["comment"]["id"] == event.key for event in relay.publisher.events)


async def test_position_stays_behind_an_issue_with_an_unsettled_comment(relay: RelayHarness) -> None:
    relay.feed.add_comment(relay.feed.add_issue(), audited=False)
    await relay.poll_comments()
    assert relay.comment_position.issues == NOON + 0.125
    relay.feed.advance(100)
    relay.feed.add_comment(relay.feed.add_issue(), audited=False)
    await relay.poll_comments()
    assert len(relay.publisher.events) == 1
    relay.feed.advance(100)
    await relay.poll_comments()
    assert len(relay.publisher.events) == 2


async def test_unchanged_issue_is_not_read_again(relay: RelayHarness) -> None:
    issue = relay.feed.add_issue()
    relay.feed.add_comment(issue, audited=False)
    relay.feed.advance(10)
    for _ in range(3):
        await relay.poll_comments()
    assert relay.feed.calls["comments"] == 1
    relay.feed.add_comment(issue, audited=False)
    relay.feed.advance(10)
    await relay.poll_comments()
    assert relay.feed.calls["comments"] == 2


async def test_poll_without_full_sweep_reads_only_the_audit_feed(relay: RelayHarness) -> None:
    relay.feed.add_comment(relay.feed.add_issue())
    await relay.poll_comments(full_sweep=False)
    assert relay.feed.calls["issues"] == 0
    assert len(relay.publisher.events) == 1


async def test_more_events_than_one_poll_publishes_are_published_oldest_first(
    relay: RelayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_EVENTS", 10)
    ada = relay.feed.agent_ids[0]
    issue = relay.feed.add_issue(agent=ada)
    comments = []
    for _ in range(25):
        relay.feed.advance(60)
        comments.append(relay.feed.add_comment(issue, agent=ada))
    results = [await relay.poll_comments() for _ in range(3)]
    assert [result.more for result in results] == [True, True, False]
    assert [key for _, key in relay.publisher.published] == comments


async def test_more_events_of_one_moment_than_one_poll_publishes_are_published_once(
    relay: RelayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction of thousands of rows: no poll gets beyond its time, and the publisher forgets what it published."""
    monkeypatch.setattr(module, "MAX_EVENTS", 10)
    published: list[str] = []

    async def publish(events: Iterable[OutgoingEvent]) -> int:
        new = [event.key for event in events]
        published.extend(new)
        return len(new)

    monkeypatch.setattr(relay.publisher, "publish", publish)
    issue = relay.feed.add_issue(agent=relay.feed.agent_ids[0])
    comments = []
    for _ in range(25):
        comments.append(relay.feed.add_comment(issue, agent=relay.feed.agent_ids[0]))
        relay.feed.advance(-0.125)
    results = [await relay.poll_comments(full_sweep=False) for _ in range(4)]
    assert [result.more for result in results] == [True, True, False, False]
    assert sorted(published) == sorted(comments)


async def test_comment_of_a_hidden_issue_is_found_in_the_issue(relay: RelayHarness) -> None:
    issue = relay.feed.add_issue()
    relay.feed.hidden.add(issue)
    comment = relay.feed.add_comment(issue)
    relay.feed.advance(10)
    await relay.poll_comments()
    assert relay.publisher.published == [(CREATED, comment)]


class TestWithoutAuditFeed:
    """Keys that may not read the audit feed: agents' keys, and board keys without the permission."""

    @pytest.fixture
    def relay(self) -> RelayHarness:
        relay = RelayHarness()
        relay.feed.audit_allowed = False
        return relay

    async def test_every_poll_sweeps_and_a_notice_says_so(self, relay: RelayHarness) -> None:
        comment = relay.feed.add_comment(relay.feed.add_issue())
        await relay.poll_comments(full_sweep=False)
        assert relay.publisher.published == [(CREATED, comment)]
        assert relay.notices == [module.NO_AUDIT_FEED]

    async def test_deletion_is_found_by_its_tombstone(self, relay: RelayHarness) -> None:
        comment = relay.feed.add_comment(relay.feed.add_issue())
        await relay.poll_comments()
        relay.feed.advance(7_200)
        relay.feed.delete_comment(comment)
        relay.restart()
        await relay.poll_comments()
        assert relay.publisher.published == [(DELETED, comment)]

    async def test_cancelled_comment_is_found_by_its_absence(self, relay: RelayHarness) -> None:
        issue = relay.feed.add_issue()
        kept, cancelled = relay.feed.add_comment(issue), relay.feed.add_comment(issue)
        await relay.poll_comments()
        relay.feed.advance(5)
        relay.feed.cancel_comment(cancelled)
        await relay.poll_comments()
        assert relay.publisher.published == [(CREATED, kept), (CREATED, cancelled), (CANCELLED, cancelled)]

    async def test_absence_that_paperclip_does_not_confirm_cancels_nothing(self, relay: RelayHarness) -> None:
        """`Issue not found` is also Paperclip's answer to an expired key."""
        comment = relay.feed.add_comment(relay.feed.add_issue())
        await relay.poll_comments()
        relay.feed.advance(5)
        relay.feed.cancel_comment(comment)
        relay.feed.failures["comment_json"].append(FORBIDDEN)
        await relay.poll_comments()
        assert (CANCELLED, comment) not in relay.publisher.published

    async def test_audit_feed_is_tried_again_after_ten_minutes(self, relay: RelayHarness) -> None:
        await relay.poll_comments()
        await relay.poll_comments()
        assert relay.feed.calls["audit_feed"] == 1
        relay.feed.advance(module.AUDIT_RETRY)
        relay.feed.audit_allowed = True
        await relay.poll_comments()
        assert relay.comment_poller.can_read_audit_feed
        assert relay.feed.calls["audit_feed"] == 2
        assert len(relay.notices) == 1


async def test_issue_that_cannot_be_read_does_not_hold_up_other_issues(relay: RelayHarness) -> None:
    relay.feed.add_comment(relay.feed.add_issue(), audited=False)
    relay.feed.advance(1)
    comment = relay.feed.add_comment(relay.feed.add_issue(), audited=False)
    relay.feed.advance(10)
    gone = Permanent("Issue not found", reason=FORBIDDEN.reason, upstream=Upstream.PAPERCLIP)
    relay.feed.failures["comments"].append(gone)
    await relay.poll_comments()
    assert relay.publisher.published == [(CREATED, comment)]
    assert "skipping an issue that cannot be read" in relay.notices


async def test_event_whose_comment_cannot_be_read_is_published_without_it(relay: RelayHarness) -> None:
    comment = relay.feed.add_comment(relay.feed.add_issue())
    relay.feed.failures["comment_json"].append(Transient("500", upstream=Upstream.PAPERCLIP))
    await relay.poll_comments(full_sweep=False)
    (event,) = relay.publisher.events
    assert (event.key, dict(event.embedded)) == (comment, {})
    assert "publishing an event without its embedded objects" in relay.notices


async def test_refused_key_moves_no_position(relay: RelayHarness) -> None:
    relay.feed.add_comment(relay.feed.add_issue())
    refused = UpstreamDown("401", upstream=Upstream.PAPERCLIP, kind=DownKind.REFUSED)
    for method in ("audit_feed", "comment_json", "issues"):
        relay.feed.failures[method].append(refused)
        with pytest.raises(UpstreamDown):
            await relay.poll_comments()
        assert (relay.publisher.events == []) is (method != "issues")
        assert relay.comment_position == CommentPosition(activity=NOON, issues=NOON)


async def test_lookups_for_the_past_are_paced_and_made_once_for_an_issue(relay: RelayHarness) -> None:
    issue = relay.feed.add_issue()
    for _ in range(module.CHUNK + 1):
        relay.feed.add_comment(issue)
    relay.feed.advance(3_600)
    await relay.poll_comments(full_sweep=False)
    assert len(relay.publisher.events) == module.CHUNK + 1
    assert (relay.feed.calls["issue_json"], relay.feed.calls["activity"]) == (1, 1)
    assert relay.pace.requests == 3  # these, and the second page of the audit feed


async def test_lookups_for_fresh_comments_are_not_paced(relay: RelayHarness) -> None:
    relay.feed.add_comment(relay.feed.add_issue())
    await relay.poll_comments()
    assert relay.pace.requests == 0
    assert relay.feed.calls["issue_json"] == 1


async def test_lookups_of_many_comments_are_made_a_few_at_a_time(
    relay: RelayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of queued requests would outlast their timeouts, and hold up the other companies' requests."""
    read, queued, most_queued = relay.feed.issue_json, 0, 0

    async def issue_json(issue_id: str) -> Json | None:
        nonlocal queued, most_queued
        queued += 1
        most_queued = max(most_queued, queued)
        await asyncio.sleep(0)
        queued -= 1
        return await read(issue_id)

    monkeypatch.setattr(relay.feed, "issue_json", issue_json)
    for _ in range(200):
        relay.feed.add_comment(relay.feed.add_issue())
    await relay.poll_comments(full_sweep=False)
    assert len(relay.publisher.events) == 200
    assert all("issue" in event.embedded for event in relay.publisher.events)
    assert most_queued <= CONCURRENT_ITEMS
