"""Catching up after an outage, in simulated time: three companies at one Paperclip that needs 0.1 s for an answer."""

import asyncio
import selectors
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from consumer.paperclip.client import AUDIT_PAGE
from consumer.paperclip.models import Json
from consumer.relay.checkpoints import Checkpoint
from consumer.relay.comment_poller import CommentPoller
from consumer.relay.company_follower import CompanyFollower
from consumer.relay.concurrency import Pace
from consumer.relay.enrichment import EventEnricher
from consumer.relay.event_builder import OutgoingEvent
from consumer.relay.run_poller import RunPoller
from tests.support.fake_feed import NOON, FakeFeedClient, RecordingPublisher, new_id
from tests.unit.relay.harness import FakeCheckpoints

ISSUES, COMMENTS = 120, 600
OUTAGE = 3_600.0
LATENCY = 0.1
IN_FLIGHT = 8


class SimulatedTime(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__(_NoWait(self))
        self.now = 0.0

    def time(self) -> float:
        return self.now


class _NoWait(selectors.SelectSelector):
    def __init__(self, loop: SimulatedTime) -> None:
        super().__init__()
        self._simulated = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._simulated.now += max(0.0, timeout or 0.0)
        return super().select(0)


class SharedPaperclip:
    """One Paperclip with several companies, a time for each answer, and a record of its requests."""

    def __init__(self, loop: SimulatedTime, companies: Iterable[FakeFeedClient]) -> None:
        self._loop = loop
        self._companies = {feed.company: feed for feed in companies}
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self.requests: list[float] = []

    async def _answer(self) -> None:
        async with self._slots:
            self.requests.append(self._loop.time())
            await asyncio.sleep(LATENCY)

    def _of_issue(self, issue_id: str) -> FakeFeedClient:
        return next(feed for feed in self._companies.values() if issue_id in feed.issues_by_id)

    async def audit_feed(self, company_id: str, since: str) -> AsyncIterator[Json]:
        await self._answer()
        rows = [row async for row in self._companies[company_id].audit_feed(company_id, since)]
        for number, row in enumerate(rows, start=1):
            yield row
            if number % AUDIT_PAGE == 0:
                await self._answer()

    async def issues(self, company_id: str, since: str | None = None) -> AsyncIterator[Json]:
        await self._answer()
        async for issue in self._companies[company_id].issues(company_id, since):
            yield issue

    async def comments(self, issue_id: str, *, oldest_first: bool) -> AsyncIterator[Json]:
        await self._answer()
        async for comment in self._of_issue(issue_id).comments(issue_id, oldest_first=oldest_first):
            yield comment

    async def issue_json(self, issue_id: str) -> Json | None:
        await self._answer()
        return await self._of_issue(issue_id).issue_json(issue_id)

    async def comment_json(self, issue_id: str, comment_id: str) -> Json | None:
        await self._answer()
        return await self._of_issue(issue_id).comment_json(issue_id, comment_id)

    async def activity(self, issue_id: str) -> list[Json]:
        await self._answer()
        return await self._of_issue(issue_id).activity(issue_id)

    async def runs(self, company_id: str, limit: int, agent_id: str | None = None) -> list[Json]:
        await self._answer()
        return await self._companies[company_id].runs(company_id, limit, agent_id)

    async def run_json(self, run_id: str) -> Json | None:
        raise NotImplementedError

    async def run_end_statuses(self, run_id: str) -> list[str]:
        raise NotImplementedError

    async def agents(self, company_id: str) -> Sequence[str]:
        raise NotImplementedError


class TimedPublisher(RecordingPublisher):
    """Records when events were published, too."""

    def __init__(self, loop: SimulatedTime) -> None:
        super().__init__()
        self._loop = loop
        self.times: dict[str, float] = {}

    async def publish(self, events: Iterable[OutgoingEvent]) -> int:
        events = list(events)
        self.times |= {event.key: self.times.get(event.key, self._loop.time()) for event in events}
        return await super().publish(events)


class Simulation:
    """The relay follows three companies, of which the first has a past of many users' comments."""

    def __init__(self, loop: SimulatedTime) -> None:
        self.loop = loop
        self.feeds = [FakeFeedClient(new_id()) for _ in range(3)]
        self.paperclip = SharedPaperclip(loop, self.feeds)
        self.publishers = [TimedPublisher(loop) for _ in self.feeds]
        enricher = EventEnricher(self.paperclip, lambda _: None, True, False, self.clock, pace=Pace(clock=loop.time))
        self.followers = [
            CompanyFollower(
                Checkpoint.fresh(feed.company, NOON),
                CommentPoller(self.paperclip, publisher, enricher, lambda _: None, feed.company, NOON),
                RunPoller(self.paperclip, publisher, enricher, lambda _: None, feed.company, NOON),
                FakeCheckpoints(),
                lambda _: None,
                poll_interval=1.2,
                sweep_interval=10.0,
                now=self.clock,
            )
            for feed, publisher in zip(self.feeds, self.publishers, strict=True)
        ]

    def clock(self) -> float:
        return NOON + OUTAGE + self.loop.time()

    def add_past(self) -> dict[str, str]:
        """Comments on issues that change hands after each; the agent who had the issue, by comment."""
        feed = self.feeds[0]
        owners: dict[str, str] = {}
        issues = [feed.add_issue(agent=feed.agent_ids[0]) for _ in range(ISSUES)]
        for number in range(COMMENTS):
            issue = issues[number * 7 % ISSUES]
            owner = feed.issues_by_id[issue]["assigneeAgentId"]
            owners[feed.add_comment(issue)] = owner
            feed.advance(0.125)
            feed.assign(issue, feed.agent_ids[1 - feed.agent_ids.index(owner)])
        return owners

    async def comment_live(self, feed: FakeFeedClient) -> dict[str, float]:
        """A fresh comment of a user now and then; when it was made."""
        made: dict[str, float] = {}
        try:
            while True:
                await asyncio.sleep(3.0)
                feed.now = self.clock()
                issue = feed.add_issue(agent=feed.agent_ids[0])
                made[feed.add_comment(issue)] = self.loop.time()
        except asyncio.CancelledError:
            return made


@contextmanager
def simulated_time() -> Iterator[SimulatedTime]:
    loop = SimulatedTime()
    try:
        yield loop
    finally:
        loop.close()


def busiest_rate(times: Iterable[float], seconds: int = 10) -> float:
    """Requests a second, in the ten seconds with most of them."""
    return max(Counter(int(time) // seconds for time in times).values()) / seconds


def test_catching_up_finds_former_assignees_keeps_to_a_rate_and_delays_no_other_company() -> None:
    with simulated_time() as loop:

        async def simulate() -> tuple[Simulation, dict[str, str], list[dict[str, float]]]:
            simulation = Simulation(loop)
            owners = simulation.add_past()
            following = [asyncio.create_task(follower.run()) for follower in simulation.followers]
            live = [asyncio.create_task(simulation.comment_live(feed)) for feed in simulation.feeds[1:]]
            while len(simulation.publishers[0].events) < COMMENTS:
                await asyncio.sleep(1.0)
                assert loop.time() < 600
            await asyncio.sleep(5.0)
            for task in [*live, *following]:
                task.cancel()
            made = list(await asyncio.gather(*live))
            await asyncio.gather(*following, return_exceptions=True)
            return simulation, owners, made

        simulation, owners, made = loop.run_until_complete(simulate())
    events = simulation.publishers[0].events
    assert {event.key: event.embedded["issue"]["assigneeAgentId"] for event in events} == owners
    assert busiest_rate(simulation.paperclip.requests) <= 20.0
    for publisher, comments in zip(simulation.publishers[1:], made, strict=True):
        settled = {comment: time for comment, time in comments.items() if time < loop.now - 6}
        assert len(settled) > 3
        assert max(publisher.times[comment] - time for comment, time in settled.items()) < 5.0


@pytest.mark.parametrize("runs", [0, 200])
def test_idle_company_costs_at_most_two_requests_a_second(runs: int) -> None:
    with simulated_time() as loop:

        async def simulate() -> Simulation:
            simulation = Simulation(loop)
            for number in range(runs):
                feed = simulation.feeds[0]
                feed.now = NOON + OUTAGE - 600 + 3 * number
                feed.end_run(feed.start_run(feed.agent_ids[0]))
            task = asyncio.create_task(simulation.followers[0].run())
            await asyncio.sleep(120.0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return simulation

        simulation = loop.run_until_complete(simulate())
    assert len(simulation.publishers[0].events) == 2 * runs
    assert len(simulation.paperclip.requests) / 120 <= 2.0
