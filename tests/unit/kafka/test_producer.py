"""The publisher when Kafka does not answer, on a scripted producer; on real Kafka it is part of the engine's tests."""

import asyncio
from typing import Any

import pytest
from aiokafka.errors import MessageSizeTooLargeError, NotEnoughReplicasError, ProducerClosed

from consumer.errors import UpstreamDown
from consumer.kafka import producer as module
from consumer.kafka.producer import Publisher, RecordTooLarge


class Producer:
    """Keeps what it is given until `answer` is set; then it is sent, or the error raised. `stop` flushes."""

    def __init__(self) -> None:
        self.answer = asyncio.Event()
        self.error: Exception | None = None
        self.sent: list[bytes] = []
        self.calls: list[str] = []
        self.broken: Exception | None = None
        self.starts_hang = False
        self._closed = False
        self.client = self._sender = self._message_accumulator = self

    async def start(self) -> None:
        if self.starts_hang:
            await asyncio.Event().wait()

    async def send_and_wait(self, _topic: str, *, value: bytes, **_options: Any) -> None:
        await self.answer.wait()
        if error := self.error or self.broken:
            raise error
        self.sent.append(value)

    async def stop(self) -> None:
        self.calls.append("stop")
        await self.answer.wait()

    async def close(self) -> None:
        self.calls.append("close")

    def fail_all(self, error: Exception) -> None:
        self.broken = error
        self.answer.set()


class Factory:
    """Makes scripted producers."""

    def __init__(self) -> None:
        self.made: list[Producer] = []
        self.starts_hang = False

    def __call__(self) -> Any:
        self.made.append(Producer())
        self.made[-1].starts_hang = self.starts_hang
        return self.made[-1]


@pytest.fixture
def factory() -> Factory:
    return Factory()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_TIMEOUT", 0.02)
    monkeypatch.setattr(module, "ABORT_TIMEOUT", 0.02)


async def test_a_publish_that_timed_out_is_not_sent_later(factory: Factory) -> None:
    publisher = Publisher(factory, timeout=0.02)
    with pytest.raises(UpstreamDown):
        await publisher.publish("t", b"k", b"late")
    [producer] = factory.made
    assert producer._closed
    assert producer.calls == ["close", "close"], "its client and its sender are closed, and it is never flushed"
    assert isinstance(producer.broken, ProducerClosed)
    publishing = asyncio.create_task(publisher.publish("t", b"k", b"next"))
    await asyncio.sleep(0.001)
    factory.made[1].answer.set()
    await publishing
    assert (factory.made[0].sent, factory.made[1].sent) == ([], [b"next"])


async def test_other_publishes_of_a_producer_that_timed_out_fail_with_it(factory: Factory) -> None:
    publisher = Publisher(factory, timeout=0.5)
    first = asyncio.create_task(publisher.publish("t", b"k", b"first"))
    await asyncio.sleep(0.2)
    second = asyncio.create_task(publisher.publish("t", b"k", b"second"))
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(result) for result in results] == [UpstreamDown, UpstreamDown]
    assert len(factory.made) == 1
    assert factory.made[0].calls == ["close", "close"], "closed once"


async def test_a_retriable_failure_replaces_the_producer_too(factory: Factory) -> None:
    publisher = Publisher(factory)
    publishing = asyncio.create_task(publisher.publish("t", b"k", b"v"))
    await asyncio.sleep(0)
    factory.made[0].error = NotEnoughReplicasError()
    factory.made[0].answer.set()
    with pytest.raises(UpstreamDown):
        await publishing
    assert factory.made[0]._closed


async def test_a_record_that_is_too_large_leaves_the_producer_alone(factory: Factory) -> None:
    publisher = Publisher(factory)
    publishing = asyncio.create_task(publisher.publish("t", b"k", b"v"))
    await asyncio.sleep(0)
    factory.made[0].error = MessageSizeTooLargeError()
    factory.made[0].answer.set()
    with pytest.raises(RecordTooLarge):
        await publishing
    assert not factory.made[0]._closed


async def test_a_start_that_hangs_is_aborted(factory: Factory) -> None:
    factory.starts_hang = True
    with pytest.raises(UpstreamDown):
        await Publisher(factory, timeout=0.02).publish("t", b"k", b"v")
    assert factory.made[0].calls == ["close", "close"]


async def test_close_ends_although_kafka_takes_nothing(factory: Factory) -> None:
    publisher = Publisher(factory)
    publishing = asyncio.create_task(publisher.publish("t", b"k", b"v"))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await publisher.close()
    assert factory.made[0].calls == ["stop", "close", "close"]
    with pytest.raises(UpstreamDown):
        await publishing


async def test_close_flushes_while_kafka_answers(factory: Factory) -> None:
    publisher = Publisher(factory)
    await publisher.close()
    publishing = asyncio.create_task(publisher.publish("t", b"k", b"v"))
    await asyncio.sleep(0)
    factory.made[0].answer.set()
    await publishing
    await publisher.close()
    assert factory.made[0].calls == ["stop"]
