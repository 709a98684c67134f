"""The sink: a Hindsight that records every retain and fails as it is told. `python -m tests.chaos.sink PORT FILE SEED`.

Each retain is a line of the file when it arrives, and another when it is accepted; the file outlives this process.
"""

import asyncio
import json
import random
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from aiohttp import web

from tests.chaos.events import dice

HANG = 4.0
"""Seconds; longer than the workers' time-out."""


class Mood(StrEnum):
    """What becomes of every call; `FAIR` fails a few at random."""

    KIND = "kind"
    FAIR = "fair"
    UNAVAILABLE = "503"
    THROTTLED = "429"
    BROKEN = "500"
    HANGING = "hang"
    RESETTING = "reset"
    REFUSING = "401"


NOISE = {
    Mood.UNAVAILABLE: 0.02,
    Mood.THROTTLED: 0.02,
    Mood.BROKEN: 0.02,
    Mood.RESETTING: 0.02,
    Mood.HANGING: 0.005,
    Mood.REFUSING: 0.003,
}


class Sink:
    """Answers as Hindsight does, or as its mood is."""

    def __init__(self, record: Callable[[str, str, str], None], chance: random.Random) -> None:
        self._record = record
        self._chance = chance
        self._latency = 0.0
        self._mood = Mood.FAIR

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.post("/v1/default/banks/{bank}/memories", self._retain),
                web.get("/v1/default/banks/{bank}/stats", _missing),
                web.get("/health", _healthy),
                web.get("/version", _version),
                web.put("/mood/{mood}/{latency}", self._set),
            ]
        )
        return app

    async def _set(self, request: web.Request) -> web.Response:
        self._mood = Mood(request.match_info["mood"])
        self._latency = float(request.match_info["latency"])
        return web.Response()

    async def _retain(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        operation, document = body["operation_id"], body["items"][0]["document_id"]
        self._record("arrived", operation, document)
        accepted = web.json_response({"success": True, "operation_id": operation})
        fate = self._fate()
        if fate is Mood.KIND:
            await asyncio.sleep(self._latency * self._chance.uniform(0.5, 1.5))
            self._record("accepted", operation, document)
            return accepted
        if fate is Mood.HANGING:
            await asyncio.sleep(HANG)
        if fate in (Mood.HANGING, Mood.RESETTING):
            if self._chance.random() < 0.5:  # done all the same: nobody hears of it
                self._record("accepted", operation, document)
            if request.transport is not None:
                request.transport.abort()
            return accepted
        headers = {"Retry-After": "1"} if fate in (Mood.UNAVAILABLE, Mood.THROTTLED) else {}
        return web.json_response({"detail": "chaos"}, status=int(fate), headers=headers)

    def _fate(self) -> Mood:
        if self._mood is not Mood.FAIR:
            return self._mood
        return self._chance.choices([Mood.KIND, *NOISE], [1 - sum(NOISE.values()), *NOISE.values()])[0]


async def _missing(_request: web.Request) -> web.Response:
    return web.json_response({"detail": "Bank not found"}, status=404)


async def _healthy(_request: web.Request) -> web.Response:
    return web.json_response({"status": "healthy"})


async def _version(_request: web.Request) -> web.Response:
    return web.json_response({"api_version": "1.1.0"})


def main(port: int, path: Path, seed: int) -> None:
    with path.open("a", buffering=1) as file:

        def record(what: str, operation: str, document: str) -> None:
            file.write(json.dumps([what, operation, document]) + "\n")

        sink = Sink(record, dice(seed, "calls"))
        web.run_app(sink.app(), host="127.0.0.1", port=port, access_log=None, print=_silent, reuse_address=True)


def _silent(*_: object) -> None:
    """Says nothing."""


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
