"""Hindsight's API, as handlers, tools, exporter, audit and check use it."""

from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import urlencode

from consumer.errors import Upstream
from consumer.handlers.context import Memory, Operation
from consumer.http.errors import missing
from consumer.http.rest_client import RestClient
from consumer.http.transport import Response, Transport, quote_segment
from consumer.memory.documents import BankPage, Document, DocumentPage, OperationPage, Stats
from consumer.memory.policy import RecallBudget

T = TypeVar("T")

_PAGE = 100  # the most that Hindsight lists at once
_UNFINISHED = ("pending", "processing")  # in this order: an operation that moves on between the two is seen twice
_PROBE_BANK = "paperclip-memory-check"


class HindsightOperation(StrEnum):
    """What is asked of Hindsight (closed: a metric label)."""

    RECALL = "recall"
    RETAIN = "retain"
    OPERATIONS = "operations"
    CANCEL = "cancel"
    DOCUMENT = "document"
    DOCUMENTS = "documents"
    DELETE_DOCUMENT = "delete_document"
    STATS = "stats"
    BANKS = "banks"
    HEALTH = "health"
    VERSION = "version"
    AUTHENTICATE = "authenticate"
    METRICS = "metrics"


class HindsightClient:
    """Implements `consumer.handlers.context.Hindsight`, and what only operators need.

    Every method raises from `consumer.errors`. A 404 counts as an absence only in Hindsight's own words; any other is
    `Transient` (a wrong base URL, a proxy whose server is away).

    Args:
        base: normalised by `consumer.http.transport.base_url`.
        timeout: seconds for a whole exchange; `probe_timeout` for health, version and `authenticate`.
    """

    def __init__(
        self,
        send: Transport,
        base: str,
        *,
        key: str | None,
        user_agent: str,
        timeout: float = 15.0,
        probe_timeout: float = 5.0,
    ) -> None:
        self._rest = RestClient(send, base, Upstream.HINDSIGHT, key=key, user_agent=user_agent, timeout=timeout)
        self._probe_timeout = probe_timeout

    async def recall(self, bank: str, query: str, budget: RecallBudget, max_tokens: int) -> list[str]:
        """Texts of the memories that matter, best first; empty also for a bank that does not exist yet."""
        body = {"query": query, "budget": budget, "max_tokens": max_tokens}
        texts = await self._ask(HindsightOperation.RECALL, "POST", _bank(bank, "memories", "recall"), _texts, body)
        return texts or []

    async def retain(self, bank: str, memory: Memory, operation_id: str) -> None:
        """Queue a document; a repeated `operation_id` is a no-op (Hindsight 0.8.6 and newer)."""
        item: dict[str, object] = {
            "content": memory.content,
            "context": "paperclip",
            "document_id": memory.document_id,
            "metadata": dict(memory.metadata),
        }
        if memory.timestamp is not None:
            item["timestamp"] = memory.timestamp
        body = {"items": [item], "async": True, "operation_id": operation_id}
        operation = HindsightOperation.RETAIN
        reply = await self._rest.call(operation, "POST", _bank(bank, "memories"), body)
        self._rest.read(reply, operation, _success)

    async def unfinished_retains(self, bank: str, document_id: str) -> list[Operation]:
        """Pending and processing child `retain` operations of a document, in all pages."""
        return await self._retains(bank, document_id, *_UNFINISHED)

    async def cancelled_retains(self, bank: str, document_id: str) -> list[Operation]:
        """Cancelled child `retain` operations of a document, in all pages."""
        return await self._retains(bank, document_id, "cancelled")

    async def _retains(self, bank: str, document_id: str, *statuses: str) -> list[Operation]:
        found: dict[str, Operation] = {}
        for status in statuses:
            async for operation in self.operations(bank, status=status, type="retain"):
                if operation.type == "retain" and operation.document_id == document_id:
                    found[operation.id] = operation
        return list(found.values())

    async def operations(
        self,
        bank: str,
        *,
        status: str | None = None,
        type: str | None = None,  # noqa: A002 - Hindsight's word
    ) -> AsyncIterator[Operation]:
        """Operations of a bank, newest first, parents left out; none for an unknown bank.

        One that begins while the pages are read can come twice.
        """
        query = {"status": status, "type": type, "exclude_parents": "true"}
        offset, total = 0, 1
        while offset < total:
            path = _bank(bank, "operations") + _query(query | {"limit": _PAGE, "offset": offset})
            page = await self._ask(HindsightOperation.OPERATIONS, "GET", path, OperationPage.model_validate)
            if page is None:
                return
            for row in page.operations:
                yield row.operation
            offset, total = offset + _PAGE, page.total

    async def cancel(self, bank: str, operation_id: str) -> bool:
        """Cancel an operation; False when refused: finished or cancelled before (409), or unknown (404)."""
        operation = HindsightOperation.CANCEL
        reply = await self._rest.call(operation, "DELETE", _bank(bank, "operations", operation_id), accept=(404, 409))
        return reply.status != 409 and self._found(reply, operation, _success) is not None

    async def delete_document(self, bank: str, document_id: str) -> bool:
        """Delete a document with its memories; False if there was none."""
        path = _bank(bank, "documents", document_id)
        return await self._ask(HindsightOperation.DELETE_DOCUMENT, "DELETE", path, _success) is not None

    async def document(self, bank: str, document_id: str) -> Document | None:
        """A document with its text; None if the bank does not hold it."""
        path = _bank(bank, "documents", document_id)
        return await self._ask(HindsightOperation.DOCUMENT, "GET", path, Document.model_validate)

    async def documents(self, bank: str) -> AsyncIterator[Document]:
        """All documents of a bank without their texts, the last written first; none for an unknown bank.

        Pages are numbered, not anchored: one written meanwhile can come twice, one deleted meanwhile can hide another.
        Ask for `document` before you call one missing.
        """
        offset, total = 0, 1
        while offset < total:
            path = _bank(bank, "documents") + _query({"limit": _PAGE, "offset": offset})
            page = await self._ask(HindsightOperation.DOCUMENTS, "GET", path, DocumentPage.model_validate)
            if page is None:
                return
            for document in page.items:
                yield document
            offset, total = offset + _PAGE, page.total

    async def stats(self, bank: str) -> Stats | None:
        """What waits in a bank; None for an unknown one."""
        return await self._ask(HindsightOperation.STATS, "GET", _bank(bank, "stats"), Stats.model_validate)

    async def banks(self, limit: int) -> tuple[list[str], int]:
        """Ids of the banks that were written most recently, and how many banks there are."""
        operation = HindsightOperation.BANKS
        reply = await self._rest.call(operation, "GET", "/v1/default/banks" + _query({"limit": limit, "offset": 0}))
        page = self._rest.read(reply, operation, BankPage.model_validate)
        return [bank.bank_id for bank in page.banks[:limit]], len(page.banks) if page.total is None else page.total

    async def oldest_operation(self, bank: str, status: str) -> Operation | None:
        """The oldest operation of a bank with this status; None if there is none."""

        async def page(offset: int) -> OperationPage | None:
            path = _bank(bank, "operations") + _query({"status": status, "limit": 1, "offset": offset})
            return await self._ask(HindsightOperation.OPERATIONS, "GET", path, OperationPage.model_validate)

        newest = await page(0)
        if newest is None or not newest.operations:
            return None
        last = await page(newest.total - 1) if newest.total > 1 else newest
        # Some may have ended between the two answers.
        return (last if last is not None and last.operations else newest).operations[0].operation

    async def health(self) -> None:
        """Return if Hindsight and its database are up. Needs no key, so it proves none."""
        await self._probe(HindsightOperation.HEALTH, "/health", lambda value: value["status"])

    async def version(self) -> str:
        """The version of the API, as `1.1.0`."""
        return await self._probe(HindsightOperation.VERSION, "/version", lambda value: str(value["api_version"]))

    async def authenticate(self) -> None:
        """Return if our key is accepted: asks for a bank that does not exist.

        Raises:
            UpstreamDown: with kind `refused`, if it is not.
        """
        path, timeout = _bank(_PROBE_BANK, "stats"), self._probe_timeout
        await self._ask(HindsightOperation.AUTHENTICATE, "GET", path, Stats.model_validate, timeout=timeout)

    async def metrics(self) -> str:
        """Hindsight's `/metrics`, in Prometheus's text format."""
        reply = await self._rest.call(HindsightOperation.METRICS, "GET", "/metrics")
        return reply.body.decode("utf-8", "replace")

    async def _probe(self, operation: HindsightOperation, path: str, parse: Callable[[Any], T]) -> T:
        reply = await self._rest.call(operation, "GET", path, timeout=self._probe_timeout)
        return self._rest.read(reply, operation, parse)

    async def _ask(
        self,
        operation: HindsightOperation,
        method: str,
        path: str,
        parse: Callable[[Any], T],
        body: object = None,
        *,
        timeout: float | None = None,
    ) -> T | None:
        reply = await self._rest.call(operation, method, path, body, accept=(404,), timeout=timeout)
        return self._found(reply, operation, parse)

    def _found(self, reply: Response, operation: HindsightOperation, parse: Callable[[Any], T]) -> T | None:
        if reply.status != 404:
            return self._rest.read(reply, operation, parse)
        if missing(reply, Upstream.HINDSIGHT) is None:
            raise self._rest.error(reply, operation)
        return None


def _bank(bank: str, *parts: str) -> str:
    return "/v1/default/banks/" + "/".join(quote_segment(part) for part in (bank, *parts))


def _query(values: dict[str, Any]) -> str:
    return "?" + urlencode({name: value for name, value in values.items() if value is not None})


def _texts(value: Any) -> list[str]:
    texts = [result["text"] for result in value["results"]]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a memory's text is no string")
    return texts


def _success(value: Any) -> bool:
    if value["success"] is not True:
        raise ValueError("no success")
    return True
