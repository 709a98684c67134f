"""The sink: a fake Hindsight that records every retain and fails on request. Run with
`python -m tests.chaos.sink PORT FILE SEED`.

Each retain adds a line to the file when it arrives, and another when it is accepted. The file outlives this process.
"""

import asyncio
import json
import random
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from aiohttp import web

from tests.chaos.events import FORBIDDEN_AGENT, seeded_rng

HANG = 4.0
"""Seconds; longer than the workers' HTTP timeout."""


class FaultMode(StrEnum):
    """How calls fail; with `FAIR` only a few fail, at random."""

    KIND = "kind"
    FAIR = "fair"
    UNAVAILABLE = "503"
    THROTTLED = "429"
    BROKEN = "500"
    HANGING = "hang"
    RESETTING = "reset"
    REFUSING = "401"


NOISE = {
    FaultMode.UNAVAILABLE: 0.02,
    FaultMode.THROTTLED: 0.02,
    FaultMode.BROKEN: 0.02,
    FaultMode.RESETTING: 0.02,
    FaultMode.HANGING: 0.005,
    FaultMode.REFUSING: 0.003,
}


class Sink:
    """Answers like Hindsight, or fails according to its fault mode."""

    def __init__(self, record: Callable[[str, str, str], None], rng: random.Random) -> None:
        self._record = record
        self._rng = rng
        self._latency = 0.0
        self._fault_mode = FaultMode.FAIR

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.post("/v1/default/banks/{bank}/memories", self._retain),
                web.get("/v1/default/banks/{bank}/stats", _missing),
                web.get("/health", _healthy),
                web.get("/version", _version),
                web.put("/mode/{mode}/{latency}", self._set),
            ]
        )
        return app

    async def _set(self, request: web.Request) -> web.Response:
        self._fault_mode = FaultMode(request.match_info["mode"])
        self._latency = float(request.match_info["latency"])
        return web.Response()

    async def _retain(self, request: web.Request) -> web.StreamResponse:
        if request.match_info["bank"].endswith(FORBIDDEN_AGENT):
            return web.json_response({"detail": "this key may not use this bank"}, status=403)
        body = await request.json()
        operation, document = body["operation_id"], body["items"][0]["document_id"]
        self._record("arrived", operation, document)
        accepted = web.json_response({"success": True, "operation_id": operation})
        fate = self._fate()
        if fate is FaultMode.KIND:
            await asyncio.sleep(self._latency * self._rng.uniform(0.5, 1.5))
            self._record("accepted", operation, document)
            return accepted
        if fate is FaultMode.HANGING:
            await asyncio.sleep(HANG)
        if fate in (FaultMode.HANGING, FaultMode.RESETTING):
            if self._rng.random() < 0.5:  # the retain took effect, but the answer is lost
                self._record("accepted", operation, document)
            if request.transport is not None:
                request.transport.abort()
            return accepted
        headers = {"Retry-After": "1"} if fate in (FaultMode.UNAVAILABLE, FaultMode.THROTTLED) else {}
        return web.json_response({"detail": "chaos"}, status=int(fate), headers=headers)

    def _fate(self) -> FaultMode:
        if self._fault_mode is not FaultMode.FAIR:
            return self._fault_mode
        return self._rng.choices([FaultMode.KIND, *NOISE], [1 - sum(NOISE.values()), *NOISE.values()])[0]


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

        sink = Sink(record, seeded_rng(seed, "calls"))
        web.run_app(sink.app(), host="127.0.0.1", port=port, access_log=None, print=_silent, reuse_address=True)


def _silent(*_: object) -> None:
    """Print nothing."""


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
