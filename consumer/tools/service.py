"""What the tools do: read what was recalled for a run, recall live, and retain. No HTTP, no MCP, no Kafka."""

import json
import uuid
from collections.abc import Callable

from consumer.errors import HandlingError
from consumer.handlers.context import Hindsight, Memory
from consumer.handlers.lookups import ask
from consumer.memory.operation_ids import NAMESPACE, operation_id
from consumer.memory.policy import Rules
from consumer.memory.recall_query import MAX_CHARACTERS, has_word, query_of
from consumer.memory.sanitize import blank, clean, mend
from consumer.tools.arguments import RecallArguments, RetainArguments
from consumer.tools.bank_resolver import CallRun, Lookups, Place, Places
from consumer.tools.credentials import Agent, Refused
from consumer.tools.results import NOTHING, SAVED, Answer, ToolOutcome, failed, memories
from schemas.recalls import RecallRecord, RecallStatus

NOT_SEARCHED = "Memory was not searched"
NOT_SAVED = "The memory was not saved"


class Memories:
    """The tools of one installation.

    Args:
        known: what was recalled for a run; None if there is nothing, or not yet.
        lookups: Paperclip, as seen by an agent (or by us, for one that the gateway speaks for); None without an API.
    """

    def __init__(
        self,
        rules: Rules,
        hindsight: Hindsight,
        known: Callable[[str], RecallRecord | None],
        lookups: Callable[[Agent], Lookups | None],
    ) -> None:
        self.rules = rules
        self._hindsight = hindsight
        self._places = Places(rules, known, lookups)
        self._lookups = lookups

    async def recall(self, agent: Agent, arguments: RecallArguments) -> Answer:
        """What was recalled at the run's start; if nothing was, or `fresh` is asked for, what matters to the query now.

        Raises:
            Refused: no bank of the agent's can be given, or there is nothing to search for.
        """
        try:
            call = await self._places.run_of(agent)
            if call.record is not None and not arguments.fresh and _holds(call.record):
                return memories(call.record.memories, ToolOutcome.CACHED)
            query = clean(arguments.query)[:MAX_CHARACTERS]
            if not has_word(query):
                raise Refused("There is no word in your query to search for.", 400)
            return await self._live(await self._places.place_of(agent, call), query)
        except HandlingError as error:
            return failed(NOT_SEARCHED, error)

    async def run_memories(self, agent: Agent) -> Answer:
        """What was recalled at a run's start; if nothing was, what matters to the run's issue now.

        Raises:
            Refused: the run is not the agent's, or no bank can be given.
        """
        try:
            call = await self._places.run_of(agent, whole=True)
            if call.record is not None and _holds(call.record):
                return memories(call.record.memories, ToolOutcome.CACHED)
            place = await self._places.place_of(agent, call)
            query = await self._query_of(agent, call)
            return await self._live(place, query) if has_word(query) else Answer(NOTHING, ToolOutcome.EMPTY)
        except HandlingError as error:
            return failed(NOT_SEARCHED, error)

    async def retain(self, agent: Agent, arguments: RetainArguments) -> Answer:
        """Store a text. The same text of the same run again is the same document, and no new work for Hindsight.

        Raises:
            Refused: no bank of the agent's can be given, or nothing is left of the text.
        """
        content = clean(arguments.content)
        if blank(content):
            raise Refused("There is nothing to save: what memory itself served to you is left out.", 400)
        try:
            call = await self._places.run_of(agent)
            place = await self._places.place_of(agent, call)
            document = document_id(agent, content)
            memory = Memory(document, content, None, _metadata(agent, place))
            await self._hindsight.retain(place.bank, memory, operation_id(place.bank, document, content, ""))
        except HandlingError as error:
            return failed(NOT_SAVED, error)
        return Answer(SAVED, ToolOutcome.LIVE, document_id=document)

    async def _live(self, place: Place, query: str) -> Answer:
        return memories(await ask(place.bank, query, self._hindsight, self.rules), ToolOutcome.LIVE)

    async def _query_of(self, agent: Agent, call: CallRun) -> str:
        """The query that the handlers would ask for the run."""
        if call.record is not None and call.record.query:
            return call.record.query
        wake = call.run.wake if call.run is not None else None
        issue = wake.issue if wake is not None else None
        lookups = self._lookups(agent)
        if issue is None and call.issue_id is not None and lookups is not None:
            issue = await lookups.issue(call.issue_id)
        if issue is None:
            return ""
        return query_of(issue.title, issue.description, wake.comments if wake is not None else ())


def document_id(agent: Agent, content: str) -> str:
    """UUIDv5 of what makes a retained text the same one: company, agent, run if there is one, and the text."""
    parts = ["hindsight_retain", agent.company, agent.agent, agent.run or "", content]
    return str(uuid.uuid5(NAMESPACE, json.dumps(parts, separators=(",", ":"))))


def _holds(record: RecallRecord) -> bool:
    return record.status is not RecallStatus.FAILED


def _metadata(agent: Agent, place: Place) -> dict[str, str]:
    """Strings only: Hindsight answers 422 to null. What is not known is left out."""
    known = {
        "agentId": agent.agent,
        "companyId": agent.company,
        "runId": agent.run,
        "issueId": place.issue,
        "userId": place.user,
    }
    return {name: mend(value) for name, value in known.items() if value}
