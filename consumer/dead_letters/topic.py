"""Reads the dead-letter topic: all of it, and then chosen letters."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition

from consumer.dead_letters.model import Letter, read_letter, read_note
from consumer.kafka.topic_reader import Message, assign_topic, fetch_partitions, read_until
from consumer.stream.records import Record

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
            UpstreamDown: the topic does not exist.
            KafkaError: Kafka cannot be reached, or sends no more records.
        """
        letters: dict[tuple[int, int], Letter] = {}
        settled: set[tuple[int, int]] = set()
        seen = foreign = 0
        async with self._open_consumer() as consumer:
            ends = await assign_topic(consumer, self.name)
            starts = await consumer.beginning_offsets(list(ends))
            total = sum(ends.values()) - sum(starts.values())
            partitions = await fetch_partitions(consumer, *self._sources)
            sources = {name: len(partitions[name]) for name in self._sources if partitions[name]}
            async for message in read_until(consumer, ends):
                record = _record(message)
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
        async with self._open_consumer() as consumer:
            for partition in sorted({letter.partition for letter in letters}):
                offsets = [letter.offset for letter in letters if letter.partition == partition]
                tp = TopicPartition(self.name, partition)
                consumer.assign([tp])
                consumer.seek(tp, min(offsets))
                async for message in read_until(consumer, {tp: max(offsets) + 1}):
                    if letter := wanted.get((message.partition, message.offset)):
                        yield letter, _record(message)

    @asynccontextmanager
    async def _open_consumer(self) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = self._make()
        try:
            await consumer.start()
            await asyncio.sleep(0)  # aiokafka's `stop` raises if its tasks have not begun
            yield consumer
        finally:
            await consumer.stop()


def _record(m: Message) -> Record:
    return Record(m.topic, m.partition, m.offset, m.timestamp, m.key, m.value, tuple(m.headers))


def _age(letter: Letter) -> tuple[float, int, int]:
    return letter.written, letter.partition, letter.offset
