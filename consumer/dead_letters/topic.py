"""Reading the dead-letter topic, from its start to where it ends now, and again where chosen letters stand."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition

from consumer.dead_letters.model import Letter, read_letter, read_note
from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.stream.records import Record

STALLED = 30.0
"""Seconds without a single record after which reading is given up."""

Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What the topic holds.

    Attributes:
        open: the letters that were not sent back, oldest first. redriven: how many were.
        foreign: how many records are no dead letters of ours.
        sources: of the topics that lanes read, those that exist, with the number of their partitions.
    """

    open: list[Letter]
    redriven: int
    foreign: int
    sources: Mapping[str, int]


class LetterTopic:
    """The dead-letter topic.

    Args:
        make: a consumer without a group, not started, that hands out bytes.
        sources: the topics that lanes read.
    """

    def __init__(self, make: Callable[[], AIOKafkaConsumer], name: str, sources: Collection[str]) -> None:
        self.name = name
        self._make = make
        self._sources = sources

    async def survey(self, progress: Progress) -> Survey:
        """Read everything.

        Raises:
            UpstreamDown: the topic does not exist, or gives no more records.
            KafkaError: Kafka cannot be reached.
        """
        letters: dict[tuple[int, int], Letter] = {}
        settled: set[tuple[int, int]] = set()
        seen = foreign = 0
        async with self._reading() as (consumer, numbers):
            partitions = [TopicPartition(self.name, number) for number in numbers(self.name)]
            starts, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
            total = sum(ends.values()) - sum(starts.values())
            sources = {name: len(numbers(name)) for name in self._sources if numbers(name)}
            async for record in _read(consumer, starts, ends):
                note = read_note(record)
                if note is not None:
                    settled.update(note)
                elif letter := read_letter(record):
                    letters[letter.place] = letter
                else:
                    foreign += 1
                seen += 1
                progress(seen, total)
        still_open = sorted((each for each in letters.values() if each.place not in settled), key=_age)
        return Survey(still_open, len(letters) - len(still_open), foreign, sources)

    async def fetch(self, letters: Collection[Letter]) -> AsyncIterator[tuple[Letter, Record]]:
        """The records of these letters, in the order of each partition; what retention has removed since is left out.

        Raises:
            UpstreamDown, KafkaError: as `survey`.
        """
        wanted = {letter.place: letter for letter in letters}
        async with self._reading() as (consumer, _):
            for partition in sorted({letter.partition for letter in letters}):
                offsets = [letter.offset for letter in letters if letter.partition == partition]
                tp = TopicPartition(self.name, partition)
                async for record in _read(consumer, {tp: min(offsets)}, {tp: max(offsets) + 1}):
                    if letter := wanted.get((record.partition, record.offset)):
                        yield letter, record

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[tuple[AIOKafkaConsumer, Callable[[str], list[int]]]]:
        consumer = self._make()
        try:
            await consumer.start()
            await asyncio.sleep(0)  # aiokafka's `stop` raises if its tasks have not begun
            # The public `topics()` asks the same and keeps the names only.
            known = await consumer._client.fetch_all_metadata()  # noqa: SLF001
            if not known.partitions_for_topic(self.name):
                raise _down(f"topic {self.name} does not exist: run `paperclip-memory topics`")
            yield consumer, lambda topic: sorted(known.partitions_for_topic(topic) or ())
        finally:
            await consumer.stop()


async def _read(
    consumer: AIOKafkaConsumer, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]
) -> AsyncIterator[Record]:
    """The records of these partitions from `starts` up to `ends`."""
    consumer.assign([tp for tp in ends if starts[tp] < ends[tp]])
    for tp in consumer.assignment():
        consumer.seek(tp, starts[tp])
    alive = time.monotonic()
    while behind := [tp for tp in consumer.assignment() if await consumer.position(tp) < ends[tp]]:
        polled = await consumer.getmany(*behind, timeout_ms=500)
        if polled:
            alive = time.monotonic()
        elif time.monotonic() - alive > STALLED:
            raise _down(f"no record of topic {behind[0].topic} came for {STALLED:.0f} s")
        for tp, messages in polled.items():
            for m in messages:
                if m.offset < ends[tp]:
                    yield Record(m.topic, m.partition, m.offset, m.timestamp, m.key, m.value, tuple(m.headers))


def _age(letter: Letter) -> tuple[float, int, int]:
    return letter.written, letter.partition, letter.offset


def _down(message: str) -> UpstreamDown:
    return UpstreamDown(message, upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE)
