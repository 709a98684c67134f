"""Follows a company's runs: started and ended ones, from the list of those created last."""

import asyncio
from collections.abc import Collection
from itertools import chain

from consumer.paperclip.client import PaperclipClient
from consumer.relay.checkpoints import RunPosition
from consumer.relay.enrichment import Copies
from consumer.relay.event_builder import TERMINAL, Json, of_run
from consumer.relay.publisher import Outbox
from consumer.relay.signals import Notify, Told
from consumer.relay.times import instant

OVERLAP = 600.0
"""Seconds, by creation, for which ended runs are looked at again: a killed one `succeeded` before it is `cancelled`."""
PAGE, MOST = 50, 1_000
STRAGGLERS = 5
"""Open runs outside the list that a thorough look asks for, one by one."""


class RunFeed:
    """One company's runs.

    Args:
        start: seconds since the epoch; nothing that happened before is published.
    """

    def __init__(
        self, client: PaperclipClient, outbox: Outbox, copies: Copies, notify: Notify, company: str, start: float
    ) -> None:
        self._client = client
        self._outbox = outbox
        self._copies = copies
        self._notify = notify
        self._company = company
        self._start = start

    async def look(self, at: RunPosition, *, thorough: bool, hinted: Collection[str]) -> RunPosition:
        """Publish what is new; where that leads to.

        Args:
            thorough: ask for open runs that have fallen out of the list, too.
            hinted: runs that are said to have changed.
        """
        listed, *told = await asyncio.gather(self._list(at.created - OVERLAP), *(self._whole(each) for each in hinted))
        rows = {row["id"]: row for row in listed}
        outside = [each for each in at.open if each not in rows and each not in hinted]
        asked = outside[: STRAGGLERS if thorough else 0]
        whole = {run["id"]: run for run in chain(*told, *await asyncio.gather(*(self._whole(each) for each in asked)))}
        runs = sorted((rows | whole).values(), key=lambda row: str(row["createdAt"]))
        envelopes = [each for run in await asyncio.gather(*(self._events(run) for run in runs)) for each in run]
        await self._outbox.send(await self._copies.announce(envelopes, whole))
        # Those that were not asked for stand first, so that each has its turn.
        still = [run["id"] for run in runs if run["status"] not in TERMINAL]
        return RunPosition(
            created=max([at.created, *(instant(run["createdAt"]) for run in runs)]),
            open=tuple(dict.fromkeys([*(each for each in outside if each not in asked), *still])),
        )

    async def _whole(self, run: str) -> list[Json]:
        """The run with all that Paperclip shows of it; nothing if it is gone."""
        found = await self._client.run_json(run)
        return [] if found is None else [found]

    async def _list(self, floor: float) -> list[Json]:
        """Runs created since, and some more. Beyond the 1,000 that one list holds, each agent's own list is read."""
        rows: list[Json] = []
        for limit in (PAGE, MOST):
            rows = await self._client.runs(self._company, limit)
            if len(rows) < limit or instant(rows[-1]["createdAt"]) < floor:
                return rows
        for agent in await self._client.agents(self._company):
            more = await self._client.runs(self._company, MOST, agent)
            if len(more) == MOST and instant(more[-1]["createdAt"]) >= floor:
                told = {"company": self._company, "agent": agent}
                self._notify(Told("an agent has more new runs than Paperclip lists: some are not published", told))
            rows += more
        return rows

    async def _events(self, run: Json) -> list[Json]:
        """What a run has gone through and is not known to be published."""
        envelopes = self._new(of_run(run))
        if envelopes and run["status"] == "cancelled" and run["startedAt"] is not None:
            envelopes = self._new(of_run(run, await self._client.run_end_statuses(run["id"])))
        return envelopes

    def _new(self, envelopes: list[Json]) -> list[Json]:
        return [
            each
            for each in envelopes
            if instant(each["occurredAt"]) >= self._start and not self._outbox.knows(each["eventId"])
        ]
