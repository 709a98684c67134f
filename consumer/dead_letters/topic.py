"""Reads the dead-letter topic: all of it, or the records of chosen dead letters."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition

from consumer.dead_letters.model import DeadLetter, parse_dead_letter, parse_redrive_note
from consumer.kafka.topic_reader import Message, assign_topic, fetch_partitions, read_until
from consumer.stream.records import Record

Progress = Callable[[int, int], None]
"""Takes how many records are done, and of how many."""


@dataclass(frozen=True, slots=True)
class TopicContents:
    """The contents of the dead-letter topic.

    Attributes:
        open: the dead letters that were not sent back, oldest first.
        redriven: number of those that were.
        foreign: number of records that this project did not write.
        sources: existing topics that lanes read, with their numbers of partitions.
    """

    open: list[DeadLetter]
    redriven: int
    foreign: int
    sources: Mapping[str, int]


class DeadLetterTopic:
    """The dead-letter topic.

    Args:
        make: makes a consumer without a group, not started, that returns bytes.
        sources: the topics that lanes read.
    """

    def __init__(self, make: Callable[[], AIOKafkaConsumer], name: str, sources: Collection[str]) -> None:
        self.name = name
        self._make = make
        self._sources = sources

    async def read(self, progress: Progress) -> TopicContents:
        """Read the whole topic.

        Raises:
            UpstreamDown: the topic does not exist.
            KafkaError: Kafka cannot be reached, or sends no more records.
        """
        letters: dict[tuple[int, int], DeadLetter] = {}
        redriven: set[tuple[int, int]] = set()
        done = foreign = 0
        async with self._open_consumer() as consumer:
            ends = await assign_topic(consumer, self.name)
            starts = await consumer.beginning_offsets(list(ends))
            total = sum(ends.values()) - sum(starts.values())
            partitions = await fetch_partitions(consumer, *self._sources)
            sources = {name: len(partitions[name]) for name in self._sources if partitions[name]}
            async for message in read_until(consumer, ends):
                record = _record(message)
                note = parse_redrive_note(record)
                if note is not None:
                    redriven.update(note)
                elif letter := parse_dead_letter(record):
                    letters[letter.position] = letter
                else:
                    foreign += 1
                done += 1
                progress(done, total)
        still_open = sorted((letter for letter in letters.values() if letter.position not in redriven), key=_age)
        return TopicContents(still_open, len(letters) - len(still_open), foreign, sources)

    async def fetch(self, letters: Collection[DeadLetter]) -> AsyncIterator[tuple[DeadLetter, Record]]:
        """Yield the records of these dead letters, in the order of each partition; those that retention kept.

        Raises:
            UpstreamDown, KafkaError: as `read`.
        """
        by_position = {letter.position: letter for letter in letters}
        async with self._open_consumer() as consumer:
            for number in sorted({letter.partition for letter in letters}):
                offsets = [letter.offset for letter in letters if letter.partition == number]
                partition = TopicPartition(self.name, number)
                consumer.assign([partition])
                consumer.seek(partition, min(offsets))
                async for message in read_until(consumer, {partition: max(offsets) + 1}):
                    if letter := by_position.get((message.partition, message.offset)):
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


def _age(letter: DeadLetter) -> tuple[float, int, int]:
    return letter.written, letter.partition, letter.offset
