"""What aiokafka 0.14 does with assignments, commits and its end: first the trap itself, then the lane in it."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaConnectionError,
)

from consumer.stream.backpressure import BackpressureLimits
from consumer.stream.hooks import CommitFinished, CommitResult, PollFailed, Rebalanced, RebalanceKind
from consumer.stream.records import Partition
from consumer.stream.source import Assignments, KafkaSource, SourceClosed
from tests.integration.lane_harness import (
    Listener,
    caught_up,
    committed,
    coordinator,
    lane,
    leave,
    member,
    poll,
    produce,
    started,
    until,
)
from tests.support.topics import Topics

pytestmark = [pytest.mark.real_kafka, pytest.mark.timeout(60), pytest.mark.usefixtures("short_waits")]


# Assignments


async def test_records_come_before_the_listener_has_returned(topics: Topics) -> None:
    topic = await topics.create("t")
    await produce(topics, topic, [b"early"])
    listener = Listener()
    listener.hold.clear()
    async with started(member(topics, topic, listener)) as client:
        assert await poll(client, 1) == [b"early"]
        listener.hold.set()


class Held:
    """A lane that is told of its assignment late."""

    go = asyncio.Event()

    def __init__(self, inner: Assignments) -> None:
        self.inner = inner

    async def assigned(self) -> None:
        await Held.go.wait()
        await self.inner.assigned()

    async def revoked(self) -> None:
        await self.inner.revoked()


class LateSource(KafkaSource):
    async def start(self, assignments: Assignments) -> None:
        await super().start(Held(assignments))


async def test_the_lane_takes_them_for_the_new_assignment(topics: Topics) -> None:
    topic = await topics.create("t")
    await produce(topics, topic, [b"early"])
    Held.go = asyncio.Event()
    async with lane(topics, topic, source=LateSource) as harness:
        await until(lambda: harness.handled)
        assert not harness.lane.state().joined
        Held.go.set()
        await caught_up(topics, TopicPartition(topic, 0))
        assert harness.handled == [b"early"]


async def test_a_rebalance_forgets_pauses(topics: Topics) -> None:
    topic = await topics.create("t")
    listener = Listener()
    async with started(member(topics, topic, listener)) as client:
        while not client.assignment():
            await client.getmany(timeout_ms=20)
        client.pause(*client.assignment())
        assert client.paused()
        coordinator(client).request_rejoin()
        while listener.assigned < 2:
            await client.getmany(timeout_ms=20)
        assert client.paused() == set()


async def test_the_lane_puts_them_back(topics: Topics) -> None:
    topic = await topics.create("t")
    await produce(topics, topic, [b"%d" % n for n in range(20)])
    async with lane(topics, topic, limits=BackpressureLimits(records=5)) as harness:
        harness.gate.clear()
        await until(lambda: harness.source._paused and harness.client.paused())
        harness.rejoin()
        await until(lambda: len(harness.events(Rebalanced)) == 3)
        await until(harness.client.paused)
        harness.gate.set()
        await caught_up(topics, TopicPartition(topic, 0))
        await until(lambda: not harness.client.paused())
        assert [event.kind for event in harness.events(Rebalanced)] == [
            RebalanceKind.ASSIGNED,
            RebalanceKind.REVOKED,
            RebalanceKind.ASSIGNED,
        ]


async def test_an_eviction_calls_the_listener_when_there_is_nothing_left_to_drain(topics: Topics) -> None:
    topic = await topics.create("t")
    listener = Listener()
    async with started(member(topics, topic, listener)) as client:
        await until(lambda: listener.assigned)
        await leave(client)
        await until(lambda: listener.revoked == 2)
        assert listener.generation == -1


async def test_the_lane_neither_drains_nor_commits_then(topics: Topics) -> None:
    topic = await topics.create("t")
    await produce(topics, topic, [b"slow"])
    async with lane(topics, topic, drain_timeout=3_600.0) as harness:
        harness.gate.clear()
        await until(lambda: harness.begun and harness.lane.state().joined)
        await leave(harness.client)
        await until(lambda: harness.cancelled)
        harness.gate.set()
        await caught_up(topics, TopicPartition(topic, 0))
        assert harness.begun == [b"slow", b"slow"]
        assert [event.kind for event in harness.events(Rebalanced)][1] is RebalanceKind.LOST


# Commits and the end


class Unavailable:
    """The coordinator answers no commit while `held`: `commit` tries again inside, for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, coordinator: Any) -> None:
        self.held = True
        self.tries = 0
        genuine = coordinator._do_commit_offsets

        async def do_commit(*args: Any) -> None:
            self.tries += 1
            if self.held:
                raise GroupCoordinatorNotAvailableError
            await genuine(*args)

        monkeypatch.setattr(coordinator, "_do_commit_offsets", do_commit)


async def test_a_commit_from_before_a_revoke_can_land_after_the_new_owners(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await topics.create("t")
    tp = TopicPartition(topic, 0)
    await produce(topics, topic, [b"%d" % n for n in range(95)])
    async with started(member(topics, topic, client_id="z")) as old:
        await poll(old, 95)
        unavailable = Unavailable(monkeypatch, coordinator(old))
        committing = asyncio.create_task(old.commit({tp: 60}))
        await until(lambda: unavailable.tries)
        polling = asyncio.create_task(poll(old, 1_000))
        async with started(member(topics, topic, client_id="a")) as new:  # the assignor goes by member id
            await poll(new, 95)
            await new.commit({tp: 95})
            assert old.assignment() == set()
            unavailable.held = False
            await committing
            assert await committed(topics, tp) == 60
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)


async def test_no_commit_of_the_lane_does(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await topics.create("t")
    tp = TopicPartition(topic, 0)
    await produce(topics, topic, [b"%d" % n for n in range(60)])
    async with lane(topics, topic, client_id="z") as harness:
        await until(lambda: harness.lane.state().joined)
        unavailable = Unavailable(monkeypatch, coordinator(harness.client))
        await until(lambda: unavailable.tries and len(harness.handled) == 60)
        await produce(topics, topic, [b"%d" % n for n in range(60, 95)])
        async with started(member(topics, topic, client_id="a")) as new:
            await poll(new, 95 - (await committed(topics, tp) or 0))
            await new.commit({tp: 95})
            tries, unavailable.held = unavailable.tries, False
            await until(lambda: harness.lane.state().joined and not harness.lane.state().rebalancing)
            polled = harness.lane.state().last_poll
            await until(lambda: harness.lane.state().last_poll > polled + 0.5)  # some ticks, and aiokafka's back-off
            assert unavailable.tries == tries
            assert await committed(topics, tp) == 95
        assert CommitResult.UNKNOWN in {event.result for event in harness.events(CommitFinished)}


async def test_stop_does_not_call_the_listener(topics: Topics) -> None:
    topic = await topics.create("t")
    listener = Listener()
    async with started(member(topics, topic, listener)):
        await until(lambda: listener.assigned)
        revoked = listener.revoked
    assert listener.revoked == revoked


async def test_the_lane_drains_and_commits_by_itself(topics: Topics) -> None:
    topic = await topics.create("t")
    await produce(topics, topic, [b"slow"])
    async with lane(topics, topic, drain_timeout=30.0) as harness:
        harness.gate.clear()
        await until(lambda: harness.begun)
        stopping = asyncio.create_task(harness.lane.stop(60.0))
        harness.gate.set()
        await stopping
    assert await committed(topics, TopicPartition(topic, 0)) == 1


def keep_from_joining(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no member gets into the group, as when its coordinator is gone."""

    async def fail(_coordinator: GroupCoordinator, _subscription: object) -> bool:
        await asyncio.sleep(0.01)
        return False

    monkeypatch.setattr(GroupCoordinator, "_do_rejoin_group", fail)


async def test_a_poll_in_a_rebalance_outlives_stop(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for an assignment, whatever its time-out, and `stop` wakes only those that wait for records."""
    topic = await topics.create("t")
    listener = Listener()
    async with started(member(topics, topic, listener)) as client:
        keep_from_joining(monkeypatch)
        coordinator(client).request_rejoin()
        await until(lambda: listener.revoked == 2)
        polling = asyncio.create_task(client.getmany(timeout_ms=1))
        await asyncio.sleep(0)
        await client.stop()
        _, pending = await asyncio.wait({polling}, timeout=0.2)
        assert pending
        polling.cancel()
        await asyncio.wait({polling})


async def test_the_lane_ends_all_the_same(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await topics.create("t")
    async with lane(topics, topic) as harness:
        await until(lambda: harness.lane.state().joined)
        keep_from_joining(monkeypatch)
        harness.rejoin()
        await until(lambda: harness.lane.state().rebalancing)
        await harness.lane.stop(60.0)
        await harness.running


async def test_a_start_waits_for_the_first_assignment_and_the_lane_ends_that_too(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await topics.create("t")
    keep_from_joining(monkeypatch)
    async with lane(topics, topic) as harness:
        await until(lambda: hasattr(harness.source, "_consumer") and coordinator(harness.client) is not None)
        await harness.lane.stop(60.0)
        await harness.running
        assert harness.events(PollFailed) == []


# The rest of the source


class Nobody:
    async def assigned(self) -> None: ...

    async def revoked(self) -> None: ...


async def test_a_kafka_that_is_not_there_leaves_nothing_behind(topics: Topics) -> None:
    source = KafkaSource(lambda: AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1", group_id="g"), ["t"])
    await source.stop()
    with pytest.raises(KafkaConnectionError):
        await source.start(Nobody())
    assert not source.evicted()
    await source.stop()
    with pytest.raises(SourceClosed):
        await source.poll(0.01, 1)


async def test_the_source_tells_the_committed_offset_and_the_log_start(topics: Topics) -> None:
    topic = await topics.create("t")
    partition = Partition(topic, 0)
    await produce(topics, topic, [b"a", b"b"])
    async with lane(topics, topic) as harness:
        harness.gate.clear()
        await until(lambda: len(harness.begun) == 2)
        assert await harness.source.position(partition) == 2
        assert await harness.source.start_of(partition) == (None, 0)
        await harness.source.commit({partition: 1})
        assert await harness.source.start_of(partition) == (1, 0)
