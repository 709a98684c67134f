"""Proves who calls: asks Paperclip whose a bearer is, and keeps its word for a while."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from consumer.errors import DownKind, Permanent, UpstreamDown
from consumer.paperclip.models import Identity
from consumer.tools.credentials import Agent, Claims, Refused, is_secret, own, spoken_for

LIMIT = 10_000
"""Bearers whose owner is remembered, and as many refusals: tried keys never push out good ones."""

V = TypeVar("V")


class AsCaller(Protocol):
    """Paperclip's API under a caller's own bearer."""

    async def agent(self) -> Identity:
        """Whose the bearer is; raises from `consumer.errors`."""


class Callers:
    """The gate of all tools.

    Args:
        secret: the operator's, of Paperclip's tool connection; None if there is no such connection.
        as_caller: makes a client of Paperclip's API with a bearer; None if no Paperclip API is configured.
        ttl: seconds for which Paperclip's word on a bearer counts.
    """

    def __init__(
        self,
        secret: str | None,
        as_caller: Callable[[str], AsCaller] | None,
        ttl: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._secret = secret
        self._as_caller = as_caller
        self._owners: _Remembered[Identity] = _Remembered(ttl, LIMIT, clock)
        self._refused: _Remembered[bool] = _Remembered(ttl, LIMIT, clock)
        self._asking: dict[bytes, asyncio.Task[Identity | None]] = {}

    def is_gateway(self, claims: Claims) -> bool:
        """Whether Paperclip's gateway calls."""
        return is_secret(claims.bearer, self._secret)

    async def identify(self, claims: Claims) -> Agent:
        """The agent that calls.

        Raises:
            Refused: it is not proven who calls.
            HandlingError: Paperclip cannot be asked.
        """
        if self.is_gateway(claims):
            return spoken_for(claims)
        owner = await self._owner(claims.bearer)
        if owner is None or owner.agent_id is None:
            raise Refused("Paperclip does not know your key as an agent's, or it has expired.")
        return own(claims, company=owner.company_ids[0], agent=owner.agent_id)

    async def _owner(self, bearer: str) -> Identity | None:
        key = hashlib.sha256(bearer.encode()).digest()  # bearers are not kept
        owner = self._owners.get(key)
        if owner is not None or self._refused.get(key):
            return owner
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._ask(key, bearer))
            task.add_done_callback(lambda done: (self._asking.pop(key, None), done.cancelled() or done.exception()))
        return await asyncio.shield(task)  # others wait for the same answer

    async def _ask(self, key: bytes, bearer: str) -> Identity | None:
        if self._as_caller is None:
            raise Refused("This server cannot check keys of agents: it knows no Paperclip. Ask its operator.")
        try:
            owner = await self._as_caller(bearer).agent()
        except Permanent:
            owner = None
        except UpstreamDown as error:
            if error.kind is not DownKind.REFUSED:
                raise
            owner = None
        if owner is None:
            self._refused.put(key, True)
        else:
            self._owners.put(key, owner)
        return owner


class _Remembered(Generic[V]):
    """Values for a while, the oldest out first when there are too many."""

    def __init__(self, ttl: float, limit: int, clock: Callable[[], float]) -> None:
        self._ttl = ttl
        self._limit = limit
        self._clock = clock
        self._values: OrderedDict[bytes, tuple[float, V]] = OrderedDict()

    def get(self, key: bytes) -> V | None:
        found = self._values.get(key)
        return found[1] if found is not None and self._clock() < found[0] else None

    def put(self, key: bytes, value: V) -> None:
        self._values.pop(key, None)
        self._values[key] = (self._clock() + self._ttl, value)
        while len(self._values) > self._limit or next(iter(self._values.values()))[0] <= self._clock():
            self._values.popitem(last=False)
