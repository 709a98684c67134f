"""Authenticates callers: asks Paperclip whose a bearer is, and caches the answer."""

import asyncio
import hashlib
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Protocol

from cachetools import LRUCache, TTLCache

from consumer.errors import DownKind, Permanent, UpstreamDown
from consumer.paperclip.models import Identity
from consumer.tools.credentials import (
    Agent,
    Claims,
    ToolError,
    agent_from_gateway,
    agent_from_key,
    is_paperclip_key,
    matches_secret,
)

CACHE_SIZE = 10_000
"""Bearers whose owner is cached, and as many refused ones: guessed keys never evict valid ones."""
NEW_KEY_LOOKUPS = 8
"""Concurrent lookups of bearers that were never valid here: guessed keys take no connections from agents at work."""
MAX_LOOKUPS = 1000
"""Lookups in progress or waiting; beyond that, bearers that were never valid here are refused."""
UNKNOWN_KEY = "Paperclip does not know your key as an agent's, or the key has expired."
BUSY = "The server is verifying too many keys. Try again in 5 s."


class KeyOwnerLookup(Protocol):
    """Paperclip's API, called with the caller's own bearer."""

    async def agent(self) -> Identity:
        """Whose the bearer is; raises from `consumer.errors`."""


class Authenticator:
    """Finds the agent that calls.

    Args:
        secret: the shared secret of Paperclip's tool connection; None if there is no such connection.
        owner_lookup: makes a client of Paperclip's API for a bearer; None if no Paperclip API is configured.
        ttl: seconds for which Paperclip's answer about a bearer is cached.
    """

    def __init__(
        self,
        secret: str | None,
        owner_lookup: Callable[[str], KeyOwnerLookup] | None,
        ttl: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._secret = secret
        self._owner_lookup = owner_lookup
        self._owners: TTLCache[bytes, Identity] = TTLCache(CACHE_SIZE, ttl, clock)
        self._refused: TTLCache[bytes, bool] = TTLCache(CACHE_SIZE, ttl, clock)
        self._verified: LRUCache[bytes, bool] = LRUCache(CACHE_SIZE)
        self._new_key_slots = asyncio.Semaphore(NEW_KEY_LOOKUPS)
        self._lookups: dict[bytes, asyncio.Task[Identity | None]] = {}

    def is_gateway(self, claims: Claims) -> bool:
        """Whether the caller is Paperclip's gateway."""
        return matches_secret(claims.bearer, self._secret)

    async def authenticate(self, claims: Claims) -> Agent:
        """The agent that calls.

        Raises:
            ToolError: the caller is not authenticated.
            HandlingError: Paperclip did not answer.
        """
        if self.is_gateway(claims):
            return agent_from_gateway(claims)
        if not is_paperclip_key(claims.bearer):
            raise ToolError(UNKNOWN_KEY)
        owner = await self._owner(claims.bearer)
        if owner is None or owner.agent_id is None:
            raise ToolError(UNKNOWN_KEY)
        return agent_from_key(claims, company=owner.company_ids[0], agent=owner.agent_id)

    async def _owner(self, bearer: str) -> Identity | None:
        key = hashlib.sha256(bearer.encode()).digest()  # bearers are not kept in memory
        owner = self._owners.get(key)
        if owner is not None or self._refused.get(key):
            return owner
        task = self._lookups.get(key)
        if task is None:
            if len(self._lookups) >= MAX_LOOKUPS and key not in self._verified:
                raise ToolError(BUSY, 503)
            task = self._lookups[key] = asyncio.create_task(self._look_up(key, bearer))
            task.add_done_callback(lambda done: (self._lookups.pop(key, None), done.cancelled() or done.exception()))
        return await asyncio.shield(task)  # concurrent calls share the lookup

    async def _look_up(self, key: bytes, bearer: str) -> Identity | None:
        if self._owner_lookup is None:
            raise ToolError("This server cannot verify agent keys: no Paperclip API is configured. Ask its operator.")
        try:
            async with nullcontext() if key in self._verified else self._new_key_slots:
                owner = await self._owner_lookup(bearer).agent()
        except Permanent:
            owner = None
        except UpstreamDown as error:
            if error.kind is not DownKind.REFUSED:
                raise
            owner = None
        if owner is None:
            self._refused[key] = True
        else:
            self._owners[key] = owner
            self._verified[key] = True
        return owner
