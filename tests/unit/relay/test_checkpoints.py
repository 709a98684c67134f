"""Checkpoints on a topic that is a list."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from consumer.errors import UpstreamDown
from consumer.relay import checkpoints as module
from consumer.relay.checkpoints import BackfillPosition, Checkpoint, Checkpoints, CommentPosition
from tests.support.fake_feed import COMPANY, NOON, new_id


class FakeTopic:
    """In place of a producer, and of the consumer that reads its records."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes | None, bytes | None]] = []
        self.failure: Exception | None = None
        self.stopped = 0

    async def publish(self, _topic: str, key: bytes | None, value: bytes | None) -> None:
        self.records.append((key, value))

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self.stopped += 1

    async def read(self, _consumer: object, _topic: str) -> AsyncIterator[SimpleNamespace]:
        if self.failure is not None:
            raise self.failure
        for key, value in self.records:
            yield SimpleNamespace(key=key, value=value)

    async def opened(self) -> Checkpoints:
        """The checkpoints as another process reads them."""
        topic: Any = self
        checkpoints = Checkpoints(topic, lambda: topic, "checkpoints")
        await checkpoints.read()
        return checkpoints


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    topic = FakeTopic()
    monkeypatch.setattr(module, "read_topic", topic.read)
    return topic


async def test_empty_topic_has_no_start_and_no_checkpoint(topic: FakeTopic) -> None:
    checkpoints = await topic.opened()
    assert (checkpoints.start, checkpoints.get(COMPANY), checkpoints.backfill_position("all")) == (None, None, None)
    assert topic.stopped == 1


async def test_last_record_of_each_key_counts(topic: FakeTopic) -> None:
    checkpoints, other = await topic.opened(), new_id()
    old = Checkpoint.fresh(COMPANY, NOON)
    new = old.model_copy(update={"comments": CommentPosition(activity=NOON + 1, issues=NOON)})
    await checkpoints.write_start(NOON)
    for checkpoint in (old, new, Checkpoint.fresh(other, NOON)):
        await checkpoints.write(checkpoint)
    assert (checkpoints.start, checkpoints.get(COMPANY)) == (NOON, new)
    again = await topic.opened()
    assert (again.start, again.get(COMPANY), again.get(other)) == (NOON, new, Checkpoint.fresh(other, NOON))


async def test_unchanged_checkpoint_is_not_written_again(topic: FakeTopic) -> None:
    checkpoints = await topic.opened()
    for _ in range(2):
        await checkpoints.write(Checkpoint.fresh(COMPANY, NOON))
    assert len(topic.records) == 1


async def test_backfill_position_is_kept_by_name_until_it_is_removed(topic: FakeTopic) -> None:
    position = BackfillPosition(since=NOON, reached=NOON + 5, skipped=(new_id(),))
    checkpoints = await topic.opened()
    await checkpoints.write_backfill_position("one", position)
    await checkpoints.write_backfill_position("two", position)
    await checkpoints.write_backfill_position("two", None)
    again = await topic.opened()
    assert (again.backfill_position("one"), again.backfill_position("two")) == (position, None)
    assert again.start is None
    assert again.get("one") is None


@pytest.mark.parametrize("value", [b"{broken", b'{"companyId":"no uuid"}', b"{}", b"[]", None])
async def test_record_that_cannot_be_parsed_counts_as_none(topic: FakeTopic, value: bytes | None) -> None:
    await (await topic.opened()).write(Checkpoint.fresh(COMPANY, NOON))
    topic.records += [(COMPANY.encode(), value), (None, value)]
    assert (await topic.opened()).get(COMPANY) is None


@pytest.mark.parametrize("failure", [KafkaError("gone"), OSError("no route")])
async def test_topic_that_cannot_be_read_is_upstream_down_and_the_consumer_stopped(
    topic: FakeTopic, failure: Exception
) -> None:
    topic.failure = failure
    with pytest.raises(UpstreamDown, match="Kafka topic checkpoints cannot be read"):
        await topic.opened()
    assert topic.stopped == 1
