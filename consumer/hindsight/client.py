"""Client of Hindsight's API, for handlers, tools, exporter, reconcile and probes."""

from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import urlencode

from consumer.errors import Upstream
from consumer.hindsight.models import BankPage, Document, DocumentPage, OperationPage, Stats
from consumer.http.errors import missing
from consumer.http.rest_client import RestClient
from consumer.http.transport import Response, Transport, quote_segment
from consumer.memory.documents import Memory, Operation
from consumer.memory.policy import RecallBudget

T = TypeVar("T")
P = TypeVar("P", OperationPage, DocumentPage)

_PAGE_SIZE = 100  # the largest page that Hindsight returns
_UNFINISHED = ("pending", "processing")  # in this order: an operation that starts in between is seen twice, not missed
_NO_METRICS = (401, 403, 404)  # a proxy that protects them, or that does not pass them on
_PROBE_BANK = "paperclip-memory-check"


class HindsightOperation(StrEnum):
    """The requests to Hindsight (closed set: a metric label)."""

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
    """Implements `consumer.handlers.context.Hindsight`, and the requests that only operators need.

    Every method raises from `consumer.errors`. A 404 means absence only if its body is Hindsight's own; any other is
    `Transient` (a wrong base URL, or a proxy whose server is down).

    Args:
        base: normalised by `consumer.http.transport.base_url`.
        timeout: seconds for a whole exchange; `probe_timeout` for health, version and `authenticate`.
    """

    def __init__(
        self,
        transport: Transport,
        base: str,
        *,
        key: str | None,
        user_agent: str,
        timeout: float = 15.0,
        probe_timeout: float = 5.0,
    ) -> None:
        self._rest = RestClient(transport, base, Upstream.HINDSIGHT, key=key, user_agent=user_agent, timeout=timeout)
        self._probe_timeout = probe_timeout

    async def recall(self, bank: str, query: str, budget: RecallBudget, max_tokens: int) -> list[str]:
        """Return the texts of relevant memories, best first; empty also for a bank that does not exist yet."""
        body = {"query": query, "budget": budget, "max_tokens": max_tokens}
        texts = await self._request(
            HindsightOperation.RECALL, "POST", _bank_path(bank, "memories", "recall"), _texts, body
        )
        return texts or []

    async def retain(self, bank: str, memory: Memory, operation_id: str) -> None:
        """Queue a document; a repeated `operation_id` has no effect (Hindsight 0.8.6 and newer)."""
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
        response = await self._rest.call(operation, "POST", _bank_path(bank, "memories"), body)
        self._rest.read(response, operation, _success)

    async def unfinished_retains(self, bank: str, document_id: str) -> list[Operation]:
        """Return all pending and processing child `retain` operations of a document."""
        return await self._retains(bank, document_id, *_UNFINISHED)

    async def cancelled_retains(self, bank: str, document_id: str) -> list[Operation]:
        """Return all cancelled child `retain` operations of a document."""
        return await self._retains(bank, document_id, "cancelled")

    async def _retains(self, bank: str, document_id: str, *statuses: str) -> list[Operation]:
        operations: dict[str, Operation] = {}
        for status in statuses:
            async for operation in self.operations(bank, status=status, type="retain"):
                if operation.type == "retain" and operation.document_id == document_id:
                    operations[operation.id] = operation
        return list(operations.values())

    async def operations(
        self,
        bank: str,
        *,
        status: str | None = None,
        type: str | None = None,  # noqa: A002 - Hindsight's word
    ) -> AsyncIterator[Operation]:
        """Yield the operations of a bank without parents, newest first; none for an unknown bank.

        An operation may be yielded twice if another one is added while the pages are read.
        """
        query = {"status": status, "type": type, "exclude_parents": "true"}
        path = _bank_path(bank, "operations")
        async for page in self._pages(HindsightOperation.OPERATIONS, path, query, OperationPage.model_validate):
            for row in page.operations:
                yield row.operation

    async def cancel(self, bank: str, operation_id: str) -> bool:
        """Cancel an operation; False if it is refused: already finished or cancelled (409), or unknown (404)."""
        operation = HindsightOperation.CANCEL
        response = await self._rest.call(
            operation, "DELETE", _bank_path(bank, "operations", operation_id), accept=(404, 409)
        )
        return response.status != 409 and self._read_found(response, operation, _success) is not None

    async def delete_document(self, bank: str, document_id: str) -> bool:
        """Delete a document with its memories; False if there was none."""
        path = _bank_path(bank, "documents", document_id)
        return await self._request(HindsightOperation.DELETE_DOCUMENT, "DELETE", path, _success) is not None

    async def document(self, bank: str, document_id: str) -> Document | None:
        """Return a document with its text; None if the bank does not contain it."""
        path = _bank_path(bank, "documents", document_id)
        return await self._request(HindsightOperation.DOCUMENT, "GET", path, Document.model_validate)

    async def documents(self, bank: str) -> AsyncIterator[Document]:
        """Yield all documents of a bank without their texts, last written first; none for an unknown bank.

        Pages are read by offset: a write in between can repeat a document, and a delete can hide one. Check with
        `document` before you treat a document as missing.
        """
        path = _bank_path(bank, "documents")
        async for page in self._pages(HindsightOperation.DOCUMENTS, path, {}, DocumentPage.model_validate):
            for document in page.items:
                yield document

    async def stats(self, bank: str) -> Stats | None:
        """Return the statistics of a bank; None for an unknown one."""
        return await self._request(HindsightOperation.STATS, "GET", _bank_path(bank, "stats"), Stats.model_validate)

    async def banks(self, limit: int) -> tuple[list[str], int]:
        """Return the ids of the most recently written banks, and the number of all banks."""
        operation = HindsightOperation.BANKS
        response = await self._rest.call(operation, "GET", "/v1/default/banks" + _query({"limit": limit, "offset": 0}))
        page = self._rest.read(response, operation, BankPage.model_validate)
        return [bank.bank_id for bank in page.banks[:limit]], len(page.banks) if page.total is None else page.total

    async def oldest_operation(self, bank: str, status: str) -> Operation | None:
        """Return the oldest operation of a bank with this status; None if there is none."""

        async def page(offset: int) -> OperationPage | None:
            path = _bank_path(bank, "operations") + _query({"status": status, "limit": 1, "offset": offset})
            return await self._request(HindsightOperation.OPERATIONS, "GET", path, OperationPage.model_validate)

        newest = await page(0)
        if newest is None or not newest.operations:
            return None
        last = await page(newest.total - 1) if newest.total > 1 else newest
        # Operations may finish between the two requests.
        return (last if last is not None and last.operations else newest).operations[0].operation

    async def health(self) -> None:
        """Return if Hindsight and its database are up. Hindsight checks no key here."""
        await self._probe(HindsightOperation.HEALTH, "/health", lambda value: value["status"])

    async def version(self) -> str:
        """Return the version of the API, for example `1.1.0`."""
        return await self._probe(HindsightOperation.VERSION, "/version", lambda value: str(value["api_version"]))

    async def authenticate(self) -> bool:
        """Ask for a bank that does not exist. False if the key may not see that bank (403), which proves it neither
        good nor bad: it may be limited to some banks.

        Raises:
            UpstreamDown: with kind `refused`, if the key is not accepted.
        """
        operation, path = HindsightOperation.AUTHENTICATE, _bank_path(_PROBE_BANK, "stats")
        response = await self._rest.call(operation, "GET", path, accept=(403, 404), timeout=self._probe_timeout)
        if response.status == 403:
            return False
        self._read_found(response, operation, Stats.model_validate)
        return True

    async def metrics(self) -> str | None:
        """Return Hindsight's `/metrics` in Prometheus's text format; None if it does not serve them to us."""
        response = await self._rest.call(HindsightOperation.METRICS, "GET", "/metrics", accept=_NO_METRICS)
        return response.body.decode("utf-8", "replace") if response.status not in _NO_METRICS else None

    async def _probe(self, operation: HindsightOperation, path: str, parse: Callable[[Any], T]) -> T:
        response = await self._rest.call(operation, "GET", path, timeout=self._probe_timeout)
        return self._rest.read(response, operation, parse)

    async def _pages(
        self, operation: HindsightOperation, path: str, query: dict[str, str | None], parse: Callable[[Any], P]
    ) -> AsyncIterator[P]:
        """Yield the pages of a listing; none for an unknown bank."""
        offset, total = 0, 1
        while offset < total:
            url = path + _query({**query, "limit": _PAGE_SIZE, "offset": offset})
            page = await self._request(operation, "GET", url, parse)
            if page is None:
                return
            yield page
            offset, total = offset + _PAGE_SIZE, page.total

    async def _request(
        self,
        operation: HindsightOperation,
        method: str,
        path: str,
        parse: Callable[[Any], T],
        body: object = None,
        *,
        timeout: float | None = None,
    ) -> T | None:
        response = await self._rest.call(operation, method, path, body, accept=(404,), timeout=timeout)
        return self._read_found(response, operation, parse)

    def _read_found(self, response: Response, operation: HindsightOperation, parse: Callable[[Any], T]) -> T | None:
        if response.status != 404:
            return self._rest.read(response, operation, parse)
        if missing(response, Upstream.HINDSIGHT) is None:
            raise self._rest.error(response, operation)
        return None


def _bank_path(bank: str, *parts: str) -> str:
    return "/v1/default/banks/" + "/".join(quote_segment(part) for part in (bank, *parts))


def _query(values: dict[str, Any]) -> str:
    return "?" + urlencode({name: value for name, value in values.items() if value is not None})


def _texts(value: Any) -> list[str]:
    texts = [result["text"] for result in value["results"]]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("text of a memory is not a string")
    return texts


def _success(value: Any) -> bool:
    if value["success"] is not True:
        raise ValueError("success is not true")
    return True
