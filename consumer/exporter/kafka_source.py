"""Reads our groups and topics from Kafka, without joining a group or committing."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaTimeoutError,
    NotCoordinatorForGroupError,
    for_code,
)
from aiokafka.protocol.commit import OffsetFetchRequest

from consumer.exporter.lag import EndHistory, OffsetRange, depth, lagging, lags
from consumer.exporter.snapshot import GroupSnapshot, GroupState, KafkaSnapshot
from consumer.http.rest_client import Warn, silent
from consumer.kafka.options import client_options, consumer_options, translate_kafka_errors
from consumer.settings.model import Settings
from consumer.stream.records import Partition
from consumer.stream.source import committed_at, try_each

TIMEOUT = 15.0
"""Seconds for one snapshot."""
PART_TIMEOUT = 4.0
"""Seconds for each group and each partition, side by side."""
_REQUEST_TIMEOUT_MS = 5_000
_COORDINATOR_MOVES = (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError)
"""Short-lived: a broker starts or stops, or the cluster creates its first group."""
_PAUSE = 0.2

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Clients:
    admin: AIOKafkaAdminClient
    consumer: AIOKafkaConsumer


class KafkaReader:
    """Reads the lanes' groups and the dead-letter topic. Connections stay open and are replaced after a failure."""

    def __init__(self, settings: Settings, warn: Warn = silent, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._warn = warn
        self._history = EndHistory()
        self._now = now
        self._groups = {
            settings.group_recall: (settings.topic_agent_runs,),
            settings.group_retain: (settings.topic_issue_comments,),
        }
        self._open: _Clients | None = None

    async def read(self) -> KafkaSnapshot:
        """Read a snapshot.

        Raises:
            UpstreamDown: Kafka cannot be reached, or refuses the requests.
        """
        with translate_kafka_errors(self._settings):
            try:
                async with asyncio.timeout(TIMEOUT):
                    return await self._read(await self._clients())
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        """Close the connections; the next `read` opens new ones."""
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
                    # Uncommitted records count: an open transaction blocks a lane, and its lag must show.
                    isolation_level="read_uncommitted",
                    fetch_max_wait_ms=100,
                    max_partition_fetch_bytes=64 * 1024,
                ),
            )
            await self._open.admin.start()
            await self._open.consumer.start()
        return self._open

    async def _read(self, clients: _Clients) -> KafkaSnapshot:
        partitions = await _partitions(clients.admin)
        topics_read = {topic for topics in self._groups.values() for topic in topics} & partitions.keys()
        # Commits before ends: a commit cannot lie beyond a log end that is read later.
        answers = await try_each(partial(_view, clients.admin), self._groups, PART_TIMEOUT)
        views, missing = _split(answers, lambda group: f"group {group}")
        if not views:
            raise next(answer for answer in answers.values() if isinstance(answer, BaseException))
        logs, without_log = await _logs(
            clients.consumer, [partition for topic in sorted(topics_read) for partition in partitions[topic]]
        )
        if without_log and not logs:
            raise KafkaTimeoutError(f"no partition answered: {without_log}")
        self._history.note(logs, self._now())
        groups = []
        for group, view in views.items():
            topics = self._groups[group]
            own = {partition: log for partition, log in logs.items() if partition.topic in topics}
            committed = {partition: commit.offset for partition, commit in view.commits.items()}
            offsets = lagging(committed, own)
            firsts = await _first_timestamps(clients.consumer, offsets, own) if offsets else {}
            times = [commit.at for commit in view.commits.values() if commit.at is not None]
            group_lags = lags(committed, own, firsts, self._history, self._now())
            groups.append(GroupSnapshot(group, topics, view.members, view.state, group_lags, max(times, default=None)))
        letters = self._settings.topic_dead_letters
        dead, without_depth = await _logs(clients.consumer, partitions.get(letters, []))
        missing |= without_log | without_depth
        for name, reason in missing.items():
            self._warn("left out of the metrics: Kafka gave no answer about it", missing=name, error=reason)
        return KafkaSnapshot(
            tuple(groups),
            {partition: log.end for partition, log in logs.items()},
            {letters: depth(dead.values())} if dead else {},
            missing,
        )


def _split(answers: Mapping[K, T | BaseException], name: Callable[[K], str]) -> tuple[dict[K, T], dict[str, str]]:
    """The answers, and the errors of what gave none."""
    found = {key: answer for key, answer in answers.items() if not isinstance(answer, BaseException)}
    errors = {key: error for key, error in answers.items() if isinstance(error, BaseException)}
    return found, {name(key): str(error) or type(error).__name__ for key, error in errors.items()}


async def _partitions(admin: AIOKafkaAdminClient) -> dict[str, list[Partition]]:
    # All topics, never by name: describing a missing topic makes brokers create it.
    topics = await admin.describe_topics()
    return {
        topic["topic"]: [Partition(topic["topic"], partition["partition"]) for partition in topic["partitions"]]
        for topic in topics
        if not topic["error_code"]
    }


class _Commit(NamedTuple):
    offset: int
    at: float | None


class _GroupView(NamedTuple):
    commits: dict[Partition, _Commit]
    members: int
    state: GroupState


async def _view(admin: AIOKafkaAdminClient, group: str) -> _GroupView:
    while True:
        try:
            return _GroupView(await _commits(admin, group), *await _state(admin, group))
        except _COORDINATOR_MOVES:
            await asyncio.sleep(_PAUSE)


async def _commits(admin: AIOKafkaAdminClient, group: str) -> dict[Partition, _Commit]:
    """All commits of a group.

    Sends the request itself, because neither `AIOKafkaConsumer.committed` nor `list_consumer_group_offsets` of aiokafka
    0.14 checks the error of the whole response: a coordinator that is still loading would look like a group without
    commits.
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
    (description,) = reply.to_object()["groups"]
    _check(description["error_code"], f"description of group {group}")
    return len(description["members"]), _STATES.get(description["state"], GroupState.OTHER)


_STATES = {
    "Stable": GroupState.STABLE,
    "Empty": GroupState.EMPTY,
    "PreparingRebalance": GroupState.PREPARING_REBALANCE,
    "CompletingRebalance": GroupState.COMPLETING_REBALANCE,
    "Dead": GroupState.DEAD,
}


async def _logs(
    consumer: AIOKafkaConsumer, partitions: Sequence[Partition]
) -> tuple[dict[Partition, OffsetRange], dict[str, str]]:
    """The offsets of those partitions that answer, and the errors of the others."""

    async def offset_range(partition: Partition) -> OffsetRange:
        tp = _tp(partition)
        starts, ends = await asyncio.gather(consumer.beginning_offsets([tp]), consumer.end_offsets([tp]))
        return OffsetRange(starts[tp], ends[tp])

    answers = await try_each(offset_range, partitions, PART_TIMEOUT)
    return _split(answers, lambda partition: f"{partition.topic}[{partition.number}]")


async def _first_timestamps(
    consumer: AIOKafkaConsumer, offsets: Mapping[Partition, int], logs: Mapping[Partition, OffsetRange]
) -> dict[Partition, float]:
    """Timestamps, in seconds, of the first record at or after these offsets; none where only markers follow.

    0 stands for a record that could not be read in time.
    """
    timestamps: dict[Partition, float] = {}
    deadline = time.monotonic() + PART_TIMEOUT
    missing = set(offsets)
    consumer.assign([_tp(partition) for partition in offsets])
    try:
        for partition, offset in offsets.items():
            consumer.seek(_tp(partition), offset)
        while missing and time.monotonic() < deadline:
            polled = await consumer.getmany(*map(_tp, missing), timeout_ms=500)
            timestamps |= {Partition(*tp): records[0].timestamp / 1000 for tp, records in polled.items()}
            missing -= timestamps.keys()
            missing -= {left for left in missing if await consumer.position(_tp(left)) >= logs[left].end}
    finally:
        consumer.unsubscribe()
    return timestamps | dict.fromkeys(missing, 0.0)


def _tp(partition: Partition) -> TopicPartition:
    return TopicPartition(*partition)


def _check(code: int, what: str) -> None:
    if code:
        raise for_code(code)(what)
