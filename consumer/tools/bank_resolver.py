"""Resolves the run and the memory bank of a tool call. The bank is derived as the handlers derive it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from consumer.memory.banks import choose_bank
from consumer.memory.policy import MemoryPolicy
from consumer.tools.credentials import Agent, ToolError
from schemas.paperclip import Issue, Run, is_uuid
from schemas.recalls import RecallRecord

NOT_YOUR_RUN = "The run that the request names is not yours."
USER_UNKNOWN = (
    "Memory is kept per user here, and without a run or an issue of yours the user is unknown: "
    "send the header X-Paperclip-Run-Id with PAPERCLIP_RUN_ID."
)
NO_USER = "Memory is kept per user here, and this issue has no user: there is no memory for it."


class PaperclipLookups(Protocol):
    """The requests to Paperclip. Each method raises from `consumer.errors`; None if the key may not see the object."""

    async def run(self, run_id: str) -> Run | None: ...

    async def issue(self, issue_id: str) -> Issue | None: ...


@dataclass(frozen=True, slots=True)
class RunContext:
    """The run of a call; empty if the call names none.

    Attributes:
        record: what was recalled at the start of the run.
        run: Paperclip's object; fetched only where it is needed.
    """

    record: RecallRecord | None = None
    run: Run | None = None

    @property
    def issue_id(self) -> str | None:
        """The issue of the run; None also if the wake-up named it by another text than its id."""
        if self.record is not None:
            return self.record.issue_id
        snapshot = self.run.context_snapshot if self.run is not None else None
        issue_id = snapshot.issue_id if snapshot is not None else None
        return issue_id.lower() if issue_id is not None and is_uuid(issue_id) else None


@dataclass(frozen=True, slots=True)
class BankRef:
    """A bank, with the issue and user that it was derived from."""

    bank: str
    issue: str | None = None
    user: str | None = None


class BankResolver:
    """Resolves runs and banks.

    Args:
        find_recall: what was recalled for a run; None if there is nothing, or nothing yet.
        paperclip_for: Paperclip as an agent sees it (as we see it, if the gateway calls); None without an API.
    """

    def __init__(
        self,
        policy: MemoryPolicy,
        find_recall: Callable[[str], RecallRecord | None],
        paperclip_for: Callable[[Agent], PaperclipLookups | None],
    ) -> None:
        self._policy = policy
        self._find_recall = find_recall
        self._paperclip_for = paperclip_for

    async def resolve_run(self, agent: Agent, *, fetch: bool = False) -> RunContext:
        """The run that a call names, which must be the agent's.

        The gateway has checked the run itself, so for its calls Paperclip is asked only when more of the run is needed.

        Args:
            fetch: fetch Paperclip's object if nothing was recalled for the run.

        Raises:
            ToolError: the run does not exist or is another agent's.
            HandlingError: Paperclip did not answer.
        """
        if agent.run is None:
            return RunContext()
        record = self._find_recall(agent.run)
        if record is not None:
            if (record.company_id, record.agent_id) != (agent.company, agent.agent):
                raise ToolError(NOT_YOUR_RUN)
            return RunContext(record)
        paperclip = self._paperclip_for(agent)
        needed = agent.bearer is not None or fetch or self._policy.needs_user
        if not needed or paperclip is None:
            return RunContext()
        run = await paperclip.run(agent.run)
        if run is None or (run.company_id, run.agent_id) != (agent.company, agent.agent):
            raise ToolError(NOT_YOUR_RUN)
        return RunContext(run=run)

    async def resolve_bank(self, agent: Agent, run: RunContext) -> BankRef:
        """The bank of a call: the run's, else the one that the policy gives; never a wider one for lack of information.

        Raises:
            ToolError: the policy gives no bank.
            HandlingError: Paperclip did not answer.
        """
        policy, record = self._policy, run.record
        if record is not None and record.bank_id is not None:
            return BankRef(record.bank_id, record.issue_id, record.user_id)
        issue_id, issue = run.issue_id, None
        if policy.needs_user:
            issue = await self._issue(agent, issue_id)
            issue_id = issue.id
        choice = choose_bank(policy, company=agent.company, agent=agent.agent, issue=issue)
        if choice is None:
            raise ToolError(NO_USER, 409)
        return BankRef(choice.bank, issue_id, choice.user)

    async def _issue(self, agent: Agent, run_issue: str | None) -> Issue:
        """The issue of the run, else the one that the headers name if it is assigned to the agent."""
        issue_id, paperclip = run_issue or agent.issue, self._paperclip_for(agent)
        if issue_id is None or paperclip is None:
            raise ToolError(USER_UNKNOWN, 409)
        issue = await paperclip.issue(issue_id)
        if issue is None or issue.company_id != agent.company:
            raise ToolError(USER_UNKNOWN, 409)
        if run_issue is None and issue.assignee_agent_id != agent.agent:
            raise ToolError("The issue that the request names is not assigned to you.")
        return issue
