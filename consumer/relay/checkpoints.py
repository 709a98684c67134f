"""How far the relay has read, by company, on a compacted topic: the last record of a key wins."""

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
"""The key of the record that says when the relay was first started."""
BACKFILL = "backfill:"
"""How the key begins of a record that says how far a backfill came."""


class CommentPosition(CamelModel):
    """How far comments were read: the audit feed (`activity`), and the changes of issues. Seconds since the epoch."""

    activity: float
    issues: float


class RunPosition(CamelModel):
    """How far runs were read: the latest creation, seconds since the epoch, and the runs that had not ended then."""

    created: float
    open: tuple[Uuid, ...] = ()


class Checkpoint(CamelModel):
    """A company's. All times are by Paperclip's clock.

    Attributes:
        start: nothing that happened before is published, seconds since the epoch.
    """

    company_id: Uuid
    start: float
    comments: CommentPosition
    runs: RunPosition

    @classmethod
    def fresh(cls, company: str, start: float) -> "Checkpoint":
        """That of a company of which nothing has been read."""
        comments = CommentPosition(activity=start, issues=start)
        return cls(company_id=company, start=start, comments=comments, runs=RunPosition(created=start))


class Checkpoints:
    """The topic: what it held when it was read, and what was written since. `start`: the relay's first one."""

    def __init__(self, publisher: Publisher, make: Callable[[], AIOKafkaConsumer], topic: str) -> None:
        self._publisher = publisher
        self._make = make
        self._topic = topic
        self._held: dict[str, Checkpoint] = {}
        self._backfills: dict[str, float] = {}
        self.start: float | None = None

    def of(self, company: str) -> Checkpoint | None:
        """A company's checkpoint; None if it has none."""
        return self._held.get(company)

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

    async def begin(self, start: float) -> None:
        """Write when the relay was first started. Raises `UpstreamDown`."""
        await self._publisher.publish(self._topic, BEGINNING.encode(), encode({"start": start}))
        self.start = start

    async def write(self, checkpoint: Checkpoint) -> None:
        """Write a company's checkpoint, unless that is what stands there. Raises `UpstreamDown`."""
        company = checkpoint.company_id
        if self._held.get(company) != checkpoint:
            value = encode(checkpoint.model_dump(by_alias=True))
            await self._publisher.publish(self._topic, company.encode(), value)
            self._held[company] = checkpoint

    def backfilled(self, name: str) -> float | None:
        """Up to where an unfinished backfill of this name came, seconds since the epoch; None if there is none."""
        return self._backfills.get(name)

    async def write_backfill(self, name: str, reached: float | None) -> None:
        """Note how far a backfill came; None: it is finished. Raises `UpstreamDown`."""
        value = None if reached is None else encode({"reached": reached})
        await self._publisher.publish(self._topic, f"{BACKFILL}{name}".encode(), value)

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record; one that cannot be read is passed over, and its company is read from the start again."""
        name = (key or b"").decode("utf-8", "replace")
        try:
            found = decode(value)
            if name == BEGINNING:
                self.start = float(found["start"])
            elif name.startswith(BACKFILL):
                self._backfills[name.removeprefix(BACKFILL)] = float(found["reached"])
            else:
                self._held[name] = Checkpoint.model_validate(found)
        except (ValueError, LookupError, TypeError, ValidationError):
            self._held.pop(name, None)
            self._backfills.pop(name.removeprefix(BACKFILL), None)
