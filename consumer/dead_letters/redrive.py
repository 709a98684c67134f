"""Sends dead letters back to the topics that their records came from, once each.

A dead letter is noted as sent after Kafka has acknowledged its record. A redrive that is interrupted in between sends a
few of them again next time, which is harmless: handlers are idempotent.
"""

import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from consumer.dead_letters.model import DeadLetter, build_redrive_note, redrive_blocker, redrive_headers
from consumer.dead_letters.topic import Progress
from consumer.kafka.producer import RecordTooLarge, Write
from consumer.stream.records import Record

NOTE_SIZE = 100
"""Dead letters of one redrive note at most."""


class DeadLetterSource(Protocol):
    """The part of `DeadLetterTopic` that a redrive reads."""

    name: str

    def fetch(self, letters: Collection[DeadLetter]) -> AsyncIterator[tuple[DeadLetter, Record]]: ...


@dataclass(slots=True)
class RedriveResult:
    """The result of a redrive.

    Attributes:
        sent: the dead letters that were sent back.
        refused: those that cannot be sent back, and why.
        gone: number of chosen ones that retention has removed since.
        failed: why the redrive ended early; "" if it did not.
    """

    sent: list[DeadLetter] = field(default_factory=list)
    refused: list[tuple[DeadLetter, str]] = field(default_factory=list)
    gone: int = 0
    failed: str = ""


def plan_redrive(
    letters: Sequence[DeadLetter], sources: Mapping[str, int], limit: int | None
) -> tuple[list[DeadLetter], RedriveResult]:
    """The dead letters to send, the oldest first, and a result with those that cannot be sent.

    Args:
        sources: the topics that lanes read, with their numbers of partitions.
    """
    chosen, result = [], RedriveResult()
    for letter in letters:
        blocker = redrive_blocker(letter, sources)
        if blocker is None:
            chosen.append(letter)
        else:
            result.refused.append((letter, blocker))
    return chosen[:limit], result


async def redrive(
    letters: Sequence[DeadLetter],
    topic: DeadLetterSource,
    sources: Mapping[str, int],
    write: Write,
    result: RedriveResult,
    progress: Progress,
    *,
    force: bool,
) -> None:
    """Send dead letters back and note it. `result` is kept up to date.

    Args:
        force: give each a new `repair`, so that Hindsight processes a comment again that it already ingested.

    Raises:
        UpstreamDown: Kafka took no more; `result` has what was sent until then.
        KafkaError: as `DeadLetterTopic.read`.
    """
    new_repair = (lambda: str(uuid.uuid4())) if force else None
    unnoted: list[DeadLetter] = []
    fetched = 0

    async def note() -> None:
        if unnoted:
            value, headers = build_redrive_note(letter.offset for letter in unnoted)
            await write(topic.name, None, value, headers, partition=unnoted[0].partition)
            unnoted.clear()

    try:
        async for letter, record in topic.fetch(letters):
            fetched += 1
            if len(unnoted) >= NOTE_SIZE or (unnoted and unnoted[0].partition != letter.partition):
                await note()
            headers = redrive_headers(record, letter.redrives, new_repair)
            try:
                await write(letter.topic, record.key, record.value, headers, partition=_partition(letter, sources))
            except RecordTooLarge as error:
                result.refused.append((letter, f"too large with its redrive headers: {error}"))
                continue
            unnoted.append(letter)
            result.sent.append(letter)
            progress(len(result.sent), len(letters))
        result.gone = len(letters) - fetched
    finally:
        await note()


def _partition(letter: DeadLetter, sources: Mapping[str, int]) -> int | None:
    """The partition of the other records of its key; None (chosen by the key) if it no longer exists."""
    return letter.topic_partition if letter.topic_partition < sources[letter.topic] else None
