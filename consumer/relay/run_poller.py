"""Polls a company's runs, in the list of those created last, for started and ended ones."""

import asyncio
from collections.abc import Collection
from itertools import chain

from consumer.errors import Permanent
from consumer.paperclip.models import Json
from consumer.relay.checkpoints import RunPosition
from consumer.relay.concurrency import map_concurrently
from consumer.relay.enrichment import EventEnricher
from consumer.relay.event_builder import TERMINAL, events_from_run
from consumer.relay.hooks import Hook, Notice
from consumer.relay.protocols import EventSink, PaperclipFeed, PollResult
from schemas.paperclip import is_uuid
from schemas.timestamps import format_timestamp, parse_timestamp

OVERLAP = 600.0
"""Seconds, by creation, for which a full sweep reads runs again: a killed run `succeeded` before it is `cancelled`."""
PAGE, LONGEST_LIST = 50, 1_000
MAX_OPEN = 10_000
"""Open runs that a checkpoint names at most: it must fit its topic."""
UNLISTED_PER_SWEEP = 5
"""Open runs outside the list that a full sweep asks for, one by one."""


class RunPoller:
    """Polls one company's runs.

    Args:
        start: seconds since the epoch; older events are not published.
    """

    def __init__(
        self,
        paperclip: PaperclipFeed,
        publisher: EventSink,
        enricher: EventEnricher,
        hook: Hook,
        company: str,
        start: float,
    ) -> None:
        self._paperclip = paperclip
        self._publisher = publisher
        self._enricher = enricher
        self._hook = hook
        self._company = company
        self._start = start

    async def poll(
        self, position: RunPosition, *, full_sweep: bool, changed: Collection[str]
    ) -> PollResult[RunPosition]:
        """Publish what is new since `position`.

        Args:
            full_sweep: read the runs of the last minutes again, and open ones that have fallen out of the list. A poll
                without it reads the newest page, and further back only if that page holds nothing but new runs.
            changed: runs that the WebSocket reported.

        Raises:
            HandlingError: as `PaperclipFeed` and `EventSink`.
        """
        floor = position.created - OVERLAP if full_sweep else position.created
        listed, reported = await asyncio.gather(
            self._list(floor, position.created), map_concurrently(self._load, changed)
        )
        rows = {row["id"]: row for row in listed if is_uuid(row["id"])}
        unlisted = [id_ for id_ in position.open if id_ not in rows and id_ not in changed]
        asked = unlisted[: UNLISTED_PER_SWEEP if full_sweep else 0]
        loaded = {run["id"]: run for run in chain(*reported, *await map_concurrently(self._load, asked))}
        runs = sorted((rows | loaded).values(), key=lambda run: str(run["createdAt"]))
        envelopes = list(chain(*await map_concurrently(self._new_events, runs)))
        await self._publisher.publish(await self._enricher.enrich(envelopes, self._enricher.batch(loaded)))
        # Those that were not asked for stand first, so that each has its turn.
        still_open = [run["id"] for run in runs if run["status"] not in TERMINAL]
        open_runs = tuple(dict.fromkeys([*(id_ for id_ in unlisted if id_ not in asked), *still_open]))
        if len(open_runs) > MAX_OPEN:
            fields: dict[str, str | float] = {"company": self._company, "open": len(open_runs)}
            self._hook(Notice("too many open runs: the end of the oldest is not published", fields))
        created = max([position.created, *(parse_timestamp(run["createdAt"]) for run in runs)])
        return PollResult(RunPosition(created=created, open=open_runs[-MAX_OPEN:]))

    async def _load(self, run_id: str) -> list[Json]:
        """The whole run; nothing if Paperclip does not show it, or refuses it."""
        try:
            run = await self._paperclip.run_json(run_id)
        except Permanent as error:
            self._skip_run(run_id, error)
            return []
        return [] if run is None else [run]

    def _skip_run(self, run_id: str, error: Permanent) -> None:
        fields = {"company": self._company, "run": run_id, "error": str(error)}
        self._hook(Notice("skipping a run that cannot be read", fields))

    async def _list(self, floor: float, known: float) -> list[Json]:
        """Runs created after `floor`, and some more. Beyond the 1,000 of one list, each agent's own list is read.

        Args:
            known: all runs created until then have been read.
        """
        rows: list[Json] = []
        for limit in (PAGE, LONGEST_LIST):
            rows = await self._paperclip.runs(self._company, limit)
            if len(rows) < limit or parse_timestamp(rows[-1]["createdAt"]) <= floor:
                return rows
        for agent in await self._paperclip.agents(self._company):
            agents_rows = await self._paperclip.runs(self._company, LONGEST_LIST, agent)
            oldest = agents_rows[-1]["createdAt"] if len(agents_rows) == LONGEST_LIST else None
            if oldest is not None and parse_timestamp(oldest) > known:
                fields = {"company": self._company, "agent": agent, "from": format_timestamp(known), "to": oldest}
                self._hook(Notice("runs are lost: Paperclip lists only an agent's last 1,000", fields))
            rows += agents_rows
        return rows

    async def _new_events(self, run: Json) -> list[Json]:
        """The envelopes of a run's transitions that are not known to be published."""
        envelopes = self._unpublished(events_from_run(run))
        if envelopes and run["status"] == "cancelled" and run["startedAt"] is not None:
            try:
                ended_before = await self._paperclip.run_end_statuses(run["id"])
            except Permanent as error:
                self._skip_run(run["id"], error)
                return []
            envelopes = self._unpublished(events_from_run(run, ended_before))
        return envelopes

    def _unpublished(self, envelopes: list[Json]) -> list[Json]:
        return [
            envelope
            for envelope in envelopes
            if parse_timestamp(envelope["occurredAt"]) >= self._start
            and not self._publisher.was_published(envelope["eventId"])
        ]
