"""Listens to Paperclip's WebSocket, which says at once that something has changed. It is never the source of an event.

The WebSocket has no replay, and not every key may open it (board keys get 403). Without it, polls are only less prompt.
"""

import asyncio
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from consumer.http.transport import MAX_BODY
from consumer.relay.event_builder import ACTIONS, TERMINAL
from schemas.codec import loads
from schemas.paperclip import is_uuid

HEARTBEAT = 20.0
FIRST_RETRY, LONGEST_RETRY, REFUSED_RETRY = 1.0, 30.0, 600.0


class PollTrigger:
    """Starts a poller's next poll before its interval is over."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._runs: dict[str, None] = {}
        self._full_sweep = False

    @property
    def is_set(self) -> bool:
        """Whether a poll is due."""
        return self._event.is_set()

    def set(self, *, runs: Iterable[str] = (), full_sweep: bool = False) -> None:
        """Poll now; `runs` have changed."""
        self._runs |= dict.fromkeys(runs)
        self._full_sweep = self._full_sweep or full_sweep
        self._event.set()

    async def wait(self, timeout: float) -> None:
        """Return when a poll is due, at the latest after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            pass

    def take(self) -> tuple[tuple[str, ...], bool]:
        """The changed runs since the last call, and whether a full sweep is due; resets the trigger."""
        taken = tuple(self._runs), self._full_sweep
        self._event.clear()
        self._runs, self._full_sweep = {}, False
        return taken


class WebSocketListener:
    """The WebSocket of one company.

    Attributes:
        connected: whether it is open now.
    """

    def __init__(
        self, base: str, headers: Mapping[str, str], company: str, comments: PollTrigger, runs: PollTrigger
    ) -> None:
        parts = urlsplit(base)
        scheme = "wss" if parts.scheme == "https" else "ws"
        path = f"{parts.path}/api/companies/{company}/events/ws"
        self._url = urlunsplit((scheme, parts.netloc, path, "", ""))
        self._headers = dict(headers)
        self._comments = comments
        self._runs = runs
        self.connected = False

    async def run(self) -> None:
        """Listen until cancelled; reconnects whatever ends the connection."""
        delay = FIRST_RETRY
        async with aiohttp.ClientSession(headers=self._headers) as session:
            while True:
                try:
                    async with session.ws_connect(self._url, heartbeat=HEARTBEAT, max_msg_size=MAX_BODY) as socket:
                        self.connected, delay = True, FIRST_RETRY
                        self._comments.set(full_sweep=True)
                        self._runs.set(full_sweep=True)
                        async for message in socket:
                            if message.type is aiohttp.WSMsgType.TEXT:
                                self.handle(message.data)
                except aiohttp.WSServerHandshakeError as error:
                    delay = REFUSED_RETRY if error.status in (401, 403, 404) else delay
                except (aiohttp.ClientError, OSError, TimeoutError):
                    pass
                finally:
                    self.connected = False
                await asyncio.sleep(delay)
                delay = delay if delay == REFUSED_RETRY else min(2 * delay, LONGEST_RETRY)

    def handle(self, text: str) -> None:
        """Set the triggers that a message concerns; other messages are ignored."""
        try:
            message, _ = loads(text.encode("utf-8", "surrogatepass"))
            kind, payload = message["type"], message["payload"]
            if kind == "activity.logged" and payload["action"] in ACTIONS:
                self._comments.set()
            elif kind == "heartbeat.run.status":
                self._runs.set(runs=[run for run in [payload["runId"]] if is_uuid(run)])
                if payload["status"] in TERMINAL:  # its last answer can be a comment without activity
                    self._comments.set(full_sweep=True)
        except (ValueError, LookupError, TypeError):
            return
