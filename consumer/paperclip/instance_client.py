"""Client of what Paperclip says about itself, about our key and about the tools' connection."""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Self, TypeVar

from consumer.errors import Upstream
from consumer.http.rest_client import RestClient, Warn, silent
from consumer.http.transport import Transport
from consumer.paperclip.models import (
    Identity,
    Json,
    KeyKind,
    PaperclipOperation,
    parse_agent,
    parse_ids,
    parse_key_expiry,
    parse_release,
    parse_rows,
    path_uuid,
    query_string,
)

T = TypeVar("T")


class InstanceClient:
    """One Paperclip under one key. Every method raises from `consumer.errors`.

    Args:
        base: normalised by `consumer.http.transport.base_url`.
        timeout: seconds for a whole exchange; `probe_timeout` for health and the key.
        warn: tells the operator (event name and fields).
    """

    def __init__(
        self,
        send: Transport,
        base: str,
        *,
        key: str | None,
        user_agent: str,
        timeout: float = 15.0,
        probe_timeout: float = 5.0,
        warn: Warn = silent,
    ) -> None:
        self._rest = RestClient(
            send, base, Upstream.PAPERCLIP, key=key, user_agent=user_agent, timeout=timeout, warn=warn
        )
        self._probe_timeout = probe_timeout

    def with_key(self, key: str) -> Self:
        """The same Paperclip under another key.

        Raises:
            ValueError: no HTTP header can carry the key.
        """
        other = copy(self)
        other._rest = self._rest.under(key)  # noqa: SLF001 - one of us
        return other

    @property
    def clock_skew(self) -> float:
        """Seconds that Paperclip's clock is behind ours; see `RestClient.clock_skew`."""
        return self._rest.clock_skew

    async def server_date(self) -> str | None:
        """The `Date` header of an answer, as HTTP writes it; None if a proxy removed it."""
        reply = await self._rest.call(PaperclipOperation.CLOCK, "GET", "/api/health")
        return reply.headers.get("date")

    async def health(self) -> str | None:
        """The release, such as `2026.916.1`, if Paperclip is up; None if it does not tell it to our key.

        Needs no key, so it proves none.
        """
        operation = PaperclipOperation.HEALTH
        reply = await self._rest.call(operation, "GET", "/api/health", timeout=self._probe_timeout)
        return self._rest.read(reply, operation, parse_release)

    async def authenticate(self) -> Identity:
        """The owner of our key. A `local_trusted` server takes every unknown key for its admin's.

        Raises:
            UpstreamDown: with kind `refused`, if Paperclip does not know the key.
        """
        operation, timeout = PaperclipOperation.AUTHENTICATE, self._probe_timeout
        reply = await self._rest.call(operation, "GET", "/api/companies", accept=(403,), timeout=timeout)
        if reply.status != 403:
            return Identity(KeyKind.BOARD, self._rest.read(reply, operation, parse_ids))
        return await self.agent()

    async def agent(self) -> Identity:
        """The agent that our key belongs to; a run's token counts.

        Raises:
            UpstreamDown: with kind `refused`, if it is not an agent's.
        """
        operation = PaperclipOperation.AUTHENTICATE
        reply = await self._rest.call(operation, "GET", "/api/agents/me", timeout=self._probe_timeout)
        return self._rest.read(reply, operation, parse_agent)

    async def key_expires_at(self) -> float | None:
        """When our board key expires, seconds since the epoch.

        None if it does not expire, or Paperclip cannot say: without a key, with an agent's, in an older release.
        """
        operation = PaperclipOperation.KEY
        reply = await self._rest.call(operation, "GET", "/api/cli-auth/me", accept=(401, 403, 404))
        if reply.status == 404:
            return None
        key_id = self._rest.read(reply, operation, lambda value: value.get("keyId"))
        if not key_id:
            return None
        return await self._get(operation, "/api/board-api-keys", lambda value: parse_key_expiry(value, key_id))

    async def tool_connections(self, company_id: str) -> list[Json]:
        """A company's tool connections that are not archived; none if our key, or this release, shows none."""
        operation = PaperclipOperation.TOOL_CONNECTIONS
        path = f"/api/companies/{path_uuid(company_id)}/tools/connections"
        reply = await self._rest.call(operation, "GET", path, accept=(403, 404))
        if reply.status in (403, 404):
            return []
        connections = self._rest.read(reply, operation, lambda value: parse_rows(value["connections"]))
        return [connection for connection in connections if connection.get("status") != "archived"]

    async def _list(
        self, operation: PaperclipOperation, path: str, query: Mapping[str, object] | None = None
    ) -> list[Json]:
        return await self._get(operation, path + query_string(query or {}), parse_rows)

    async def _get(self, operation: PaperclipOperation, path: str, parse: Callable[[Any], T]) -> T:
        return self._rest.read(await self._rest.call(operation, "GET", path), operation, parse)
