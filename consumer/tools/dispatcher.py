"""The one way in for all calls: who calls is proven, time is bounded, all is counted, whatever happens is an answer."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from consumer.errors import HandlingError
from consumer.tools.authenticator import Callers
from consumer.tools.credentials import Agent, Refused, claims_of
from consumer.tools.results import Answer, Tool, ToolOutcome, denied, failed, late
from consumer.tools.service import NOT_SAVED, NOT_SEARCHED, Memories

BUDGET = 7.5
"""Seconds from a request to its answer, whatever Paperclip and Hindsight do: Paperclip's gateway gives up at 10."""

Observe = Callable[[Tool, ToolOutcome, float], None]
Work = Callable[[Agent], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Visit:
    """A request whose headers were looked at.

    Attributes:
        started: the event loop's time.
        who: the agent; or why there is none, as an answer.
        admitted: False if the credential itself is refused. True also while Paperclip cannot be asked about it, and for
            Paperclip's gateway when it speaks for nobody, as it does when it lists the tools.
        from_gateway: Paperclip's gateway calls.
    """

    started: float
    who: Agent | Answer
    admitted: bool
    from_gateway: bool = False


class Desk:
    """Takes calls.

    Args:
        observe: counts a call: which, how it ended, seconds.
        warn: says something to the operator (event name and fields).
    """

    def __init__(self, memories: Memories, callers: Callers, observe: Observe, warn: Callable[..., None]) -> None:
        self.memories = memories
        self._callers = callers
        self._observe = observe
        self._warn = warn

    async def enter(self, headers: Iterable[tuple[bytes, bytes]]) -> Visit:
        """Find out who calls."""
        started = asyncio.get_running_loop().time()
        gateway = False
        try:
            claims = claims_of(headers)
            gateway = self._callers.is_gateway(claims)
            async with asyncio.timeout_at(started + BUDGET):
                return Visit(started, await self._callers.identify(claims), admitted=True, from_gateway=gateway)
        except Refused as refusal:
            return Visit(started, denied(refusal), admitted=gateway, from_gateway=gateway)
        except HandlingError as error:
            self._warn("Paperclip cannot be asked whose a key is", error=str(error))
            return Visit(started, failed("Who you are could not be checked", error), admitted=True)
        except TimeoutError:
            return Visit(started, late("Who you are could not be checked"), admitted=True)

    async def call(self, tool: Tool, visit: Visit, work: Work) -> Answer:
        """Do the work for who calls; never raises but when cancelled."""
        answer = visit.who if isinstance(visit.who, Answer) else await self._work(tool, visit, visit.who, work)
        self.count(tool, visit, answer)
        return answer

    def count(self, tool: Tool, visit: Visit, answer: Answer) -> None:
        """Count an answer."""
        self._observe(tool, answer.outcome, asyncio.get_running_loop().time() - visit.started)

    def _gate(self, agent: Agent) -> None:
        if not self.memories.rules.enabled(agent.agent):
            raise Refused("Memory is not enabled for you: your agent is not in enabled_agent_ids.", 403)

    async def _work(self, tool: Tool, visit: Visit, agent: Agent, work: Work) -> Answer:
        effect = NOT_SAVED if tool is Tool.RETAIN else NOT_SEARCHED
        try:
            self._gate(agent)
            async with asyncio.timeout_at(visit.started + BUDGET):
                return await work(agent)
        except Refused as refusal:
            return denied(refusal)
        except TimeoutError:
            self._warn("a tool call had no answer in time", tool=tool)
            doubt = " It may be saved later all the same; saving it again does no harm." if tool is Tool.RETAIN else ""
            answer = late(effect)
            return Answer(answer.text + doubt, answer.outcome, answer.status, answer.retry_after)
        except Exception as error:  # noqa: BLE001 - an agent gets words, whatever is wrong here
            self._warn("a tool call failed by a fault of ours", tool=tool, error=type(error).__name__)
            return Answer(f"{effect}: something is wrong with this server.", ToolOutcome.FAILED, 500)
