"""Keeps the relay's position in each company on a compacted Kafka topic: the last record of a key wins."""

from collections.abc import Callable

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from pydantic import ValidationError

from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.kafka.producer import Publisher
from consumer.kafka.topic_reader import read_topic
from schemas.codec import decode, encode
from schemas.paperclip import CamelModel, Uuid

BEGINNING = "beginning"
"""The key of the record with the time from which the relay started to follow."""
BACKFILL = "backfill:"
"""The prefix of the keys of backfill positions."""


class CommentPosition(CamelModel):
    """The position in the audit feed (`activity`) and in the changes of issues, seconds since the epoch."""

    activity: float
    issues: float


class RunPosition(CamelModel):
    """The latest creation of a run, seconds since the epoch, and the runs that had not ended then."""

    created: float
    open: tuple[Uuid, ...] = ()


class Checkpoint(CamelModel):
    """The relay's position in a company. All times are by Paperclip's clock.

    Attributes:
        start: seconds since the epoch; older events are not published.
    """

    company_id: Uuid
    start: float
    comments: CommentPosition
    runs: RunPosition

    @classmethod
    def fresh(cls, company: str, start: float) -> "Checkpoint":
        """The checkpoint of a company of which nothing has been read."""
        comments = CommentPosition(activity=start, issues=start)
        return cls(company_id=company, start=start, comments=comments, runs=RunPosition(created=start))


class BackfillPosition(CamelModel):
    """How far an unfinished backfill has come.

    Attributes:
        since: older comments are not part of it, seconds since the epoch.
        reached: comments made before are published, seconds since the epoch.
        skipped: issues that could not be read; their comments are not published, whenever they were made.
    """

    since: float
    reached: float
    skipped: tuple[Uuid, ...] = ()


class Checkpoints:
    """The checkpoints topic: what was read from it, and what was written since.

    Attributes:
        start: where the relay started when it was first started, seconds since the epoch; None if it never was.
    """

    def __init__(self, publisher: Publisher, make: Callable[[], AIOKafkaConsumer], topic: str) -> None:
        self._publisher = publisher
        self._make = make
        self._topic = topic
        self._companies: dict[str, Checkpoint] = {}
        self._backfills: dict[str, BackfillPosition] = {}
        self.start: float | None = None

    def get(self, company: str) -> Checkpoint | None:
        """A company's checkpoint; None if it has none."""
        return self._companies.get(company)

    async def read(self) -> None:
        """Read the topic to its end.

        Raises:
            UpstreamDown: it cannot be read.
        """
        consumer = self._make()
        try:
            await consumer.start()
            async for message in read_topic(consumer, self._topic):
                self._apply(message.key, message.value)
        except (KafkaError, OSError) as error:
            why = f"Kafka topic {self._topic} cannot be read: {str(error) or type(error).__name__}"
            raise UpstreamDown(why, upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE) from error
        finally:
            await consumer.stop()

    async def write_start(self, start: float) -> None:
        """Write where the relay starts. Raises `UpstreamDown`."""
        await self._publisher.publish(self._topic, BEGINNING.encode(), encode({"start": start}))
        self.start = start

    async def write(self, checkpoint: Checkpoint) -> None:
        """Write a company's checkpoint if it has changed. Raises `UpstreamDown`."""
        company = checkpoint.company_id
        if self._companies.get(company) != checkpoint:
            value = encode(checkpoint.model_dump(by_alias=True))
            await self._publisher.publish(self._topic, company.encode(), value)
            self._companies[company] = checkpoint

    def backfill_position(self, name: str) -> BackfillPosition | None:
        """The position of an unfinished backfill; None if there is none of this name."""
        return self._backfills.get(name)

    async def write_backfill_position(self, name: str, position: BackfillPosition | None) -> None:
        """Write a backfill's position; None: it is finished, and its record is removed. Raises `UpstreamDown`."""
        value = None if position is None else encode(position.model_dump(by_alias=True))
        await self._publisher.publish(self._topic, f"{BACKFILL}{name}".encode(), value)

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record; one that cannot be parsed is ignored, and its company is read from the start again."""
        name = (key or b"").decode("utf-8", "replace")
        try:
            record = decode(value)
            if name == BEGINNING:
                self.start = float(record["start"])
            elif name.startswith(BACKFILL):
                self._backfills[name.removeprefix(BACKFILL)] = BackfillPosition.model_validate(record)
            else:
                self._companies[name] = Checkpoint.model_validate(record)
        except (ValueError, LookupError, TypeError, ValidationError):
            self._companies.pop(name, None)
            self._backfills.pop(name.removeprefix(BACKFILL), None)
