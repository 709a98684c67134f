"""A lane on a `FakeSource`, with work, a clock and a dead-letter topic that a test holds in its hand."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from consumer.errors import DownKind, Permanent, Transient, Upstream, UpstreamDown
from consumer.handlers.results import Done, Outcome
from consumer.stream.core import LaneCore
from consumer.stream.jobs import Job
from consumer.stream.lane import Lane
from consumer.stream.pressure import Limits
from consumer.stream.records import Partition, Record
from consumer.stream.retry import RetryPolicy
from consumer.stream.signals import Attempted, Ending, Signal
from consumer.stream.work import LaneSettings
from consumer.upstream_success import answered
from tests.unit.stream.fake_source import FakeSource
from tests.unit.stream.samples import P0

SignalT = TypeVar("SignalT")
Letter = tuple[bytes | None, bytes | None, dict[str, bytes | None]]

POISON = Transient("500", upstream=Upstream.HINDSIGHT)
DOWN = UpstreamDown("refused", upstream=Upstream.HINDSIGHT, kind=DownKind.UNREACHABLE)


async def until(condition: Callable[[], object]) -> None:
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


class Letters:
    """A dead-letter topic. `fails`: what each write raises while it is down; `limit`: bytes of value that it takes."""

    def __init__(self) -> None:
        self.taken: list[Letter] = []
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
        self.taken.append((key, value, dict(headers)))


class Work:
    """What the jobs do: a key's script, one step an attempt, then success; all of it when the gate is open.

    Attributes:
        order: the offsets of each key as they were started; `broken` when two of one key ran at once.
    """

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.script: dict[bytes | None, list[Outcome | BaseException]] = {}
        self.always: dict[bytes | None, BaseException] = {}
        self.stubborn = False
        self.order: dict[tuple[int, bytes | None], list[int]] = defaultdict(list)
        self.running: list[Record] = []
        self.most = 0
        self.broken = False
        self.cancelled = 0

    def resolve(self, record: Record) -> Job:
        if record.value == b"ignored":
            return Job("ignored", None)
        if isinstance(error := self.always.get(record.key), Permanent) and error.upstream is None:
            raise error
        return Job("retain", lambda: self.run(record), {"event_id": f"event-{record.offset}"})

    async def run(self, record: Record) -> Outcome:
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

    def _step(self, record: Record) -> Outcome:
        steps = self.script.get(record.key)
        step = steps.pop(0) if steps else self.always.get(record.key, Done())
        if isinstance(step, BaseException):
            raise step
        answered(Upstream.HINDSIGHT)
        return step

    @property
    def started(self) -> int:
        return sum(map(len, self.order.values()))


@dataclass
class Rig:
    """A running lane."""

    source: FakeSource
    core: LaneCore
    lane: Lane
    work: Work
    letters: Letters
    clock: Clock
    signals: list[Signal]
    running: asyncio.Task[None] = field(init=False)

    def told(self, kind: type[SignalT]) -> list[SignalT]:
        return [signal for signal in self.signals if isinstance(signal, kind)]

    def ended(self, *endings: Ending) -> list[Attempted]:
        return [signal for signal in self.told(Attempted) if signal.ending in endings]

    @property
    def lag(self) -> int:
        return sum(end - self.source.committed.get(p, 0) for p, end in self.source.ends.items())

    async def advancing(self, condition: Callable[[], object], seconds: float = 400.0) -> None:
        """Let time pass until a condition holds."""
        while not condition():
            self.clock.now += seconds
            await asyncio.sleep(0.002)

    async def drained(self) -> None:
        """Everything that was produced is committed."""
        await self.advancing(lambda: self.lag == 0)


@asynccontextmanager
async def lane_on(
    *partitions: Partition,
    limit: int = 8,
    retry: RetryPolicy | None = None,
    limits: Limits | None = None,
    drain_timeout: float = 0.05,
    joined: bool = True,
) -> AsyncIterator[Rig]:
    """A lane that runs, and has its partitions (P0 unless told) if `joined`."""
    source, work, letters, clock = FakeSource(*(partitions or (P0,))), Work(), Letters(), Clock()
    signals: list[Signal] = []
    core = LaneCore(limit, retry or RetryPolicy(max_attempts=3), limits or Limits())
    settings = LaneSettings("retain", "dead", drain_timeout, TooLargeError)
    lane = Lane(settings, core, source, work.resolve, letters.write, signals.append, clock, clock)
    rig = Rig(source, core, lane, work, letters, clock, signals)
    rig.running = asyncio.create_task(lane.run())
    try:
        if joined:
            await until(lambda: source.polls)
            await source.rebalance(*source.logs)
        yield rig
    finally:
        work.gate.set()
        work.stubborn = False
        await lane.stop(1.0)
        rig.running.cancel()
        await asyncio.gather(rig.running, return_exceptions=True)
