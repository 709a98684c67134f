"""Fairness between callers: limits on calls in flight and on their rate, for each agent and each company."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cachetools import LRUCache

from consumer.tools.credentials import Agent, ToolError
from consumer.tools.results import Tool, ToolOutcome, ToolResult

AGENT_SHARE, COMPANY_SHARE = 0.25, 0.75
"""Shares of `tools_in_flight` that one agent and one company may use."""
_BUCKETS = 20_000
_RETRY_IN_FLIGHT = 1


@dataclass(frozen=True, slots=True)
class Rate:
    """Calls per second in the long run, and calls at once after a pause."""

    per_second: float
    burst: int


RECALLS = (Rate(5.0, 100), Rate(50.0, 500))
"""Of an agent, and of a company. Calls that are answered from the cache are free."""
RETAINS = (Rate(1.0, 30), Rate(10.0, 200))
"""Of an agent, and of a company. Each costs a call of the language model."""


class CallLimits:
    """Admits calls.

    Args:
        in_flight: calls at once that the upstreams are meant for.
    """

    def __init__(self, in_flight: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shares = tuple(max(1, math.ceil(in_flight * share)) for share in (AGENT_SHARE, COMPANY_SHARE))
        self._in_flight: Counter[str] = Counter()
        self._buckets: LRUCache[tuple[str, Rate], tuple[float, float]] = LRUCache(_BUCKETS)

    @contextmanager
    def call(self, tool: Tool, agent: Agent) -> Iterator[Callable[[ToolResult], ToolResult]]:
        """Admit a call for as long as the block runs, and charge it. Yields a function that refunds a cached result.

        Raises:
            ToolError: the agent or its company has too many calls in flight, or calls too often (429).
        """
        for (caller, subject), rate in zip(_callers(agent), _rates(tool), strict=True):
            missing = 1 - self._tokens(caller, rate)
            if missing > 0:
                raise _too_many(f"{subject} made too many memory calls", math.ceil(missing / rate.per_second))

        def refund_if_cached(result: ToolResult) -> ToolResult:
            if result.outcome is ToolOutcome.CACHED:
                self._charge(tool, agent, -1)
            return result

        with self.slot(agent):
            self._charge(tool, agent, 1)
            yield refund_if_cached

    @contextmanager
    def slot(self, agent: Agent) -> Iterator[None]:
        """Count something of the agent's as in flight while the block runs: a call, or a body that is being read.

        Raises:
            ToolError: the agent or its company has too much in flight (429).
        """
        for (caller, subject), share in zip(_callers(agent), self._shares, strict=True):
            if self._in_flight[caller] >= share:
                raise _too_many(f"{subject} too many memory calls in progress", _RETRY_IN_FLIGHT)
        ids = (agent.agent, agent.company)
        self._in_flight.update(ids)
        try:
            yield
        finally:
            self._in_flight.subtract(ids)
            for caller in ids:
                if not self._in_flight[caller]:
                    del self._in_flight[caller]

    def _charge(self, tool: Tool, agent: Agent, tokens: int) -> None:
        for caller, rate in zip((agent.agent, agent.company), _rates(tool), strict=True):
            self._buckets[caller, rate] = (self._tokens(caller, rate) - tokens, self._clock())

    def _tokens(self, caller: str, rate: Rate) -> float:
        tokens, at = self._buckets.get((caller, rate), (float(rate.burst), self._clock()))
        return min(float(rate.burst), tokens + (self._clock() - at) * rate.per_second)


def _callers(agent: Agent) -> tuple[tuple[str, str], tuple[str, str]]:
    return (agent.agent, "You have"), (agent.company, "Your company has")


def _rates(tool: Tool) -> tuple[Rate, Rate]:
    return RETAINS if tool is Tool.RETAIN else RECALLS


def _too_many(problem: str, retry_after: int) -> ToolError:
    return ToolError(f"{problem}. Try again in {retry_after} s.", 429, retry_after)
