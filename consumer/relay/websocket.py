"""Paperclip's WebSocket: it says at once that there is something to look at. It is never the source of an event.

It has no replay, and not every key may open it (board keys get 403): without it, looks are only less prompt.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from consumer.relay.event_builder import ACTIONS, TERMINAL

HEARTBEAT = 20.0
FIRST_RETRY, LONGEST_RETRY, REFUSED_RETRY = 1.0, 30.0, 600.0


class Wake:
    """Wakes a follower up: to look at comments, or at runs."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._runs: dict[str, None] = {}
        self._thorough = False

    def set(self, *, runs: Iterable[str] = (), thorough: bool = False) -> None:
        """Look now; at these runs, and thoroughly if so said."""
        self._runs |= dict.fromkeys(runs)
        self._thorough = self._thorough or thorough
        self._event.set()

    async def wait(self, timeout: float) -> None:
        """Return when told to, or when the time is up."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            pass

    def take(self) -> tuple[tuple[str, ...], bool]:
        """The runs to look at, and whether to look thoroughly, since the last time."""
        taken = tuple(self._runs), self._thorough
        self._event.clear()
        self._runs, self._thorough = {}, False
        return taken


class Hints:
    """One company's WebSocket.

    Attributes:
        connected: whether it is open now.
    """

    def __init__(self, base: str, headers: Mapping[str, str], company: str, comments: Wake, runs: Wake) -> None:
        parts = urlsplit(base)
        scheme = "wss" if parts.scheme == "https" else "ws"
        path = f"{parts.path}/api/companies/{company}/events/ws"
        self._url = urlunsplit((scheme, parts.netloc, path, "", ""))
        self._headers = dict(headers)
        self._comments = comments
        self._runs = runs
        self.connected = False

    async def run(self) -> None:
        """Follow it until cancelled; whatever ends it, it is opened again."""
        delay = FIRST_RETRY
        async with aiohttp.ClientSession(headers=self._headers) as session:
            while True:
                try:
                    async with session.ws_connect(self._url, heartbeat=HEARTBEAT, max_msg_size=0) as socket:
                        self.connected, delay = True, FIRST_RETRY
                        self._comments.set(thorough=True)
                        self._runs.set(thorough=True)
                        async for message in socket:
                            if message.type is aiohttp.WSMsgType.TEXT:
                                self.take(message.data)
                except aiohttp.WSServerHandshakeError as error:
                    delay = REFUSED_RETRY if error.status in (401, 403, 404) else delay
                except (aiohttp.ClientError, OSError, TimeoutError):
                    pass
                finally:
                    self.connected = False
                await asyncio.sleep(delay)
                delay = delay if delay == REFUSED_RETRY else min(2 * delay, LONGEST_RETRY)

    def take(self, text: str) -> None:
        """Take a message; what is no news of comments or runs is passed over."""
        try:
            message = json.loads(text)
            kind, payload = message["type"], message["payload"]
            if kind == "activity.logged" and payload["action"] in ACTIONS:
                self._comments.set()
            elif kind == "heartbeat.run.status":
                self._runs.set(runs=[payload["runId"]])
                if payload["status"] in TERMINAL:  # its last answer can be a comment without an event
                    self._comments.set(thorough=True)
        except (ValueError, LookupError, TypeError):
            return
