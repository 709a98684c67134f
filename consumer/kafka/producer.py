"""Publishes to Kafka. A record counts as published when all in-sync replicas have acknowledged it."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, ProducerClosed, RecordListTooLargeError

from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.stream.records import Headers
from consumer.upstream_success import record_success

CLOSE_TIMEOUT = 2.0
ABORT_TIMEOUT = 1.0


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
    """A producer that starts on the first publish and is replaced after a failure.

    A failed record may still wait in its producer, which with idempotence never gives up. The producer is therefore
    closed without flushing: what was reported as failed is not sent later.

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
            UpstreamDown: Kafka did not acknowledge it in time. It may have been written, but will not be later.
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
            if producer is not None and producer is self._producer:  # unless another publish has replaced it already
                self._producer = None
                await _abort(producer)
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
                        await _abort(producer)
                        raise
                    self._producer = producer
        return self._producer

    async def close(self) -> None:
        """Stop the producer, within `CLOSE_TIMEOUT` seconds or a little more; the next publish starts a new one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await producer.stop()
            except TimeoutError:
                await _abort(producer)


async def _abort(producer: AIOKafkaProducer) -> None:
    """Close a producer without flushing: `stop` would wait for Kafka to take everything, if need be for ever."""
    producer._closed = True  # noqa: SLF001 - there is no public way
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ABORT_TIMEOUT):
            await producer.client.close()  # first, so that requests in flight fail and the sender can end
            await producer._sender.close()  # noqa: SLF001
    producer._message_accumulator.fail_all(ProducerClosed())  # noqa: SLF001 - publishes that still wait
