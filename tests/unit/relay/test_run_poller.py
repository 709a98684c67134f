"""Following runs: what has started and ended, whether it was seen to or not."""

import pytest

from consumer.relay import run_poller as module
from consumer.relay.checkpoints import RunPosition
from consumer.relay.enrichment import FRESH, Copies
from consumer.relay.run_poller import RunFeed
from consumer.relay.signals import RelaySignal, Told
from tests.unit.relay.paper import COMPANY, NOON, Paper, Post

STARTED, FINISHED, FAILED, CANCELLED = (f"agent.run.{end}" for end in ("started", "finished", "failed", "cancelled"))


class Desk:
    """A feed on paper, with what it published and said."""

    def __init__(self, start: float = NOON, *, issues: bool = False) -> None:
        self.paper, self.post, self.heard = Paper(), Post(), list[RelaySignal]()
        self.at = RunPosition(created=start)
        copies = Copies(self.paper, self.heard.append, enabled=True, issues=issues, now=lambda: self.paper.now)  # type: ignore[arg-type]
        self.feed = RunFeed(self.paper, self.post, copies, self.heard.append, COMPANY, start)  # type: ignore[arg-type]

    async def look(self, *hinted: str, thorough: bool = True) -> None:
        self.at = await self.feed.look(self.at, thorough=thorough, hinted=hinted)


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_run_from_its_start_to_its_end(desk: Desk) -> None:
    ada = desk.paper.agents_[0]
    run = desk.paper.start(ada)
    await desk.look()
    assert desk.at.open == (run,)
    desk.paper.tick(5)
    desk.paper.end(run)
    await desk.look()
    assert desk.post.subjects == [(STARTED, run), (FINISHED, run)]
    assert desk.at == RunPosition(created=NOON, open=())


async def test_a_run_that_came_and_went_between_two_looks(desk: Desk) -> None:
    run = desk.paper.start(desk.paper.agents_[0])
    desk.paper.end(run, "failed", "exit code 3")
    await desk.look()
    started, failed = desk.post.sent
    assert (started.type, failed.type) == (STARTED, FAILED)
    assert (started.envelope["payload"]["status"], started.envelope["payload"]["error"]) == ("running", None)
    assert failed.envelope["payload"]["error"] == "exit code 3"


async def test_a_killed_run_that_ended_before_it_was_cancelled(desk: Desk) -> None:
    """Its process ends, and Paperclip announces that, before it announces the cancellation."""
    run = desk.paper.start(desk.paper.agents_[0])
    await desk.look()
    desk.paper.end(run, "cancelled")
    desk.paper.statuses[run] = ["succeeded"]
    await desk.look()
    await desk.look()
    assert desk.post.subjects == [(STARTED, run), (FINISHED, run), (CANCELLED, run)]
    assert desk.paper.calls["run_end_statuses"] == 1


async def test_a_run_cancelled_before_it_ran(desk: Desk) -> None:
    run = desk.paper.start(desk.paper.agents_[0], status="queued")
    await desk.look()
    desk.paper.end(run, "cancelled")
    await desk.look()
    assert desk.post.subjects == [(CANCELLED, run)]


async def test_a_run_that_was_succeeded_when_seen_and_then_cancelled(desk: Desk) -> None:
    run = desk.paper.start(desk.paper.agents_[0])
    desk.paper.end(run)
    await desk.look()
    desk.paper.tick(1)
    desk.paper.end(run, "cancelled")
    await desk.look()
    assert desk.post.subjects == [(STARTED, run), (FINISHED, run), (CANCELLED, run)]


async def test_nothing_from_before_the_start_but_the_end_of_what_ran(desk: Desk) -> None:
    desk = Desk(start=NOON + 60)
    over, running = desk.paper.start(desk.paper.agents_[0]), desk.paper.start(desk.paper.agents_[0])
    desk.paper.end(over)
    desk.paper.tick(90)
    desk.paper.end(running)
    await desk.look()
    assert desk.post.subjects == [(FINISHED, running)]


class TestStragglers:
    """Runs that are open and have fallen out of the list."""

    @pytest.fixture
    def desk(self, monkeypatch: pytest.MonkeyPatch) -> Desk:
        monkeypatch.setattr(module, "PAGE", 2)
        monkeypatch.setattr(module, "MOST", 2)
        return Desk()

    async def fall_out(self, desk: Desk, number: int = 1) -> list[str]:
        """Open runs behind a list of newer ones, all of them long known."""
        runs = [desk.paper.start(desk.paper.agents_[0]) for _ in range(number)]
        for _ in range(2):
            desk.paper.tick(1)
            desk.paper.end(desk.paper.start(desk.paper.agents_[1]))
        desk.at = RunPosition(created=desk.paper.now + module.OVERLAP, open=tuple(runs))
        await desk.look(thorough=False)
        assert desk.at.open == tuple(runs)
        for run in runs:
            desk.paper.end(run)
        return runs

    async def test_a_thorough_look_asks_for_them(self, desk: Desk) -> None:
        (run,) = await self.fall_out(desk)
        await desk.look(thorough=False)
        assert (FINISHED, run) not in desk.post.subjects
        await desk.look()
        assert (FINISHED, run) in desk.post.subjects
        assert not desk.at.open

    async def test_a_hint_has_one_looked_at_now(self, desk: Desk) -> None:
        (run,) = await self.fall_out(desk)
        await desk.look(run, thorough=False)
        assert (FINISHED, run) in desk.post.subjects

    async def test_one_that_is_gone_is_let_go(self, desk: Desk) -> None:
        (run,) = await self.fall_out(desk)
        del desk.paper.runs_[run]
        await desk.look()
        assert not desk.at.open

    async def test_each_has_its_turn(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "STRAGGLERS", 1)
        runs = await self.fall_out(desk, 3)
        ends = []
        for _ in range(3):
            await desk.look()
            ends.append([subject for type_, subject in desk.post.subjects if type_ == FINISHED and subject in runs])
        assert [len(each) for each in ends] == [1, 2, 3]

    async def test_more_runs_than_a_list_holds_are_asked_for_agent_by_agent(self, desk: Desk) -> None:
        runs = []
        for _ in range(2):
            for agent in desk.paper.agents_:
                desk.paper.tick(1)
                runs.append(desk.paper.start(agent))
        await desk.look()
        assert [subject for _, subject in desk.post.subjects] == runs

    async def test_runs_that_no_list_holds_are_told_of(self, desk: Desk) -> None:
        for _ in range(5):
            desk.paper.tick(1)
            desk.paper.start(desk.paper.agents_[0])
        await desk.look()
        assert any(isinstance(each, Told) and "more new runs" in each.event for each in desk.heard)


class TestCopies:
    """What a started run carries, so that nobody needs to ask for the query."""

    async def test_what_wakes_it_is_put_together_until_paperclip_has_written_it(self, desk: Desk) -> None:
        issue = desk.paper.open("Ship it")
        said = desk.paper.say(issue, "Mind the cookies.")
        desk.paper.start(desk.paper.agents_[0], issue, wakeCommentIds=[said])
        await desk.look()
        (started,) = desk.post.sent
        wake = started.copies["run"]["contextSnapshot"]["paperclipWake"]
        assert (wake["issue"]["title"], wake["issue"]["description"]) == ("Ship it", "All of it.")
        assert [each["body"] for each in wake["comments"]] == ["Mind the cookies."]

    async def test_what_paperclip_has_written_is_taken(self, desk: Desk) -> None:
        issue = desk.paper.open()
        wake = {"issue": {"title": "Ship it"}, "comments": []}
        desk.paper.start(desk.paper.agents_[0], issue, paperclipWake=wake)
        await desk.look()
        assert desk.post.sent[0].copies["run"]["contextSnapshot"]["paperclipWake"] == wake
        assert desk.paper.calls["issue_json"] == 0

    async def test_the_issue_itself_where_its_user_matters(self) -> None:
        desk = Desk(issues=True)
        issue = desk.paper.open()
        desk.paper.start(desk.paper.agents_[0], issue, paperclipWake={"issue": {"title": "Ship it"}, "comments": []})
        await desk.look()
        assert desk.post.sent[0].copies["issue"]["description"] == "All of it."

    async def test_a_run_of_long_ago_or_without_an_issue_is_not_asked_about(self, desk: Desk) -> None:
        desk.paper.start(desk.paper.agents_[0])
        desk.paper.start(desk.paper.agents_[0], desk.paper.open())
        desk.paper.tick(FRESH)
        await desk.look()
        assert [dict(each.copies) for each in desk.post.sent] == [{}, {}]
        assert desk.paper.calls["run_json"] == 0
