"""What the tools do: return the memories recalled for a run, recall live, and retain. No HTTP, MCP or Kafka here."""

from collections.abc import Callable

from consumer.errors import HandlingError
from consumer.handlers.context import Hindsight
from consumer.handlers.lookups import recall_with_fallback
from consumer.memory.documents import Memory, build_metadata
from consumer.memory.operation_ids import operation_id, stable_id
from consumer.memory.policy import MemoryPolicy
from consumer.memory.recall_query import MAX_CHARACTERS, build_query, is_searchable
from consumer.memory.sanitize import is_blank, sanitize
from consumer.tools.arguments import RecallArguments, RetainArguments
from consumer.tools.bank_resolver import BankRef, BankResolver, PaperclipLookups, RunContext
from consumer.tools.credentials import Agent, ToolError
from consumer.tools.results import NO_MEMORIES, SAVED, ToolOutcome, ToolResult, failed, memories
from schemas.recalls import RecallRecord, RecallStatus

NOT_SEARCHED = "Memory was not searched"
NOT_SAVED = "The memory was not saved"


class MemoryService:
    """The tools of one installation.

    Args:
        find_recall: what was recalled for a run; None if there is nothing, or nothing yet.
        paperclip_for: Paperclip as an agent sees it (as we see it, if the gateway calls); None without an API.
    """

    def __init__(
        self,
        policy: MemoryPolicy,
        hindsight: Hindsight,
        find_recall: Callable[[str], RecallRecord | None],
        paperclip_for: Callable[[Agent], PaperclipLookups | None],
    ) -> None:
        self.policy = policy
        self._hindsight = hindsight
        self._resolver = BankResolver(policy, find_recall, paperclip_for)
        self._paperclip_for = paperclip_for

    async def recall(self, agent: Agent, arguments: RecallArguments) -> ToolResult:
        """The memories recalled at the run's start; with `fresh`, or if there are none, those that match the query now.

        Raises:
            ToolError: there is no bank for the agent, or nothing to search for.
        """
        try:
            run = await self._resolver.resolve_run(agent)
            if run.record is not None and not arguments.fresh and _is_usable(run.record):
                return memories(run.record.memories, ToolOutcome.CACHED)
            query = sanitize(arguments.query)[:MAX_CHARACTERS]
            if not is_searchable(query):
                raise ToolError("The query contains no word to search for.", 400)
            return await self._recall_live(await self._resolver.resolve_bank(agent, run), query)
        except HandlingError as error:
            return failed(NOT_SEARCHED, error)

    async def run_memories(self, agent: Agent) -> ToolResult:
        """The memories recalled at the run's start; if there are none, those that match the run's issue now.

        Raises:
            ToolError: the run is not the agent's, or there is no bank for the agent.
        """
        try:
            run = await self._resolver.resolve_run(agent, fetch=True)
            if run.record is not None and _is_usable(run.record):
                return memories(run.record.memories, ToolOutcome.CACHED)
            bank = await self._resolver.resolve_bank(agent, run)
            query = await self._query_for(agent, run)
            if not is_searchable(query):
                return ToolResult(NO_MEMORIES, ToolOutcome.EMPTY)
            return await self._recall_live(bank, query)
        except HandlingError as error:
            return failed(NOT_SEARCHED, error)

    async def retain(self, agent: Agent, arguments: RetainArguments) -> ToolResult:
        """Store a text. The same text in the same run is the same document, and no new work for Hindsight.

        Raises:
            ToolError: there is no bank for the agent, or nothing is left of the text after cleaning.
        """
        content = sanitize(arguments.content)
        if is_blank(content):
            raise ToolError("There is nothing to save: text that came from memory is left out.", 400)
        try:
            bank = await self._resolver.resolve_bank(agent, await self._resolver.resolve_run(agent))
            document = document_id(agent, content)
            memory = Memory(document, content, None, _metadata(agent, bank))
            await self._hindsight.retain(bank.bank, memory, operation_id(bank.bank, document, content, ""))
        except HandlingError as error:
            return failed(NOT_SAVED, error)
        return ToolResult(SAVED, ToolOutcome.LIVE, document_id=document)

    async def _recall_live(self, bank: BankRef, query: str) -> ToolResult:
        texts = await recall_with_fallback(self._hindsight, bank.bank, query, self.policy)
        return memories(texts, ToolOutcome.LIVE)

    async def _query_for(self, agent: Agent, run: RunContext) -> str:
        """The query that the recall handler builds for the run."""
        if run.record is not None and run.record.query:
            return run.record.query
        wake = run.run.wake if run.run is not None else None
        issue = wake.issue if wake is not None else None
        paperclip = self._paperclip_for(agent)
        if issue is None and run.issue_id is not None and paperclip is not None:
            issue = await paperclip.issue(run.issue_id)
        if issue is None:
            return ""
        return build_query(issue.title, issue.description, wake.comments if wake is not None else ())


def document_id(agent: Agent, content: str) -> str:
    """UUIDv5 of what identifies a retained text: company, agent, run if there is one, and the text."""
    return stable_id("hindsight_retain", agent.company, agent.agent, agent.run or "", content)


def _is_usable(record: RecallRecord) -> bool:
    return record.status is not RecallStatus.FAILED


def _metadata(agent: Agent, bank: BankRef) -> dict[str, str]:
    return build_metadata(
        {
            "agentId": agent.agent,
            "companyId": agent.company,
            "runId": agent.run,
            "issueId": bank.issue,
            "userId": bank.user,
        }
    )
