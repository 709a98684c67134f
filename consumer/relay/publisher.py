"""Publishing announcements: each once as far as is known, in order for each run and comment, and acknowledged."""

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from consumer.kafka.producer import Headers, RecordTooLarge
from consumer.relay.event_builder import Announcement
from consumer.relay.signals import Notify, Published
from consumer.relay.times import instant
from schemas.codec import encode
from schemas.events import REPAIR_HEADER, REPLAY_HEADER

REMEMBERED = 50_000
"""Ids of published events, so that an overlap that is read again is not published again."""
AT_ONCE = 64
OLDEST_STAMP = 3600.0
"""Seconds: a record's timestamp is no older, or retention could take it before anybody has read it."""


class Publish(Protocol):
    """Writes one record, and returns when Kafka has acknowledged it. Raises `UpstreamDown`, `RecordTooLarge`."""

    async def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = (), *, timestamp: int | None = None
    ) -> None: ...


class Outbox:
    """One company's way to Kafka.

    Args:
        runs, comments: the topics.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        publish: Publish,
        notify: Notify,
        *,
        runs: str,
        comments: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._publish = publish
        self._notify = notify
        self._topics = {True: runs, False: comments}
        self._now = now
        self._published: OrderedDict[str, None] = OrderedDict()
        self._slots = asyncio.Semaphore(AT_ONCE)

    def knows(self, event_id: str) -> bool:
        """Whether this event is known to be published."""
        return event_id in self._published

    async def send(self, announcements: Iterable[Announcement]) -> int:
        """Publish those that are not known to be; how many that was.

        Events of the same run or comment go one after another, in the order given.

        Raises:
            UpstreamDown: Kafka did not take one; the others may have been published.
        """
        chains: dict[str, list[Announcement]] = defaultdict(list)
        for each in announcements:
            if not self.knows(each.id):
                chains[each.subject].append(each)
        outcomes = await asyncio.gather(*(self._chain(chain) for chain in chains.values()), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return sum(len(chain) for chain in chains.values())

    async def _chain(self, chain: Sequence[Announcement]) -> None:
        async with self._slots:
            for each in chain:
                await self._one(each)
                self._published[each.id] = None
                if len(self._published) > REMEMBERED:
                    self._published.popitem(last=False)

    async def _one(self, each: Announcement) -> None:
        topic, key, stamp = self._topics[each.is_run], each.subject.encode(), self._timestamp(each)
        headers = _headers(each)
        try:
            await self._publish(topic, key, encode(each.value()), headers, timestamp=stamp)
        except RecordTooLarge:  # a comment of megabytes: who handles it fetches it
            await self._publish(topic, key, encode(each.envelope), headers, timestamp=stamp)
        self._notify(Published(topic, 1))

    def _timestamp(self, each: Announcement) -> int | None:
        """When a run's event happened: a run that started long ago is past recalling for, however late it is read."""
        if not each.is_run:
            return None
        now = self._now()
        return int(1000 * min(now, max(instant(each.occurred_at), now - OLDEST_STAMP)))


def _headers(each: Announcement) -> Headers:
    headers = []
    if each.replay:
        headers.append((REPLAY_HEADER, b"1"))
    if each.repair:
        headers.append((REPAIR_HEADER, each.repair.encode()))
    return headers
