"""Publishes to Kafka. A record counts as published when all in-sync replicas have acknowledged it."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.stream.records import Headers
from consumer.upstream_success import record_success


class RecordTooLarge(Exception):
    """The client or the broker refuses a record of this size."""


class Write(Protocol):
    """Writes one record, as `Publisher.publish`. Raises `UpstreamDown`, `RecordTooLarge`."""

    async def __call__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None: ...


class Publisher:
    """A producer that starts on the first publish and is replaced after a fatal error.

    Args:
        make: makes a new, unstarted producer with `acks=all`.
        timeout: seconds until an unacknowledged publish fails.
    """

    def __init__(self, make: Callable[[], AIOKafkaProducer], timeout: float = 10.0) -> None:
        self._make = make
        self._timeout = timeout
        self._producer: AIOKafkaProducer | None = None
        self._lock = asyncio.Lock()

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Write one record and wait for its acknowledgement.

        Args:
            timestamp: milliseconds since the epoch; None: now.

        Raises:
            UpstreamDown: Kafka did not acknowledge it in time; it may have been written nevertheless.
            RecordTooLarge: the record is larger than the topic or the client allows.
        """
        producer = None
        try:
            async with asyncio.timeout(self._timeout):
                producer = await self._started()
                await producer.send_and_wait(
                    topic, value=value, key=key, headers=list(headers), partition=partition, timestamp_ms=timestamp
                )
        except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
            raise RecordTooLarge(f"Kafka topic {topic}: {error}") from error
        except (KafkaError, TimeoutError, OSError) as error:
            if isinstance(error, KafkaError) and not error.retriable and producer is self._producer:
                await self.close()  # unless another publish has replaced it already
            reason = str(error) or type(error).__name__
            message = f"Kafka did not accept a record for topic {topic}: {reason}"
            raise UpstreamDown(message, upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE) from error
        record_success(Upstream.KAFKA)

    async def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            async with self._lock:
                if self._producer is None:
                    producer = self._make()
                    try:
                        await producer.start()
                    except BaseException:
                        await producer.stop()
                        raise
                    self._producer = producer
        return self._producer

    async def close(self) -> None:
        """Stop the producer; the next publish starts a new one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()
