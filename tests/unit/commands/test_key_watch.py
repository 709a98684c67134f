"""The metric of the key's end, against scripted answers of Paperclip."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from consumer.commands import key_watch
from consumer.commands.key_watch import watch_key
from consumer.commands.runtime import Process
from consumer.errors import Transient, Upstream
from consumer.observability.prometheus import Metrics
from consumer.settings.model import Settings

END = 1_798_723_938.0


class Paperclip:
    """Answers in turn; then waits for ever."""

    def __init__(self, *answers: float | Exception | None) -> None:
        self.answers = list(answers)
        self.all_given = asyncio.Event()

    async def key_expires_at(self) -> float | None:
        if not self.answers:
            self.all_given.set()
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def process(**fields: Any) -> tuple[Process, CollectorRegistry]:
    registry = CollectorRegistry()
    metrics = Metrics(registry, version="1", lanes=(), operations={})
    configured = Settings(hindsight_api_url="http://hindsight", **fields)
    return Process(configured, registry, metrics, lambda _: None, lambda *_, **__: None), registry


@pytest.mark.parametrize(
    ("answers", "value"),
    [
        ((END,), END),
        ((None,), 0.0),
        ((Transient("answered 500", upstream=Upstream.PAPERCLIP), END), END),
        ((END, END + 86_400), END + 86_400),
    ],
    ids=["known", "no end", "after a failure", "asked again"],
)
async def test_the_metric_holds_the_end_of_the_key(
    answers: tuple[float | Exception | None, ...], value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    paperclip = Paperclip(*answers)

    @asynccontextmanager
    async def opened(_settings: Settings, _limit: int) -> AsyncIterator[Paperclip]:
        yield paperclip

    monkeypatch.setattr(key_watch, "open_paperclip", opened)
    monkeypatch.setattr(key_watch, "INTERVAL", 0.0)
    monkeypatch.setattr(key_watch, "RETRY_INTERVAL", 0.0)
    watched, registry = process(paperclip_api_url="http://paperclip", paperclip_api_key="sesame")
    async with watch_key(watched):
        await asyncio.wait_for(paperclip.all_given.wait(), 10)
    assert registry.get_sample_value("paperclip_memory_paperclip_key_expires_timestamp_seconds") == value


async def test_without_a_key_paperclip_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(key_watch, "open_paperclip")
    watched, registry = process(paperclip_api_url="http://paperclip")
    with capture_logs():
        async with watch_key(watched):
            await asyncio.sleep(0)
    assert registry.get_sample_value("paperclip_memory_paperclip_key_expires_timestamp_seconds") == 0.0
