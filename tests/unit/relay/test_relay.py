"""The relay: where it begins, whom it follows, and the WebSocket's hints."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from consumer.errors import DownKind, SettingsError, Upstream, UpstreamDown
from consumer.observability.relay_gauges import RelayGauges, count_published, log_relay
from consumer.paperclip.models import Identity, KeyKind
from consumer.relay import relay as module
from consumer.relay.checkpoints import Checkpoint
from consumer.relay.relay import Plan, Relay
from consumer.relay.signals import Moved, Published, RelaySignal, RelayState, Source, Told
from consumer.relay.websocket import Hints, Wake
from consumer.settings.model import load_settings
from demo import recording
from tests.unit.relay.paper import COMPANY, NOON, new_id


class Kept:
    """In the place of `Checkpoints`."""

    def __init__(self, start: float | None = None) -> None:
        self.start = start
        self.held: dict[str, Checkpoint] = {}
        self.failures: list[Exception] = []

    async def read(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    async def begin(self, start: float) -> None:
        self.start = start

    def of(self, company: str) -> Checkpoint | None:
        return self.held.get(company)


class Follower:
    """In the place of a `Company`."""

    def __init__(self, at: Checkpoint) -> None:
        self.at = at
        self.state = RelayState.FOLLOWING
        self.read_at = dict.fromkeys(Source, NOON)
        self.stopped = False
        self.fails: Exception | None = None

    async def run(self) -> None:
        try:
            while self.fails is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
            raise self.fails
        finally:
            self.stopped = True


class Desk:
    def __init__(self, *companies: str, wanted: tuple[str, ...] | None = None, start: str = "now") -> None:
        self.visible: tuple[str, ...] = companies
        self.date: str | None = "Mon, 30 Nov 2026 12:00:00 GMT"
        self.kept, self.heard = Kept(), list[RelaySignal]()
        self.failures: list[Exception] = []
        self.opened: dict[str, Follower] = {}
        self.relay = Relay(Plan(wanted, start), self, self.kept, self.open, self.heard.append, lambda: NOON + 500)  # type: ignore[arg-type]

    def open(self, at: Checkpoint) -> Follower:
        self.opened[at.company_id] = Follower(at)
        return self.opened[at.company_id]

    async def authenticate(self) -> Identity:
        if self.failures:
            raise self.failures.pop(0)
        return Identity(KeyKind.BOARD, self.visible)

    async def server_date(self) -> str | None:
        return self.date

    async def running(self, until: Callable[[], bool]) -> None:
        task = asyncio.create_task(self.relay.run())
        try:
            async with asyncio.timeout(5):
                while not until():
                    await asyncio.sleep(0)
                    if task.done():
                        task.result()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DISCOVERY", 0.001)
    monkeypatch.setattr("consumer.stream.retry.RetryPolicy.delay", lambda *_: 0.0)


@pytest.mark.parametrize(
    ("start", "date", "begins"),
    [
        ("now", "Mon, 30 Nov 2026 12:00:00 GMT", NOON),
        ("now", None, NOON + 500),
        ("now", "soon", NOON + 500),
        ("beginning", None, 0.0),
        ("2026-11-30T12:00:30+00:00", None, NOON + 30),
    ],
)
async def test_where_it_begins_when_it_is_first_started(start: str, date: str | None, begins: float) -> None:
    """By Paperclip's clock, not ours."""
    desk = Desk(COMPANY, start=start)
    desk.date = date
    await desk.running(lambda: desk.relay.ready)
    assert desk.kept.start == begins
    assert desk.opened[COMPANY].at == Checkpoint.fresh(COMPANY, begins)


async def test_later_it_goes_on_where_it_was_and_a_new_company_begins_where_the_relay_began() -> None:
    other = new_id()
    desk = Desk(COMPANY, other, start="beginning")
    desk.kept.start = NOON - 1_000
    known = desk.kept.held[COMPANY] = Checkpoint.fresh(COMPANY, NOON - 500)
    await desk.running(lambda: len(desk.opened) == 2)
    assert desk.opened[COMPANY].at == known
    assert desk.opened[other].at == Checkpoint.fresh(other, NOON - 1_000)


async def test_companies_come_and_go_without_a_restart() -> None:
    first, second = new_id(), new_id()
    desk = Desk(first)

    def moved_on() -> bool:
        if first in desk.opened and second not in desk.opened:
            desk.visible = (second,)
        return second in desk.opened and desk.opened[first].stopped

    await desk.running(moved_on)
    assert desk.opened[second].stopped  # with the relay itself


async def test_only_those_that_are_wanted() -> None:
    first, second, unseen = new_id(), new_id(), new_id()
    desk = Desk(first, second, wanted=(second, unseen))
    await desk.running(lambda: desk.relay.ready)
    assert desk.opened.keys() == {second}
    assert Told("the key shows no such company", {"company": unseen}) in desk.heard


async def test_it_waits_for_kafka_and_for_a_good_key() -> None:
    desk = Desk(COMPANY)
    desk.kept.failures = [UpstreamDown("no broker", upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE)]
    desk.failures = [UpstreamDown("401", upstream=Upstream.PAPERCLIP, kind=DownKind.REFUSED)]
    states: list[RelayState] = []
    read_at: list[float] = []

    def ready() -> bool:
        states.extend(desk.relay.states())
        read_at.append(desk.relay.read_at(Source.RUNS))
        return desk.relay.ready

    await desk.running(ready)
    assert list(dict.fromkeys(states)) == [RelayState.BLOCKED, RelayState.REFUSED, RelayState.FOLLOWING]
    assert (read_at[0], read_at[-1]) == (NOON + 500, NOON)  # nothing was read before it began


async def test_a_follower_that_fails_by_a_bug_ends_the_relay() -> None:
    desk = Desk(COMPANY)

    def broken() -> bool:
        if COMPANY in desk.opened:
            desk.opened[COMPANY].fails = RuntimeError("a bug")
        return False

    with pytest.raises(RuntimeError, match="a bug"):
        await desk.running(broken)


class TestHints:
    """What the WebSocket's messages lead to."""

    def hints(self, base: str = "http://localhost:3100", company: str = COMPANY) -> tuple[Hints, Wake, Wake]:
        comments, runs = Wake(), Wake()
        return Hints(base, {"Authorization": "Bearer key"}, company, comments, runs), comments, runs

    @pytest.mark.parametrize("message", recording.live_events(), ids=lambda each: f"{each['id']}")
    async def test_recorded_messages(self, message: dict[str, object]) -> None:
        hints, comments, runs = self.hints()
        hints.take(json.dumps(message))
        payload = message["payload"]
        assert isinstance(payload, dict)
        is_comment = str(payload.get("action")).startswith("issue.comment_")
        is_status = message["type"] == "heartbeat.run.status"
        ended = is_status and payload["status"] in ("succeeded", "failed", "cancelled")
        assert comments._event.is_set() is (is_comment or ended)
        assert comments.take() == ((), ended)
        assert runs.take() == ((payload["runId"],) if is_status else (), False)

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"type":1,"payload":null}', '{"type":"activity.logged"}'])
    async def test_odd_messages_are_passed_over(self, text: str) -> None:
        hints, comments, runs = self.hints()
        hints.take(text)
        assert [comments._event.is_set(), runs._event.is_set()] == [False, False]

    async def test_it_is_opened_again_and_each_time_all_is_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("consumer.relay.websocket.FIRST_RETRY", 0.001)
        opened: list[str] = []

        async def serve(request: web.Request) -> web.WebSocketResponse:
            opened.append(f"{request.path} {request.headers['Authorization']}")
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            payload = {"runId": f"run-{len(opened)}", "status": "running"}
            await socket.send_json({"type": "heartbeat.run.status", "payload": payload})
            await socket.close()
            return socket

        async with _serving(web.get("/base/api/companies/{id}/events/ws", serve)) as url:
            hints, comments, runs = self.hints(f"{url}/base")
            await _while_running(hints, lambda: len(opened) >= 2)
        assert opened[0] == f"/base/api/companies/{COMPANY}/events/ws Bearer key"
        assert comments.take() == ((), True)
        assert runs.take()[0][:1] == ("run-1",)
        assert not hints.connected

    async def test_a_key_that_may_not_is_not_tried_again_soon(self) -> None:
        asked: list[int] = []

        async def refuse(_: web.Request) -> web.Response:
            asked.append(1)
            return web.Response(status=403)

        async with _serving(web.get("/api/companies/{id}/events/ws", refuse)) as url:
            hints, comments, _ = self.hints(url)
            await _while_running(hints, lambda: bool(asked))
        assert not comments._event.is_set()

    async def test_a_wake_that_is_not_set_ends_by_itself(self) -> None:
        wake = Wake()
        await wake.wait(0.001)
        assert wake.take() == ((), False)


class _serving:  # noqa: N801 - a context manager
    def __init__(self, route: web.RouteDef) -> None:
        app = web.Application()
        app.add_routes([route])
        self._runner = web.AppRunner(app)

    async def __aenter__(self) -> str:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


async def _while_running(hints: Hints, condition: Callable[[], bool]) -> None:
    task: asyncio.Task[None] = asyncio.create_task(hints.run())
    try:
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_metrics() -> None:
    registry = CollectorRegistry()
    topics = {Source.COMMENTS: "comments", Source.RUNS: "runs"}
    count = count_published(registry, topics.values())
    states = [RelayState.FOLLOWING, RelayState.FOLLOWING, RelayState.REFUSED]
    registry.register(RelayGauges(topics, lambda source: NOON - len(source), lambda: states, lambda: NOON))
    count(Published("runs", 2))
    count(Told("nothing", {}))
    text = generate_latest(registry).decode()
    assert 'paperclip_memory_relay_published_total{topic="runs"} 2.0' in text
    assert 'paperclip_memory_relay_published_total{topic="comments"} 0.0' in text
    assert 'paperclip_memory_relay_lag_seconds{topic="comments"} 8.0' in text
    assert 'paperclip_memory_relay_companies{state="following"} 2.0' in text
    assert 'paperclip_memory_relay_companies{state="refused"} 1.0' in text
    assert 'paperclip_memory_relay_companies{state="slow"} 0.0' in text


def test_the_log_says_each_trouble_once_and_when_it_ends() -> None:
    lines: list[tuple[str, str]] = []

    class Log:
        def __getattr__(self, level: str) -> Callable[..., None]:
            return lambda event, **_: lines.append((level, event))

    notify = log_relay(Log())  # type: ignore[arg-type]
    trouble = Moved(COMPANY, Source.RUNS, RelayState.REFUSED, "401", 1.0)
    for signal in (
        trouble,
        trouble,
        Moved(COMPANY, Source.RUNS, RelayState.FAILING, "500", 1.0),
        Moved(COMPANY, Source.RUNS, RelayState.FOLLOWING),
        Told("an issue is passed over", {"company": COMPANY}),
        Told("an issue is passed over", {"company": COMPANY}),
        Told("following Paperclip", {}, expected=True),
        Published("runs", 1),
    ):
        notify(signal)
    assert lines == [
        ("warning", "not following company"),
        ("warning", "not following company"),
        ("info", "following company again"),
        ("warning", "an issue is passed over"),
        ("info", "following Paperclip"),
        ("debug", "events published"),
    ]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("Now", "now"),
        (" beginning ", "beginning"),
        ("2026-11-30T10:00:00Z", "2026-11-30T10:00:00+00:00"),
        ("2026-11-30", "2026-11-30T00:00:00"),
    ],
)
def test_where_to_begin_as_a_setting(given: str, kept: str) -> None:
    assert load_settings(hindsight_api_url="http://localhost:8888", relay_start=given).relay_start == kept


def test_a_beginning_that_is_none() -> None:
    with pytest.raises(SettingsError, match="must be now, beginning, or a time"):
        load_settings(hindsight_api_url="http://localhost:8888", relay_start="yesterday")
