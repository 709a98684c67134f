"""Following comments: what is published, what not, how far is read, and what is left to whom."""

import pytest

from consumer.errors import DownKind, Permanent, Transient, Upstream, UpstreamDown
from consumer.relay import comment_poller
from consumer.relay.checkpoints import CommentPosition
from consumer.relay.comment_poller import CommentFeed, Looked
from consumer.relay.enrichment import Copies
from consumer.relay.event_builder import CANCELLED, CREATED, DELETED
from consumer.relay.signals import RelaySignal, Told
from tests.unit.relay.paper import COMPANY, FORBIDDEN, NOON, Paper, Post


class Desk:
    """A feed on paper, with what it published and said."""

    def __init__(self, start: float = NOON) -> None:
        self.paper, self.post, self.heard = Paper(), Post(), list[RelaySignal]()
        self.at = CommentPosition(activity=start, issues=start)
        self.start = start
        self.restart()

    def restart(self) -> None:
        """Another process goes on: it remembers nothing but its position."""
        self.post = Post()
        copies = Copies(self.paper, self.heard.append, enabled=True, issues=False, now=lambda: self.paper.now)  # type: ignore[arg-type]
        self.feed = CommentFeed(self.paper, self.post, copies, self.heard.append, COMPANY, self.start)  # type: ignore[arg-type]

    async def look(self, *, thorough: bool = True) -> Looked:
        looked = await self.feed.look(self.at, thorough=thorough)
        self.at = looked.position
        return looked

    @property
    def told(self) -> list[str]:
        return [each.event for each in self.heard if isinstance(each, Told)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_comments_and_deletions_in_their_order_with_what_they_need(desk: Desk) -> None:
    ada = desk.paper.agents_[0]
    issue = desk.paper.open(agent=ada)
    by_user, by_agent = desk.paper.say(issue), desk.paper.say(issue, agent=ada)
    desk.paper.tick(1)
    desk.paper.delete(by_user)
    await desk.look()
    assert desk.post.subjects == [(CREATED, by_user), (CREATED, by_agent), (DELETED, by_user)]
    user, agent, _ = desk.post.sent
    assert user.copies["comment"]["deletedAt"] is not None  # as it stands now: who handles it forgets it
    assert user.copies["issue"]["assigneeAgentId"] == ada
    assert agent.copies.keys() == {"comment"}
    assert [each.replay for each in desk.post.sent] == [False, False, False]


async def test_the_overlap_is_read_again_and_not_published_again(desk: Desk) -> None:
    issue = desk.paper.open()
    desk.paper.say(issue)
    await desk.look()
    desk.paper.tick(1)
    await desk.look()
    assert len(desk.post.sent) == 1


async def test_a_late_commit_appears_behind_the_watermark(desk: Desk) -> None:
    """`createdAt` is the start of a transaction, which a long one shows late."""
    issue = desk.paper.open()
    slow = desk.paper.say(issue)
    late = desk.paper.rows.pop()
    desk.paper.tick(10)
    desk.paper.say(issue)
    await desk.look(thorough=False)
    desk.paper.rows.append(late)
    await desk.look(thorough=False)
    assert (CREATED, slow) in desk.post.subjects


async def test_a_restart_goes_on_where_it_was(desk: Desk) -> None:
    issue = desk.paper.open()
    desk.paper.say(issue)
    desk.paper.tick(comment_poller.LOOK_BACK + 1)
    last = desk.paper.say(issue)
    await desk.look()
    desk.paper.tick(7_200)
    missed = desk.paper.say(issue)
    desk.paper.tick(7_200)
    desk.restart()
    await desk.look()
    assert desk.post.subjects == [(CREATED, last), (CREATED, missed)]  # what was read last comes twice
    for found in desk.post.sent:
        assert found.replay
        assert "comment" not in found.copies


async def test_nothing_from_before_the_start(desk: Desk) -> None:
    early = Desk(start=NOON + 60)
    issue = early.paper.open()
    early.paper.say(issue)
    early.paper.say(issue, told=False)
    early.paper.tick(61)
    said = early.paper.say(issue)
    early.paper.tick(10)
    await early.look()
    assert early.post.subjects == [(CREATED, said)]


async def test_a_comment_without_an_event_is_found_and_left_to_the_audit_feed_first(desk: Desk) -> None:
    issue = desk.paper.open()
    said = desk.paper.say(issue, told=False)
    assert not (await desk.look()).settled
    assert desk.post.sent == []
    desk.paper.tick(comment_poller.SETTLING)
    assert (await desk.look()).settled
    assert desk.post.subjects == [(CREATED, said)]


async def test_a_young_comment_is_not_forgotten_when_others_follow(desk: Desk) -> None:
    """The sweep's position stays behind an issue that it has not settled."""
    first = desk.paper.open()
    desk.paper.say(first, told=False)
    await desk.look()
    assert desk.at.issues == NOON + 0.125
    desk.paper.tick(100)
    desk.paper.say(desk.paper.open(), told=False)
    await desk.look()
    assert len(desk.post.sent) == 1
    desk.paper.tick(100)
    await desk.look()
    assert len(desk.post.sent) == 2


async def test_an_issue_is_read_again_only_when_it_changed(desk: Desk) -> None:
    issue = desk.paper.open()
    desk.paper.say(issue, told=False)
    desk.paper.tick(10)
    for _ in range(3):
        await desk.look()
    assert desk.paper.calls["comments"] == 1
    desk.paper.say(issue, told=False)
    desk.paper.tick(10)
    await desk.look()
    assert desk.paper.calls["comments"] == 2


async def test_without_a_thorough_look_only_the_audit_feed_is_asked(desk: Desk) -> None:
    desk.paper.say(desk.paper.open())
    await desk.look(thorough=False)
    assert desk.paper.calls["issues"] == 0
    assert len(desk.post.sent) == 1


async def test_long_absence_is_caught_up_the_oldest_first(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comment_poller, "CATCH_UP", 10)
    issue = desk.paper.open(agent=desk.paper.agents_[0])
    said = []
    for _ in range(25):
        desk.paper.tick(60)
        said.append(desk.paper.say(issue, agent=desk.paper.agents_[0]))
    looks = [await desk.look() for _ in range(3)]
    assert [looked.more for looked in looks] == [True, True, False]
    assert [subject for _, subject in desk.post.subjects] == said


async def test_a_hidden_issues_comments_are_found_in_the_issue(desk: Desk) -> None:
    issue = desk.paper.open()
    desk.paper.hidden.add(issue)
    said = desk.paper.say(issue)
    desk.paper.tick(10)
    await desk.look()
    assert desk.post.subjects == [(CREATED, said)]


class TestWithoutTheAuditFeed:
    """Board keys without the permission, and agents' keys."""

    @pytest.fixture
    def desk(self) -> Desk:
        desk = Desk()
        desk.paper.auditable = False
        return desk

    async def test_the_sweep_does_it_all_at_each_look(self, desk: Desk) -> None:
        issue = desk.paper.open()
        said = desk.paper.say(issue)
        await desk.look(thorough=False)
        assert desk.post.subjects == [(CREATED, said)]
        assert any("may not read Paperclip's audit feed" in each for each in desk.told)

    async def test_a_deletion_is_found_by_its_tombstone(self, desk: Desk) -> None:
        issue = desk.paper.open()
        said = desk.paper.say(issue)
        await desk.look()
        desk.paper.tick(7_200)
        desk.paper.delete(said)
        desk.restart()
        await desk.look()
        assert desk.post.subjects == [(DELETED, said)]

    async def test_a_cancelled_comment_is_found_by_its_absence(self, desk: Desk) -> None:
        issue = desk.paper.open()
        kept, said = desk.paper.say(issue), desk.paper.say(issue)
        await desk.look()
        desk.paper.tick(5)
        desk.paper.cancel(said)
        await desk.look()
        assert desk.post.subjects == [(CREATED, kept), (CREATED, said), (CANCELLED, said)]

    async def test_an_absence_that_paperclip_does_not_confirm_cancels_nothing(self, desk: Desk) -> None:
        """`Issue not found` is also Paperclip's answer to a key that has expired."""
        issue = desk.paper.open()
        said = desk.paper.say(issue)
        await desk.look()
        desk.paper.tick(5)
        desk.paper.cancel(said)
        desk.paper.failures["comment_json"].append(FORBIDDEN)
        await desk.look()
        assert (CANCELLED, said) not in desk.post.subjects

    async def test_it_is_tried_again_later(self, desk: Desk) -> None:
        await desk.look()
        await desk.look()
        assert desk.paper.calls["audit_feed"] == 1
        desk.paper.tick(comment_poller.ASK_AGAIN)
        desk.paper.auditable = True
        await desk.look()
        assert desk.feed.audited
        assert desk.paper.calls["audit_feed"] == 2
        assert len(desk.told) == 1


async def test_an_issue_that_cannot_be_read_does_not_hold_up_the_others(desk: Desk) -> None:
    desk.paper.say(desk.paper.open(), told=False)
    desk.paper.tick(1)
    said = desk.paper.say(desk.paper.open(), told=False)
    desk.paper.tick(10)
    gone = Permanent("Issue not found", reason=FORBIDDEN.reason, upstream=Upstream.PAPERCLIP)
    desk.paper.failures["comments"].append(gone)
    await desk.look()
    assert desk.post.subjects == [(CREATED, said)]
    assert "an issue is passed over" in desk.told


async def test_an_object_that_cannot_be_had_does_not_hold_up_its_event(desk: Desk) -> None:
    said = desk.paper.say(desk.paper.open())
    desk.paper.failures["comment_json"].append(Transient("500", upstream=Upstream.PAPERCLIP))
    await desk.look(thorough=False)
    (found,) = desk.post.sent
    assert (found.subject, dict(found.copies)) == (said, {})
    assert "an event goes without copies" in desk.told


async def test_an_outage_publishes_nothing_and_moves_nothing(desk: Desk) -> None:
    desk.paper.say(desk.paper.open())
    down = UpstreamDown("401", upstream=Upstream.PAPERCLIP, kind=DownKind.REFUSED)
    for method in ("audit_feed", "comment_json", "issues"):
        desk.paper.failures[method].append(down)
        with pytest.raises(UpstreamDown):
            await desk.look()
        assert (desk.post.sent == []) is (method != "issues")
        assert desk.at == CommentPosition(activity=NOON, issues=NOON)
