"""The way to Kafka: once, in order, acknowledged, however large."""

import asyncio
from typing import Any

import pytest

from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.kafka.producer import Headers, RecordTooLarge
from consumer.relay.event_builder import Announcement, Json, event_id
from consumer.relay.publisher import OLDEST_STAMP, Outbox
from consumer.relay.signals import Published, RelaySignal
from consumer.relay.times import instant, iso
from schemas.codec import decode
from tests.unit.relay.paper import NOON, new_id


class Topic:
    """Takes records, after some turns of the loop, or refuses them."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes | None, Json, Headers, int | None]] = []
        self.refuse: set[str] = set()
        self.limit = 10_000
        self.at_once = self.most_at_once = 0

    async def publish(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = (), *, timestamp: int | None = None
    ) -> None:
        assert value is not None
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if len(value) > self.limit:
            raise RecordTooLarge("too large")
        event = decode(value)
        if event["eventId"] in self.refuse:
            raise UpstreamDown("gone", upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE)
        self.records.append((topic, key, event, headers, timestamp))


def event(type_: str, subject: str, at: float = NOON, **more: Any) -> Announcement:
    name = "runId" if type_.startswith("agent.run.") else "commentId"
    envelope = {
        "eventId": event_id(type_, subject),
        "eventType": type_,
        "occurredAt": iso(at),
        "payload": {name: subject},
    }
    return Announcement(envelope, **more)


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def heard() -> list[RelaySignal]:
    return []


@pytest.fixture
def outbox(topic: Topic, heard: list[RelaySignal]) -> Outbox:
    return Outbox(topic.publish, heard.append, runs="runs", comments="comments", now=lambda: NOON)


async def test_each_event_goes_to_its_topic_under_its_key_once(
    outbox: Outbox, topic: Topic, heard: list[RelaySignal]
) -> None:
    run, comment = event("agent.run.started", new_id()), event("issue.comment.created", new_id())
    assert await outbox.send([run, comment]) == 2
    assert await outbox.send([run, comment]) == 0
    assert {(name, key) for name, key, *_ in topic.records} == {
        ("runs", run.subject.encode()),
        ("comments", comment.subject.encode()),
    }
    assert len(topic.records) == 2
    assert sorted(each.topic for each in heard if isinstance(each, Published)) == ["comments", "runs"]


async def test_events_of_one_comment_keep_their_order_and_others_do_not_wait(outbox: Outbox, topic: Topic) -> None:
    first, second = new_id(), new_id()
    kinds = ("issue.comment.created", "issue.comment.deleted")
    await outbox.send([event(kind, subject) for kind in kinds for subject in (first, second)])
    for subject in (first, second):
        assert [each["eventType"] for _, key, each, *_ in topic.records if key == subject.encode()] == list(kinds)
    assert topic.most_at_once == 2


async def test_what_kafka_did_not_take_is_sent_again_and_the_rest_is_not(outbox: Outbox, topic: Topic) -> None:
    taken, refused = event("issue.comment.created", new_id()), event("issue.comment.created", new_id())
    topic.refuse = {refused.id}
    with pytest.raises(UpstreamDown):
        await outbox.send([refused, taken])
    assert (outbox.knows(taken.id), outbox.knows(refused.id)) == (True, False)
    topic.refuse = set()
    assert await outbox.send([refused, taken]) == 1
    assert [each["eventId"] for _, _, each, *_ in topic.records] == [taken.id, refused.id]


async def test_a_deletion_waits_for_a_creation_that_kafka_did_not_take(outbox: Outbox, topic: Topic) -> None:
    subject = new_id()
    created, deleted = event("issue.comment.created", subject), event("issue.comment.deleted", subject)
    topic.refuse = {created.id}
    with pytest.raises(UpstreamDown):
        await outbox.send([created, deleted])
    assert topic.records == []


async def test_copies_that_do_not_fit_are_left_out(outbox: Outbox, topic: Topic) -> None:
    large = event("issue.comment.created", new_id(), copies={"comment": {"body": "x" * 20_000}})
    await outbox.send([large])
    ((_, _, sent, *_),) = topic.records
    assert sent["payload"] == {"commentId": large.subject}


async def test_headers_say_what_is_no_fresh_event(outbox: Outbox, topic: Topic) -> None:
    await outbox.send([event("issue.comment.created", new_id(), replay=True, repair="audit 1")])
    await outbox.send([event("issue.comment.created", new_id())])
    assert [dict(headers) for *_, headers, _ in topic.records] == [{"replay": b"1", "repair": b"audit 1"}, {}]


@pytest.mark.parametrize(("age", "stamped"), [(0, 0), (90, 90), (86_400, OLDEST_STAMP), (-30, 0)])
async def test_a_run_has_the_time_of_its_event_within_bounds(
    outbox: Outbox, topic: Topic, age: float, stamped: float
) -> None:
    """Or a worker would recall for runs that are long over; and retention would take what is older than itself."""
    await outbox.send([event("agent.run.started", new_id(), NOON - age)])
    assert topic.records[0][4] == int(1000 * (NOON - stamped))


async def test_a_comment_has_the_time_of_its_publishing(outbox: Outbox, topic: Topic) -> None:
    await outbox.send([event("issue.comment.created", new_id(), instant("2020-01-01T00:00:00Z"))])
    assert topic.records[0][4] is None
