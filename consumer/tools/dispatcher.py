"""Authenticates, limits, times and counts every tool call; never raises."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from consumer.errors import HandlingError
from consumer.tools.authenticator import Authenticator
from consumer.tools.call_limits import CallLimits
from consumer.tools.credentials import Agent, ToolError, read_claims
from consumer.tools.results import Tool, ToolOutcome, ToolResult, denied, failed, timed_out
from consumer.tools.service import NOT_SAVED, NOT_SEARCHED, MemoryService

BUDGET = 7.5
"""Seconds for a whole call, whatever Paperclip and Hindsight do: Paperclip's gateway gives up after 10."""
NOT_CHECKED = "Your identity could not be checked"

Observe = Callable[[Tool, ToolOutcome, float], None]
ToolFunction = Callable[[Agent], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True)
class CallContext:
    """An authenticated or refused request.

    Attributes:
        started: the event loop's time.
        caller: the agent; or the result that says why there is none.
        admitted: False if the credential itself was refused. True also while Paperclip cannot check it, and for
            Paperclip's gateway when it names no agent, as it does to list the tools.
        from_gateway: the caller is Paperclip's gateway.
    """

    started: float
    caller: Agent | ToolResult
    admitted: bool
    from_gateway: bool = False

    @classmethod
    def refused(cls, result: ToolResult) -> "CallContext":
        """A request that is refused before authentication."""
        return cls(asyncio.get_running_loop().time(), result, admitted=False)


class ToolDispatcher:
    """Runs tool calls.

    Args:
        observe: counts a call: tool, outcome, seconds.
        warn: logs a warning for the operator (event name and fields).
    """

    def __init__(
        self,
        service: MemoryService,
        authenticator: Authenticator,
        limits: CallLimits,
        observe: Observe,
        warn: Callable[..., None],
    ) -> None:
        self.service = service
        self._authenticator = authenticator
        self.limits = limits
        self._observe = observe
        self._warn = warn

    async def authenticate(self, headers: Iterable[tuple[bytes, bytes]]) -> CallContext:
        """Find out who calls."""
        started = asyncio.get_running_loop().time()
        from_gateway = False
        try:
            claims = read_claims(headers)
            from_gateway = self._authenticator.is_gateway(claims)
            async with asyncio.timeout_at(started + BUDGET):
                agent = await self._authenticator.authenticate(claims)
            return CallContext(started, agent, admitted=True, from_gateway=from_gateway)
        except ToolError as error:
            return CallContext(started, denied(error), admitted=from_gateway, from_gateway=from_gateway)
        except HandlingError as error:
            self._warn("cannot verify a key with Paperclip", error=str(error))
            return CallContext(started, failed(NOT_CHECKED, error), admitted=True)
        except TimeoutError:
            return CallContext(started, timed_out(NOT_CHECKED), admitted=True)

    async def call(self, tool: Tool, context: CallContext, function: ToolFunction) -> ToolResult:
        """Run a tool for the caller; raises only when cancelled."""
        caller = context.caller
        result = caller if isinstance(caller, ToolResult) else await self._run(tool, context, caller, function)
        self.count(tool, context, result)
        return result

    def count(self, tool: Tool, context: CallContext, result: ToolResult) -> None:
        """Count a result and its duration."""
        self._observe(tool, result.outcome, asyncio.get_running_loop().time() - context.started)

    def _check_enabled(self, agent: Agent) -> None:
        if not self.service.policy.is_enabled(agent.agent):
            raise ToolError("Memory is not enabled for you: your agent is not in enabled_agent_ids.", 403)

    async def _run(self, tool: Tool, context: CallContext, agent: Agent, function: ToolFunction) -> ToolResult:
        effect = NOT_SAVED if tool is Tool.RETAIN else NOT_SEARCHED
        try:
            self._check_enabled(agent)
            with self.limits.call(tool, agent) as refund_if_cached:
                async with asyncio.timeout_at(context.started + BUDGET):
                    return refund_if_cached(await function(agent))
        except ToolError as error:
            return denied(error)
        except TimeoutError:
            self._warn("tool call timed out", tool=tool)
            result = timed_out(effect)
            if tool is Tool.RETAIN:
                result = replace(result, text=f"{result.text} It may still be saved; saving it again is harmless.")
            return result
        except Exception as error:  # noqa: BLE001 - the agent gets a message, whatever our bug is
            self._warn("tool call failed unexpectedly", tool=tool, error=type(error).__name__)
            return ToolResult(f"{effect}: internal server error.", ToolOutcome.FAILED, 500)
