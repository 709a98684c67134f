"""A lane on a `FakeSource`, with scripted jobs, a manual clock and a fake dead-letter topic."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from consumer.errors import DownKind, Permanent, Transient, Upstream, UpstreamDown
from consumer.handlers.results import Done, HandlerResult
from consumer.stream.backpressure import BackpressureLimits
from consumer.stream.executor import Job, LaneSettings
from consumer.stream.hooks import AttemptFinished, AttemptOutcome, EngineEvent
from consumer.stream.lane import Lane
from consumer.stream.records import Partition, Record
from consumer.stream.retry import RetryPolicy
from consumer.stream.scheduler import LaneScheduler
from consumer.upstream_success import record_success
from tests.unit.stream.fake_source import FakeSource
from tests.unit.stream.samples import P0

EventT = TypeVar("EventT")
WrittenLetter = tuple[bytes | None, bytes | None, dict[str, bytes | None]]

POISON = Transient("500", upstream=Upstream.HINDSIGHT)
DOWN = UpstreamDown("refused", upstream=Upstream.HINDSIGHT, kind=DownKind.UNREACHABLE)


async def eventually(condition: Callable[[], object]) -> None:
    """Wait for a condition; pytest's time limit ends a test that waits in vain."""
    while not condition():  # noqa: ASYNC110 - conditions of any kind
        await asyncio.sleep(0.001)


class Clock:
    """Seconds since the epoch, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class TooLargeError(Exception):
    pass


class FakeDeadLetters:
    """A dead-letter topic. `fails`: what each write raises while it is down; `limit`: bytes of value that it takes."""

    def __init__(self) -> None:
        self.written: list[WrittenLetter] = []
        self.fails: BaseException | None = None
        self.limit: int | None = None
        self.tries = 0

    async def write(
        self, _topic: str, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> None:
        self.tries += 1
        if self.fails is not None:
            raise self.fails
        if self.limit is not None and len(value or b"") > self.limit:
            raise TooLargeError
        self.written.append((key, value, dict(headers)))


class FakeJobs:
    """Scripted jobs: one step of its key's script per attempt, then success. Jobs wait while the gate is closed.

    Attributes:
        order: the offsets of each key in the order of their starts.
        broken: whether two records of one key ran at once.
    """

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.script: dict[bytes | None, list[HandlerResult | BaseException]] = {}
        self.always: dict[bytes | None, BaseException] = {}
        self.stubborn = False
        self.order: dict[tuple[int, bytes | None], list[int]] = defaultdict(list)
        self.running: list[Record] = []
        self.most = 0
        self.broken = False
        self.cancelled = 0

    def make_job(self, record: Record) -> Job:
        if record.value == b"ignored":
            return Job("ignored", None)
        if isinstance(error := self.always.get(record.key), Permanent) and error.upstream is None:
            raise error
        return Job("retain", lambda: self.run(record), {"event_id": f"event-{record.offset}"})

    async def run(self, record: Record) -> HandlerResult:
        self.order[record.partition, record.key].append(record.offset)
        if record.key is not None:
            self.broken |= any((r.partition, r.key) == (record.partition, record.key) for r in self.running)
        self.running.append(record)
        self.most = max(self.most, len(self.running))
        try:
            await self._wait()
            return self._step(record)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running.remove(record)

    async def _wait(self) -> None:
        while True:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise
            else:
                return

    def _step(self, record: Record) -> HandlerResult:
        steps = self.script.get(record.key)
        step = steps.pop(0) if steps else self.always.get(record.key, Done())
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, Done):
            record_success(Upstream.HINDSIGHT)
        return step

    @property
    def started(self) -> int:
        return sum(map(len, self.order.values()))


@dataclass
class LaneHarness:
    """A running lane."""

    source: FakeSource
    scheduler: LaneScheduler
    lane: Lane
    jobs: FakeJobs
    dead_letters: FakeDeadLetters
    clock: Clock
    events: list[EngineEvent]
    running: asyncio.Task[None] = field(init=False)

    def events_of(self, kind: type[EventT]) -> list[EventT]:
        return [event for event in self.events if isinstance(event, kind)]

    def attempts(self, *outcomes: AttemptOutcome) -> list[AttemptFinished]:
        return [event for event in self.events_of(AttemptFinished) if event.outcome in outcomes]

    @property
    def lag(self) -> int:
        return sum(end - self.source.committed.get(p, 0) for p, end in self.source.ends.items())

    async def advance_until(self, condition: Callable[[], object], seconds: float = 400.0) -> None:
        """Advance the clock until a condition holds."""
        while not condition():
            self.clock.now += seconds
            await asyncio.sleep(0.002)

    async def drain(self) -> None:
        """Advance the clock until everything produced is committed."""
        await self.advance_until(lambda: self.lag == 0)


@asynccontextmanager
async def running_lane(
    *partitions: Partition,
    limit: int = 8,
    retry: RetryPolicy | None = None,
    limits: BackpressureLimits | None = None,
    drain_timeout: float = 0.05,
    joined: bool = True,
) -> AsyncIterator[LaneHarness]:
    """A running lane; if `joined`, with its partitions assigned (by default P0)."""
    source, jobs, dead_letters, clock = FakeSource(*(partitions or (P0,))), FakeJobs(), FakeDeadLetters(), Clock()
    events: list[EngineEvent] = []
    scheduler = LaneScheduler(limit, retry or RetryPolicy(max_attempts=3), limits or BackpressureLimits())
    settings = LaneSettings("retain", "dead", drain_timeout, TooLargeError)
    lane = Lane(settings, scheduler, source, jobs.make_job, dead_letters.write, events.append, clock, clock)
    harness = LaneHarness(source, scheduler, lane, jobs, dead_letters, clock, events)
    harness.running = asyncio.create_task(lane.run())
    try:
        if joined:
            await eventually(lambda: source.polls)
            await source.rebalance(*source.logs)
        yield harness
    finally:
        jobs.gate.set()
        jobs.stubborn = False
        await lane.stop(1.0)
        harness.running.cancel()
        await asyncio.gather(harness.running, return_exceptions=True)
