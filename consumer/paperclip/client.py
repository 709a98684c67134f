"""Paperclip's API, as handlers, tools, audit and check use it."""

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from consumer.errors import DeadLetterReason, Permanent, Upstream
from consumer.http.errors import missing
from consumer.http.rest_client import Rest
from consumer.http.transport import Reply, Send
from schemas.objects import UUID_PATTERN, Comment, Issue, Run

M = TypeVar("M", Run, Issue, Comment)


class PaperclipOperation(StrEnum):
    """What is asked of Paperclip (closed: a metric label)."""

    RUN = "run"
    ISSUE = "issue"
    COMMENT = "comment"
    AGENTS = "agents"
    HEALTH = "health"
    AUTHENTICATE = "authenticate"


class KeyKind(StrEnum):
    """Whose key it is: an agent's (or a run's token), or a person's (or none, at a `local_trusted` server)."""

    AGENT = "agent"
    BOARD = "board"


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom Paperclip takes us for, and the companies that it shows us. `agent_id` is None for a person."""

    kind: KeyKind
    company_ids: tuple[str, ...]
    agent_id: str | None = None


class PaperclipClient:
    """Implements `consumer.handlers.context.Paperclip`, and what check and tools need.

    Every method raises from `consumer.errors`; an id that is no UUID is `Permanent` before anything is sent (Paperclip
    answers 500 to it).

    Paperclip's 404 means more than absence: `Issue not found` and `Heartbeat run not found` are also its answers to a
    wrong or expired key, and for another company's objects (seen). So such a 404 counts only after the key has proved
    good, and only `Comment not found`, which comes after those checks, says that a comment is gone.

    Args:
        base: normalised by `consumer.http.transport.base_url`.
        timeout: seconds for a whole exchange; `probe_timeout` for health and `authenticate`.
    """

    def __init__(
        self,
        send: Send,
        base: str,
        *,
        key: str | None,
        user_agent: str,
        timeout: float = 15.0,
        probe_timeout: float = 5.0,
    ) -> None:
        self._rest = Rest(send, base, Upstream.PAPERCLIP, key=key, user_agent=user_agent, timeout=timeout)
        self._probe_timeout = probe_timeout

    def under(self, key: str) -> "PaperclipClient":
        """Paperclip as the owner of another key sees it.

        Raises:
            ValueError: the key holds what no header can carry.
        """
        other = copy(self)
        other._rest = self._rest.under(key)  # noqa: SLF001 - one of us
        return other

    async def run(self, run_id: str) -> Run | None:
        """A run; None if this key is shown none of this id."""
        return await self._object(PaperclipOperation.RUN, "heartbeat-runs", run_id, Run)

    async def issue(self, issue_id: str) -> Issue | None:
        """An issue; None if this key is shown none of this id."""
        return await self._object(PaperclipOperation.ISSUE, "issues", issue_id, Issue)

    async def comment(self, issue_id: str, comment_id: str) -> Comment | None:
        """A comment, a deleted one's tombstone too; None if it is gone from an issue that this key may read.

        Raises:
            Permanent: with reason `forbidden`, when Paperclip shows this key no such issue. It does not say whether the
                issue is deleted or another company's, and on that nothing is forgotten.
        """
        operation = PaperclipOperation.COMMENT
        path = f"/api/issues/{path_uuid(issue_id)}/comments/{path_uuid(comment_id)}"
        reply = await self._rest.call(operation, "GET", path, accept=(404,))
        if reply.status != 404:
            return self._rest.read(reply, operation, partial(_as, Comment, path_uuid(comment_id)))
        if self._missing(reply, operation).casefold() == "comment not found":
            return None
        await self.authenticate()
        raise Permanent(
            f"Paperclip shows this key no issue {issue_id}: it was deleted, or is another company's",
            reason=DeadLetterReason.FORBIDDEN,
            upstream=Upstream.PAPERCLIP,
        )

    async def agents(self, company_id: str) -> Sequence[str]:
        """Ids of all agents of a company."""
        operation = PaperclipOperation.AGENTS
        reply = await self._rest.call(operation, "GET", f"/api/companies/{path_uuid(company_id)}/agents")
        return self._rest.read(reply, operation, _ids)

    async def health(self) -> None:
        """Return if Paperclip is up. Needs no key, so it proves none."""
        operation = PaperclipOperation.HEALTH
        reply = await self._rest.call(operation, "GET", "/api/health", timeout=self._probe_timeout)
        self._rest.read(reply, operation, lambda value: value["status"])

    async def authenticate(self) -> Identity:
        """Whom our key stands for. A `local_trusted` server takes every key it does not know for its admin's.

        Raises:
            UpstreamDown: with kind `refused`, if it stands for nobody.
        """
        operation, timeout = PaperclipOperation.AUTHENTICATE, self._probe_timeout
        reply = await self._rest.call(operation, "GET", "/api/companies", accept=(403,), timeout=timeout)
        if reply.status != 403:
            return Identity(KeyKind.BOARD, self._rest.read(reply, operation, _ids))
        return await self.agent()

    async def agent(self) -> Identity:
        """The agent that our key stands for; a run's token counts.

        Raises:
            UpstreamDown: with kind `refused`, if it is no agent's.
        """
        operation = PaperclipOperation.AUTHENTICATE
        reply = await self._rest.call(operation, "GET", "/api/agents/me", timeout=self._probe_timeout)
        return self._rest.read(reply, operation, _agent)

    async def _object(self, operation: PaperclipOperation, kind: str, id_: str, model: type[M]) -> M | None:
        reply = await self._rest.call(operation, "GET", f"/api/{kind}/{path_uuid(id_)}", accept=(404,))
        if reply.status != 404:
            return self._rest.read(reply, operation, partial(_as, model, path_uuid(id_)))
        self._missing(reply, operation)
        await self.authenticate()
        return None

    def _missing(self, reply: Reply, operation: PaperclipOperation) -> str:
        what = missing(reply, Upstream.PAPERCLIP)
        if what is None:
            raise self._rest.error(reply, operation)
        return what


def path_uuid(text: str) -> str:
    """An id as it may stand in a URL; Paperclip answers 500 to one that is no UUID. Raises `Permanent` for such."""
    lower = text.lower()
    if not re.fullmatch(UUID_PATTERN, lower):
        raise Permanent("an id of Paperclip is no UUID", reason=DeadLetterReason.INVALID)
    return lower


def _as(model: type[M], id_: str, value: Any) -> M:
    found = model.model_validate(value)
    if found.id != id_:
        raise ValueError("another object")
    return found


def _ids(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError("no list")
    return tuple(_uuid_of(row["id"]) for row in value)


def _agent(value: Any) -> Identity:
    return Identity(KeyKind.AGENT, (_uuid_of(value["companyId"]),), _uuid_of(value["id"]))


def _uuid_of(value: Any) -> str:
    if not re.fullmatch(UUID_PATTERN, value.lower()):
        raise ValueError("no UUID")
    return str(value.lower())
