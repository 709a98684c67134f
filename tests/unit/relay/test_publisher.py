"""Publishing events: once, in order, acknowledged, whatever their size."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.kafka.producer import RecordTooLarge
from consumer.paperclip.models import Json
from consumer.relay.event_builder import LONGEST_TEXT, OutgoingEvent, event_id
from consumer.relay.hooks import Notice, Published, RelayEvent
from consumer.relay.publisher import OLDEST_TIMESTAMP, EventPublisher
from consumer.stream.records import Headers
from schemas.codec import decode
from schemas.timestamps import format_timestamp, parse_timestamp
from tests.support.fake_feed import NOON, new_id


class FakeTopic:
    """Takes records a turn of the loop later; refuses some events, and records over its limit."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes | None, Json, Headers, int | None]] = []
        self.refused: set[str] = set()
        self.limit = 10_000
        self.concurrent = self.most_concurrent = 0

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        assert value is not None
        self.concurrent += 1
        self.most_concurrent = max(self.most_concurrent, self.concurrent)
        await asyncio.sleep(0)
        self.concurrent -= 1
        if len(value) > self.limit:
            raise RecordTooLarge("too large")
        event = decode(value)
        if event["eventId"] in self.refused:
            raise UpstreamDown("gone", upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE)
        self.records.append((topic, key, event, headers, timestamp))


def event(
    type_: str, key: str, at: float = NOON, payload: Mapping[str, object] = MappingProxyType({}), **more: Any
) -> OutgoingEvent:
    name = "runId" if type_.startswith("agent.run.") else "commentId"
    envelope = {
        "eventId": event_id(type_, key),
        "eventType": type_,
        "occurredAt": format_timestamp(at),
        "payload": {name: key, **payload},
    }
    return OutgoingEvent(envelope, **more)


@pytest.fixture
def topic() -> FakeTopic:
    return FakeTopic()


@pytest.fixture
def reported() -> list[RelayEvent]:
    return []


@pytest.fixture
def publisher(topic: FakeTopic, reported: list[RelayEvent]) -> EventPublisher:
    return EventPublisher(topic.publish, reported.append, runs="runs", comments="comments", now=lambda: NOON)


async def test_event_is_written_once_to_its_topic_under_its_key(
    publisher: EventPublisher, topic: FakeTopic, reported: list[RelayEvent]
) -> None:
    run, comment = event("agent.run.started", new_id()), event("issue.comment.created", new_id())
    assert await publisher.publish([run, comment]) == 2
    assert await publisher.publish([run, comment]) == 0
    assert {(name, key) for name, key, *_ in topic.records} == {
        ("runs", run.key.encode()),
        ("comments", comment.key.encode()),
    }
    assert len(topic.records) == 2
    assert sorted(event.topic for event in reported if isinstance(event, Published)) == ["comments", "runs"]


async def test_events_of_one_comment_are_written_in_order_while_others_go_on(
    publisher: EventPublisher, topic: FakeTopic
) -> None:
    first, second = new_id(), new_id()
    kinds = ("issue.comment.created", "issue.comment.deleted")
    await publisher.publish([event(kind, key) for kind in kinds for key in (first, second)])
    for key in (first, second):
        types = [value["eventType"] for _, record_key, value, *_ in topic.records if record_key == key.encode()]
        assert types == list(kinds)
    assert topic.most_concurrent == 2


async def test_only_the_event_that_kafka_refused_is_published_again(
    publisher: EventPublisher, topic: FakeTopic
) -> None:
    taken, refused = event("issue.comment.created", new_id()), event("issue.comment.created", new_id())
    topic.refused = {refused.id}
    with pytest.raises(UpstreamDown):
        await publisher.publish([refused, taken])
    assert (publisher.was_published(taken.id), publisher.was_published(refused.id)) == (True, False)
    topic.refused = set()
    assert await publisher.publish([refused, taken]) == 1
    assert [value["eventId"] for _, _, value, *_ in topic.records] == [taken.id, refused.id]


async def test_deletion_is_not_written_before_its_refused_creation(publisher: EventPublisher, topic: FakeTopic) -> None:
    key = new_id()
    created, deleted = event("issue.comment.created", key), event("issue.comment.deleted", key)
    topic.refused = {created.id}
    with pytest.raises(UpstreamDown):
        await publisher.publish([created, deleted])
    assert topic.records == []


async def test_embedded_object_that_does_not_fit_is_left_out(publisher: EventPublisher, topic: FakeTopic) -> None:
    large = event("issue.comment.created", new_id(), embedded={"comment": {"body": "x" * 20_000}})
    await publisher.publish([large])
    ((_, _, sent, *_),) = topic.records
    assert sent["payload"] == {"commentId": large.key}


async def test_long_texts_of_an_event_that_does_not_fit_are_cut_and_named(
    publisher: EventPublisher, topic: FakeTopic
) -> None:
    """A title of 200,000 characters must not end the relay of all companies."""
    large = event(
        "issue.comment.created", new_id(), payload={"issueTitle": "\N{CRAB}" * 200_000, "identifier": "ACM-1"}
    )
    topic.limit = 50_000
    await publisher.publish([large])
    ((_, _, value, *_),) = topic.records
    assert value["payload"] == {
        "commentId": large.key,
        "issueTitle": "\N{CRAB}" * LONGEST_TEXT,
        "identifier": "ACM-1",
        "truncatedFields": ["issueTitle"],
    }


async def test_event_that_does_not_fit_at_all_is_dropped_with_a_notice_and_others_go_on(
    publisher: EventPublisher, topic: FakeTopic, reported: list[RelayEvent]
) -> None:
    large = event("issue.comment.created", new_id(), payload={"changes": ["x"] * 20_000})
    other = event("issue.comment.created", new_id())
    await publisher.publish([large, other])
    assert [value["eventId"] for _, _, value, *_ in topic.records] == [other.id]
    assert [notice.message for notice in reported if isinstance(notice, Notice)] == [
        "dropping an event that is too large for its topic"
    ]
    assert publisher.was_published(large.id)  # or each poll would try it again


async def test_replay_and_repair_are_headers(publisher: EventPublisher, topic: FakeTopic) -> None:
    await publisher.publish([event("issue.comment.created", new_id(), replay=True, repair="audit 1")])
    await publisher.publish([event("issue.comment.created", new_id())])
    assert [dict(headers) for *_, headers, _ in topic.records] == [{"replay": b"1", "repair": b"audit 1"}, {}]


@pytest.mark.parametrize(("age", "expected_age"), [(0, 0), (90, 90), (86_400, OLDEST_TIMESTAMP), (-30, 0)])
async def test_timestamp_of_a_run_is_its_time_but_at_most_an_hour_old(
    publisher: EventPublisher, topic: FakeTopic, age: float, expected_age: float
) -> None:
    """Or workers would recall for runs that are long over; and retention would remove what is older than itself."""
    await publisher.publish([event("agent.run.started", new_id(), NOON - age)])
    assert topic.records[0][4] == int(1000 * (NOON - expected_age))


async def test_comment_has_no_timestamp_of_its_own(publisher: EventPublisher, topic: FakeTopic) -> None:
    await publisher.publish([event("issue.comment.created", new_id(), parse_timestamp("2020-01-01T00:00:00Z"))])
    assert topic.records[0][4] is None


@pytest.mark.parametrize("skew", [90.0, -90.0])
async def test_timestamp_of_a_run_is_by_our_clock_when_paperclips_differs(
    topic: FakeTopic, reported: list[RelayEvent], skew: float
) -> None:
    """Else every recall would be too late, or a run could look younger than it is."""
    publisher = EventPublisher(
        topic.publish, reported.append, runs="runs", comments="comments", now=lambda: NOON, skew=lambda: skew
    )
    started = NOON - 10.0
    await publisher.publish([event("agent.run.started", new_id(), started - skew)])
    assert topic.records[0][-1] == int(started * 1000)
    assert Notice("Paperclip's clock differs from ours", {"seconds_behind": skew}) in reported
