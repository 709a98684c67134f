"""The shutdown deadline of a command covers the closing of its clients, which may hang while Kafka is unreachable."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from consumer.commands import relay, up, worker
from consumer.settings.model import Settings

SETTINGS = Settings(hindsight_api_url="http://h", paperclip_api_url="http://p", tools_shared_secret="x" * 32)


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens when a command stops."""
    events: list[str] = []

    @asynccontextmanager
    async def clients(*_: Any, **__: Any) -> AsyncIterator[Any]:
        part = MagicMock()
        part.run, part.stop = AsyncMock(), AsyncMock()
        try:
            yield part
        finally:
            events.append("clients closed")

    @asynccontextmanager
    async def server(*_: Any) -> AsyncIterator["asyncio.Task[None]"]:
        yield asyncio.create_task(asyncio.sleep(0))

    @contextmanager
    def deadline(_seconds: float) -> Iterator[None]:
        events.append("deadline set")
        yield
        events.append("deadline lifted")

    for module in (relay, up, worker):
        for name, replacement in {
            "start_process": MagicMock(),
            "open_lane": clients,
            "open_relay": clients,
            "open_exporter": clients,
            "open_tools": server,
            "watch_key": lambda _process: nullcontext(),
            "serve_observability": lambda *_, **__: nullcontext(),
            "check_settings": MagicMock(),
            "require_paperclip": MagicMock(),
            "_create_topics": AsyncMock(),
            "probe_at_start": AsyncMock(return_value=True),
            "wait_for_shutdown": AsyncMock(),
            "shutdown_deadline": deadline,
        }.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, replacement)
    return events


@pytest.mark.parametrize("command", ["worker", "relay", "up"])
async def test_the_deadline_is_lifted_after_all_clients_are_closed(order: list[str], command: str) -> None:
    runs: dict[str, Callable[[], Awaitable[int]]] = {
        "worker": lambda: worker.run_worker(SETTINGS, ("retain",), strict=False),
        "relay": lambda: relay.run_relay(SETTINGS, strict=False),
        "up": lambda: up.run_up(SETTINGS, strict=False),
    }
    assert await runs[command]() == 0
    assert order[0] == "deadline set"
    assert order[-1] == "deadline lifted"
    assert "clients closed" in order


async def test_a_lane_that_fails_to_stop_cuts_short_no_other_lanes_drain() -> None:
    drained = asyncio.Event()

    async def fail(_deadline: float) -> None:
        raise OSError("no coordinator")

    async def drain(_deadline: float) -> None:
        await asyncio.sleep(0.01)
        drained.set()

    failing, draining = MagicMock(stop=fail), MagicMock(stop=drain)
    with pytest.raises(OSError, match="no coordinator"):
        await worker.stop_lanes([failing, draining], 10.0)
    assert drained.is_set()
