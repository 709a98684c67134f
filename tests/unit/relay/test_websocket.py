"""The WebSocket listener: which messages set which trigger, and how it reconnects."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from consumer.relay.websocket import PollTrigger, WebSocketListener
from demo import recording
from tests.support.fake_feed import COMPANY
from tests.unit.relay.harness import running

RUN = "f287efe6-ea0c-4d1b-a555-2124ecfd6e38"


class Listener:
    """A listener and its triggers."""

    def __init__(self, base: str = "http://localhost:3100") -> None:
        self.comments, self.runs = PollTrigger(), PollTrigger()
        headers = {"Authorization": "Bearer key"}
        self.websocket = WebSocketListener(base, headers, COMPANY, self.comments, self.runs)


@pytest.mark.parametrize("message", recording.live_events(), ids=lambda message: f"{message['id']}")
async def test_recorded_message_sets_the_triggers_that_it_concerns(message: dict[str, object]) -> None:
    listener = Listener()
    listener.websocket.handle(json.dumps(message))
    payload = message["payload"]
    assert isinstance(payload, dict)
    is_comment = str(payload.get("action")).startswith("issue.comment_")
    is_status = message["type"] == "heartbeat.run.status"
    ended = is_status and payload["status"] in ("succeeded", "failed", "cancelled")
    assert listener.comments.is_set is (is_comment or ended)
    assert listener.comments.take() == ((), ended)
    assert listener.runs.take() == ((payload["runId"],) if is_status else (), False)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"type":1,"payload":null}', '{"type":"activity.logged"}'])
async def test_message_in_another_shape_is_ignored(text: str) -> None:
    listener = Listener()
    listener.websocket.handle(text)
    assert [listener.comments.is_set, listener.runs.is_set] == [False, False]


@pytest.mark.parametrize("run_id", [None, 7, "no-uuid"])
async def test_status_of_a_run_without_a_uuid_triggers_a_poll_for_no_run_in_particular(run_id: object) -> None:
    listener = Listener()
    payload = {"runId": run_id, "status": "running"}
    listener.websocket.handle(json.dumps({"type": "heartbeat.run.status", "payload": payload}))
    assert listener.runs.is_set
    assert listener.runs.take() == ((), False)


async def test_message_nested_too_deeply_sets_its_trigger() -> None:
    listener = Listener()
    deep = "[" * 100_000 + "]" * 100_000
    listener.websocket.handle(
        f'{{"type":"heartbeat.run.status","payload":{{"runId":"{COMPANY}","status":"running","x":{deep}}}}}'
    )
    assert listener.runs.take() == ((COMPANY,), False)


async def test_closed_websocket_is_opened_again_and_sets_full_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.relay.websocket.FIRST_RETRY", 0.001)
    requests: list[str] = []

    async def handle(request: web.Request) -> web.WebSocketResponse:
        requests.append(f"{request.path} {request.headers['Authorization']}")
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        payload = {"runId": RUN, "status": "running"}
        await socket.send_json({"type": "heartbeat.run.status", "payload": payload})
        await socket.close()
        return socket

    async with served(web.get("/base/api/companies/{id}/events/ws", handle)) as url:
        listener = Listener(f"{url}/base")
        await listen_until(listener, lambda: len(requests) >= 2)
    assert requests[0] == f"/base/api/companies/{COMPANY}/events/ws Bearer key"
    assert listener.comments.take() == ((), True)
    assert listener.runs.take() == ((RUN,), True)
    assert not listener.websocket.connected


async def test_a_message_over_the_limit_is_not_read_and_the_websocket_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("consumer.relay.websocket.FIRST_RETRY", 0.001)
    monkeypatch.setattr("consumer.relay.websocket.MAX_BODY", 1000)
    requests: list[str] = []
    handled: list[int] = []

    async def handle(request: web.Request) -> web.WebSocketResponse:
        requests.append(request.path)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str("x" * 900)
        await socket.send_str("x" * 1001)
        await socket.receive()
        return socket

    async with served(web.get("/api/companies/{id}/events/ws", handle)) as url:
        listener = Listener(url)
        monkeypatch.setattr(listener.websocket, "handle", lambda text: handled.append(len(text)))
        await listen_until(listener, lambda: len(requests) >= 2)
    assert set(handled) == {900}


async def test_refused_websocket_sets_no_trigger() -> None:
    requests: list[str] = []

    async def refuse(request: web.Request) -> web.Response:
        requests.append(request.path)
        return web.Response(status=403)

    async with served(web.get("/api/companies/{id}/events/ws", refuse)) as url:
        listener = Listener(url)
        await listen_until(listener, lambda: bool(requests))
    assert not listener.comments.is_set


async def test_trigger_that_is_not_set_ends_its_wait_by_itself() -> None:
    trigger = PollTrigger()
    await trigger.wait(0.001)
    assert trigger.take() == ((), False)


@asynccontextmanager
async def served(route: web.RouteDef) -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes([route])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def listen_until(listener: Listener, condition: Callable[[], bool]) -> None:
    async with running(listener.websocket.run()), asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
