"""Sending dead letters back to where their records came from, once each.

A letter is noted as sent after Kafka has acknowledged its record, so a run that is cut short between the two sends a
few of them again next time: handlers make no second effect of that.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from consumer.dead_letters.model import Letter, obstacle, revived_headers, write_note
from consumer.dead_letters.topic import LetterTopic, Progress
from consumer.kafka.producer import RecordTooLarge, Write

NOTED_AT_ONCE = 100


@dataclass(slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        sent: the letters that went back.
        refused: those that cannot, and why.
        gone: how many of those chosen retention has removed since.
        failed: why the run ended before its time; "" if it did not.
    """

    sent: list[Letter] = field(default_factory=list)
    refused: list[tuple[Letter, str]] = field(default_factory=list)
    gone: int = 0
    failed: str = ""


def plan(letters: Sequence[Letter], sources: Mapping[str, int], limit: int | None) -> tuple[list[Letter], Outcome]:
    """Which of these letters to send, the oldest first; and an outcome that names the others that cannot be sent.

    Args:
        sources: the topics that lanes read, with the number of their partitions.
    """
    chosen, outcome = [], Outcome()
    for letter in letters:
        why = obstacle(letter, sources)
        if why is None:
            chosen.append(letter)
        else:
            outcome.refused.append((letter, why))
    return chosen[:limit], outcome


async def redrive(
    letters: Sequence[Letter],
    topic: LetterTopic,
    sources: Mapping[str, int],
    publish: Write,
    outcome: Outcome,
    progress: Progress,
    *,
    force: bool,
) -> None:
    """Send these letters back, and note it; `outcome` tells what came of it.

    Args:
        force: give each a new `repair`, so that Hindsight works a comment again that it knows already.

    Raises:
        UpstreamDown: Kafka took no more; `outcome` tells what was sent until then.
        KafkaError: as `LetterTopic.survey`.
    """
    new_repair = (lambda: str(uuid.uuid4())) if force else None
    unnoted: list[Letter] = []
    found = 0

    async def note() -> None:
        if unnoted:
            value, headers = write_note(letter.offset for letter in unnoted)
            await publish(topic.name, None, value, headers, partition=unnoted[0].partition)
            unnoted.clear()

    try:
        async for letter, record in topic.fetch(letters):
            found += 1
            if len(unnoted) >= NOTED_AT_ONCE or (unnoted and unnoted[0].partition != letter.partition):
                await note()
            headers = revived_headers(record, letter.redrives, new_repair)
            try:
                await publish(letter.topic, record.key, record.value, headers, _partition(letter, sources))
            except RecordTooLarge as error:
                outcome.refused.append((letter, f"with its headers it is too large now: {error}"))
                continue
            unnoted.append(letter)
            outcome.sent.append(letter)
            progress(len(outcome.sent), len(letters))
        outcome.gone = len(letters) - found
    finally:
        await note()


def _partition(letter: Letter, sources: Mapping[str, int]) -> int | None:
    """Where the others of its key stand, however their producer chose; by the key if there is no such partition."""
    return letter.topic_partition if letter.topic_partition < sources[letter.topic] else None
