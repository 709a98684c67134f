"""Where a call's memories are: the run it comes from, and the bank, derived as the handlers derive it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from consumer.handlers.lookups import bank_user
from consumer.memory.banks import bank_of
from consumer.memory.policy import Rules
from consumer.tools.credentials import Agent, Refused
from schemas.objects import Issue, Run
from schemas.recalls import RecallRecord

NOT_YOURS = "The run that you name is none of yours."
NO_USER_KNOWN = (
    "Memory is kept for each user here, and without a run or an issue of yours it is not known whose this is: "
    "send the header X-Paperclip-Run-Id with PAPERCLIP_RUN_ID."
)
NO_USER = "Memory is kept for each user here, and this issue has none: there is no memory for it."


class Lookups(Protocol):
    """What is asked of Paperclip. Each method raises from `consumer.errors`; None is what the key is not shown."""

    async def run(self, run_id: str) -> Run | None: ...

    async def issue(self, issue_id: str) -> Issue | None: ...


@dataclass(frozen=True, slots=True)
class CallRun:
    """The run that a call comes from; nothing is known when it comes from none.

    Attributes:
        record: what was recalled at its start.
        run: as Paperclip answers it; only asked for where it is needed.
    """

    record: RecallRecord | None = None
    run: Run | None = None

    @property
    def issue_id(self) -> str | None:
        """The issue that the run is about."""
        if self.record is not None:
            return self.record.issue_id
        snapshot = self.run.context_snapshot if self.run is not None else None
        return snapshot.issue_id if snapshot is not None else None


@dataclass(frozen=True, slots=True)
class Place:
    """A bank, and whose it is."""

    bank: str
    issue: str | None = None
    user: str | None = None


class Places:
    """Finds runs and banks.

    Args:
        known: what was recalled for a run; None if there is nothing, or not yet.
        lookups: Paperclip, as seen by an agent (or by us, for one that the gateway speaks for); None without an API.
    """

    def __init__(
        self,
        rules: Rules,
        known: Callable[[str], RecallRecord | None],
        lookups: Callable[[Agent], Lookups | None],
    ) -> None:
        self._rules = rules
        self._known = known
        self._lookups = lookups

    async def run_of(self, agent: Agent, *, whole: bool = False) -> CallRun:
        """The run that a call names, which must be the agent's.

        The gateway checks that itself, so for what it forwards Paperclip is only asked when more of the run is needed.

        Args:
            whole: Paperclip's own object is needed when nothing was recalled for the run.

        Raises:
            Refused: it is another agent's, or there is none.
            HandlingError: Paperclip cannot be asked.
        """
        if agent.run is None:
            return CallRun()
        record = self._known(agent.run)
        if record is not None:
            if (record.company_id, record.agent_id) != (agent.company, agent.agent):
                raise Refused(NOT_YOURS)
            return CallRun(record)
        lookups = self._lookups(agent)
        needed = agent.bearer is not None or whole or self._rules.needs_user
        if not needed or lookups is None:
            return CallRun()
        run = await lookups.run(agent.run)
        if run is None or (run.company_id, run.agent_id) != (agent.company, agent.agent):
            raise Refused(NOT_YOURS)
        return CallRun(run=run)

    async def place_of(self, agent: Agent, call: CallRun) -> Place:
        """The bank of a call: the run's, else as the rules say; never a wider one because something is not known.

        Raises:
            Refused: no bank can be given.
            HandlingError: Paperclip cannot be asked.
        """
        rules, record = self._rules, call.record
        if record is not None and record.bank_id is not None:
            return Place(record.bank_id, record.issue_id, record.user_id)
        issue_id, user = call.issue_id, None
        if rules.needs_user:
            issue = await self._issue(agent, issue_id)
            issue_id, user = issue.id, bank_user(issue, rules)
        bank = bank_of(rules, company=agent.company, agent=agent.agent, user=user)
        if bank is None or (rules.needs_user and rules.user_required and user is None):
            raise Refused(NO_USER, 409)
        return Place(bank, issue_id, user)

    async def _issue(self, agent: Agent, of_run: str | None) -> Issue:
        """The issue of the run, else the one that the headers name, if it is assigned to the agent."""
        issue_id, lookups = of_run or agent.issue, self._lookups(agent)
        if issue_id is None or lookups is None:
            raise Refused(NO_USER_KNOWN, 409)
        issue = await lookups.issue(issue_id)
        if issue is None or issue.company_id != agent.company:
            raise Refused(NO_USER_KNOWN, 409)
        if of_run is None and issue.assignee_agent_id != agent.agent:
            raise Refused("The issue that you name is not assigned to you.")
        return issue
