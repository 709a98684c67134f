"""What Kafka says of our groups: asked as an onlooker, who joins no group and commits nothing."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
    for_code,
)
from aiokafka.protocol.commit import OffsetFetchRequest

from consumer.exporter.lag import Log, depth, lags, unread
from consumer.exporter.snapshot import GroupSeen, GroupState, KafkaSeen
from consumer.kafka.options import client_options, consumer_options, translate_kafka_errors
from consumer.settings.model import Settings
from consumer.stream.records import Partition
from consumer.stream.source import committed_at

TIMEOUT = 15.0
"""Seconds for one look."""
_REQUEST_TIMEOUT_MS = 5_000
_COORDINATOR_MOVES = (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError)
"""A broker comes or goes, or the cluster makes its first group: over in a moment."""
_PAUSE = 0.2


@dataclass(frozen=True, slots=True)
class _Clients:
    admin: AIOKafkaAdminClient
    consumer: AIOKafkaConsumer


class KafkaWatch:
    """Looks at the lanes' groups and at the dead letters. Connections are kept, and made anew after a failure."""

    def __init__(self, settings: Settings, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._now = now
        self._groups = {
            settings.group_recall: (settings.topic_agent_runs,),
            settings.group_retain: (settings.topic_issue_comments,),
        }
        self._open: _Clients | None = None

    async def look(self) -> KafkaSeen:
        """Ask now.

        Raises:
            UpstreamDown: Kafka cannot be reached, or does not tell us.
        """
        with translate_kafka_errors(self._settings):
            try:
                async with asyncio.timeout(TIMEOUT):
                    return await self._look(await self._clients())
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        """End the connections; the next look makes new ones."""
        clients, self._open = self._open, None
        if clients is not None:
            try:
                await clients.consumer.stop()
            finally:
                await clients.admin.close()

    async def _clients(self) -> _Clients:
        if self._open is None:
            options: dict[str, Any] = {"request_timeout_ms": _REQUEST_TIMEOUT_MS}
            self._open = _Clients(
                AIOKafkaAdminClient(**client_options(self._settings), **options),
                AIOKafkaConsumer(
                    **consumer_options(self._settings),
                    **options,
                    enable_auto_commit=False,
                    auto_offset_reset="earliest",
                    # All that is in the log counts: a transaction that nobody ends holds a lane up, and must show.
                    isolation_level="read_uncommitted",
                    fetch_max_wait_ms=100,
                    max_partition_fetch_bytes=64 * 1024,
                ),
            )
            await self._open.admin.start()
            await self._open.consumer.start()
        return self._open

    async def _look(self, clients: _Clients) -> KafkaSeen:
        while True:
            try:
                return await self._look_once(clients)
            except _COORDINATOR_MOVES:
                await asyncio.sleep(_PAUSE)

    async def _look_once(self, clients: _Clients) -> KafkaSeen:
        partitions = await _partitions(clients.admin)
        read = {topic for topics in self._groups.values() for topic in topics} & partitions.keys()
        # Commits before ends: what is committed cannot lie beyond an end that is looked up later.
        commits = {group: await _commits(clients.admin, group) for group in self._groups}
        committed = {group: {each: found.offset for each, found in commits[group].items()} for group in self._groups}
        logs = await _logs(clients.consumer, [each for topic in sorted(read) for each in partitions[topic]])
        states = {group: await _state(clients.admin, group) for group in self._groups}
        groups = []
        for group, topics in self._groups.items():
            own = {partition: log for partition, log in logs.items() if partition.topic in topics}
            waiting = unread(committed[group], own)
            firsts = await _firsts(clients.consumer, waiting, own) if waiting else {}
            members, state = states[group]
            times = [commit.at for commit in commits[group].values() if commit.at is not None]
            seen = lags(committed[group], own, firsts, self._now())
            groups.append(GroupSeen(group, topics, members, state, seen, max(times, default=None)))
        letters = self._settings.topic_dead_letters
        dead = await _logs(clients.consumer, partitions[letters]) if letters in partitions else None
        return KafkaSeen(
            tuple(groups),
            {partition: log.end for partition, log in logs.items()},
            {} if dead is None else {letters: depth(dead.values())},
        )


async def _partitions(admin: AIOKafkaAdminClient) -> dict[str, list[Partition]]:
    # All topics, never by name: asking for a topic that does not exist makes brokers create it.
    topics = await admin.describe_topics()
    return {
        topic["topic"]: [Partition(topic["topic"], each["partition"]) for each in topic["partitions"]]
        for topic in topics
        if not topic["error_code"]
    }


class _Commit(NamedTuple):
    offset: int
    at: float | None


async def _commits(admin: AIOKafkaAdminClient, group: str) -> dict[Partition, _Commit]:
    """All that a group has committed.

    By hand, because neither `AIOKafkaConsumer.committed` nor `list_consumer_group_offsets` of aiokafka 0.14 looks at
    the error of the whole answer: a coordinator that is still loading would pass for a group without commits.
    """
    coordinator = await admin.find_coordinator(group)
    reply: Any = await admin._send_request(OffsetFetchRequest(group, None), coordinator)  # noqa: SLF001
    _check(reply.error_code, f"committed offsets of group {group}")
    commits = {}
    for topic, partitions in reply.topics:
        for number, offset, metadata, code in partitions:
            _check(code, f"committed offset of group {group} in {topic} {number}")
            if offset >= 0:
                commits[Partition(topic, number)] = _Commit(offset, committed_at(metadata))
    return commits


async def _state(admin: AIOKafkaAdminClient, group: str) -> tuple[int, GroupState]:
    """Members and state of a group."""
    (reply,) = await admin.describe_consumer_groups([group])
    (found,) = reply.to_object()["groups"]
    _check(found["error_code"], f"description of group {group}")
    return len(found["members"]), _STATES.get(found["state"], GroupState.OTHER)


_STATES = {
    "Stable": GroupState.STABLE,
    "Empty": GroupState.EMPTY,
    "PreparingRebalance": GroupState.PREPARING_REBALANCE,
    "CompletingRebalance": GroupState.COMPLETING_REBALANCE,
    "Dead": GroupState.DEAD,
}


async def _logs(consumer: AIOKafkaConsumer, partitions: Sequence[Partition]) -> dict[Partition, Log]:
    tps = [_tp(partition) for partition in partitions]
    starts, ends = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
    return {partition: Log(starts[tp], ends[tp]) for partition, tp in zip(partitions, tps, strict=True)}


async def _firsts(
    consumer: AIOKafkaConsumer, wanted: Mapping[Partition, int], logs: Mapping[Partition, Log]
) -> dict[Partition, float]:
    """Timestamps, in seconds, of the first record at or after these offsets; none where only markers follow."""
    found: dict[Partition, float] = {}
    missing = set(wanted)
    consumer.assign([_tp(partition) for partition in wanted])
    try:
        for partition, offset in wanted.items():
            consumer.seek(_tp(partition), offset)
        while missing:
            polled = await consumer.getmany(*map(_tp, missing), timeout_ms=500)
            found |= {Partition(*tp): records[0].timestamp / 1000 for tp, records in polled.items()}
            missing -= found.keys()
            missing -= {each for each in missing if await consumer.position(_tp(each)) >= logs[each].end}
    finally:
        consumer.unsubscribe()
    return found


def _tp(partition: Partition) -> TopicPartition:
    return TopicPartition(*partition)


def _check(code: int, what: str) -> None:
    if code:
        raise for_code(code)(what)
