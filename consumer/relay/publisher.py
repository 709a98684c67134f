"""Publishes events: each once as far as is known, in order for each run and comment, and acknowledged by Kafka."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from cachetools import LRUCache

from consumer.kafka.producer import RecordTooLarge, Write
from consumer.relay.event_builder import OutgoingEvent, cut_texts
from consumer.relay.hooks import Hook, Notice, Published
from consumer.stream.records import Headers
from schemas.codec import encode
from schemas.events import REPAIR_HEADER, REPLAY_HEADER
from schemas.timestamps import parse_timestamp

REMEMBERED_EVENTS = 50_000
"""Ids of published events, so that an overlap that is read again is not published again."""
CONCURRENT_KEYS = 64
OLDEST_TIMESTAMP = 3600.0
"""Seconds: no record gets an older timestamp, or retention could remove it before a worker has read it."""
REPORTED_SKEW = 5.0
"""Seconds between Paperclip's clock and ours that are worth a line in the log."""


class EventPublisher:
    """Publishes the events of one company.

    Args:
        runs, comments: the topics.
        now: seconds since the epoch.
        skew: seconds that Paperclip's clock is behind ours.
    """

    def __init__(
        self,
        write: Write,
        hook: Hook,
        *,
        runs: str,
        comments: str,
        now: Callable[[], float] = time.time,
        skew: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._write = write
        self._hook = hook
        self._topics = {True: runs, False: comments}
        self._now = now
        self._skew = skew
        self._published: LRUCache[str, None] = LRUCache(REMEMBERED_EVENTS)
        self._slots = asyncio.Semaphore(CONCURRENT_KEYS)

    def was_published(self, event_id: str) -> bool:
        """Whether this event is known to be published."""
        return event_id in self._published

    async def publish(self, events: Iterable[OutgoingEvent]) -> int:
        """Publish the events that are not known to be published, and return their number.

        Events of the same run or comment are written one after another, in the order given. An event that is too large
        for its topic goes without its embedded objects, then with its texts cut; else it is dropped with a notice.

        Raises:
            UpstreamDown: Kafka did not take an event; the others may have been published.
        """
        by_key: dict[str, list[OutgoingEvent]] = defaultdict(list)
        for event in events:
            if not self.was_published(event.id):
                by_key[event.key].append(event)
        results = await asyncio.gather(*map(self._publish_in_order, by_key.values()), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return sum(map(len, by_key.values()))

    async def _publish_in_order(self, events: Sequence[OutgoingEvent]) -> None:
        async with self._slots:
            for event in events:
                await self._publish(event)
                self._published[event.id] = None

    async def _publish(self, event: OutgoingEvent) -> None:
        topic, key, timestamp = self._topics[event.is_run], event.key.encode(), self._timestamp(event)
        headers, error = _headers(event), ""
        for make_value in (event.value, lambda: event.envelope, lambda: cut_texts(event.envelope)):
            try:
                await self._write(topic, key, encode(make_value()), headers, timestamp=timestamp)
            except RecordTooLarge as too_large:
                error = str(too_large)
            else:
                self._hook(Published(topic, 1))
                return
        self._hook(Notice("dropping an event that is too large for its topic", {"event_id": event.id, "error": error}))

    def _timestamp(self, event: OutgoingEvent) -> int | None:
        """The time of a run's event by our clock: workers do not recall for a run that started long ago."""
        if not event.is_run:
            return None
        now, skew = self._now(), self._skew()
        if abs(skew) >= REPORTED_SKEW:
            self._hook(Notice("Paperclip's clock differs from ours", {"seconds_behind": round(skew, 1)}))
        return int(1000 * min(now, max(parse_timestamp(event.occurred_at) + skew, now - OLDEST_TIMESTAMP)))


def _headers(event: OutgoingEvent) -> Headers:
    headers = []
    if event.replay:
        headers.append((REPLAY_HEADER, b"1"))
    if event.repair:
        headers.append((REPAIR_HEADER, event.repair.encode()))
    return headers
