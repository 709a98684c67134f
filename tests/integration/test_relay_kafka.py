"""The relay's checkpoints and records on a broker."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from consumer.errors import UpstreamDown
from consumer.kafka.options import groupless_consumer, producer
from consumer.kafka.producer import Publisher
from consumer.relay.checkpoints import BackfillPosition, Checkpoint, Checkpoints, CommentPosition, RunPosition
from consumer.relay.event_builder import OutgoingEvent, event_id
from consumer.relay.publisher import EventPublisher
from consumer.settings.model import Settings
from consumer.settings.validation import load_settings
from schemas.codec import decode
from schemas.timestamps import parse_timestamp
from tests.support.kafka import Broker
from tests.support.topics import Topics, read_all

COMPANY, OTHER = "f7b2ffb0-dc3a-437e-9f75-94ccd64bb80d", "05b77a2b-f08a-4c76-9572-f06391060b54"
RUN, COMMENT = "f287efe6-ea0c-4d1b-a555-2124ecfd6e38", "eaeadea7-4ac3-45e4-a173-53a04acf0674"


@pytest.fixture
def settings(broker: Broker) -> Settings:
    return load_settings(
        hindsight_api_url="http://127.0.0.1:1",
        kafka_bootstrap_servers=broker.bootstrap_servers,
        kafka_enable_idempotence=broker.idempotence,
    )


@pytest.fixture
async def publisher(settings: Settings) -> AsyncIterator[Publisher]:
    publisher = Publisher(partial(producer, settings))
    yield publisher
    await publisher.close()


async def test_checkpoints_read_are_those_written_last(
    settings: Settings, publisher: Publisher, topics: Topics
) -> None:
    topic = await topics.create("checkpoints", partitions=4, config={"cleanup.policy": "compact"})

    def opened() -> Checkpoints:
        return Checkpoints(publisher, partial(groupless_consumer, settings), topic)

    first = opened()
    await first.read()
    assert (first.start, first.get(COMPANY)) == (None, None)
    await first.write_start(17.5)
    old = Checkpoint.fresh(COMPANY, 17.5)
    new = old.model_copy(
        update={"comments": CommentPosition(activity=20.25, issues=21), "runs": RunPosition(created=22, open=(RUN,))}
    )
    for checkpoint in (old, new, Checkpoint.fresh(OTHER, 17.5)):
        await first.write(checkpoint)
    position = BackfillPosition(since=5, reached=5.5, skipped=(RUN,))
    await first.write_backfill_position("one", position)
    await first.write_backfill_position("two", position)
    await first.write_backfill_position("two", None)

    second = opened()
    await second.read()
    assert second.start == 17.5
    assert (second.get(COMPANY), second.get(OTHER)) == (new, Checkpoint.fresh(OTHER, 17.5))
    assert (second.backfill_position("one"), second.backfill_position("two")) == (position, None)


async def test_checkpoint_that_cannot_be_parsed_is_none(
    settings: Settings, publisher: Publisher, topics: Topics
) -> None:
    topic = await topics.create("checkpoints")
    await publisher.publish(topic, COMPANY.encode(), b"{broken")
    await publisher.publish(topic, OTHER.encode(), b'{"companyId":"no uuid"}')
    await publisher.publish(topic, None, b"{}")
    checkpoints = Checkpoints(publisher, partial(groupless_consumer, settings), topic)
    await checkpoints.read()
    assert (checkpoints.get(COMPANY), checkpoints.get(OTHER)) == (None, None)


async def test_missing_checkpoints_topic_is_upstream_down_and_names_the_command(
    settings: Settings, publisher: Publisher, topics: Topics
) -> None:
    with pytest.raises(UpstreamDown, match="paperclip-memory topics"):
        await Checkpoints(publisher, partial(groupless_consumer, settings), topics.name("nowhere")).read()


async def test_run_keeps_its_time_and_a_large_comment_loses_its_embedded_object(
    settings: Settings, publisher: Publisher, topics: Topics
) -> None:
    """A run has the time of its event; a comment too large for the topic is published without its embedded object."""
    runs = await topics.create("runs")
    comments = await topics.create("comments", config={"max.message.bytes": "20000"})
    at = "2026-11-30T12:00:00.000Z"
    events = EventPublisher(
        publisher.publish, lambda _: None, runs=runs, comments=comments, now=lambda: parse_timestamp(at) + 90
    )
    about = {"occurredAt": at, "companyId": COMPANY}
    run = about | {"eventId": event_id("agent.run.started", RUN), "eventType": "agent.run.started"}
    comment = about | {"eventId": event_id("issue.comment.created", COMMENT), "eventType": "issue.comment.created"}
    await events.publish(
        [
            OutgoingEvent(run | {"payload": {"runId": RUN}}),
            OutgoingEvent(
                comment | {"payload": {"commentId": COMMENT}},
                {"comment": {"body": "x" * 50_000}},
                replay=True,
                repair="a",
            ),
        ]
    )
    found: dict[str, Any] = {name: (await read_all(settings, name))[0] for name in (runs, comments)}
    assert found[runs].timestamp == int(parse_timestamp(at) * 1000)
    assert (found[runs].key, found[runs].headers) == (RUN.encode(), ())
    assert decode(found[comments].value)["payload"] == {"commentId": COMMENT}
    assert dict(found[comments].headers) == {"replay": b"1", "repair": b"a"}
