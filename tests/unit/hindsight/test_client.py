"""The client against exchanges recorded with a real Hindsight: it sends the recorded request and reads the response."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from consumer.errors import DeadLetterReason, DownKind, HandlingError, Permanent, Transient, Upstream, UpstreamDown
from consumer.hindsight.client import HindsightClient, HindsightOperation
from consumer.http.transport import ConnectError, RequestTimeout, Response, TransportError
from consumer.memory.documents import Memory, Operation
from consumer.memory.policy import RecallBudget
from demo.recording import Exchange, exchange
from tests.unit.http.scripted import Scripted, answer

BASE = "https://hindsight.example/base"
BANK = "paperclip::f7b2ffb0-dc3a-437e-9f75-94ccd64bb80d::d5add4c6-9a97-4ddd-9a15-33dcc8c6607c"
CANCEL_BANK = "paperclip::cancel::test"
DOCUMENT = "fe4967e2-bc39-480a-bc8f-dafcf0ffb000"
RETAIN_ID = "3b8a7371-5398-501f-9c04-6de5a5e4d920"
CHILD = "455c3ed3-4059-4e41-959b-6dd0468cb7a6"
BANK_PATH = "/base/v1/default/banks/" + BANK.replace(":", "%3A")


def client(*answers: Response | TransportError) -> tuple[HindsightClient, Scripted]:
    send = Scripted(list(answers))
    return HindsightClient(send, BASE, key="s3cret", user_agent="paperclip-memory/1.2.3"), send


def client_of_recording(name: str) -> tuple[HindsightClient, Scripted, Exchange]:
    """A client whose transport returns the recorded response."""
    recorded = exchange(name)
    body = recorded.reply.encode() if isinstance(recorded.reply, str) else recorded.reply
    hindsight, send = client(answer(recorded.status, body))
    return hindsight, send, recorded


def assert_request_as_recorded(send: Scripted, recorded: Exchange) -> None:
    assert send.lines == [f"{recorded.method} /base{recorded.path}"]
    assert send.bodies == [recorded.body]


async def retain_as(hindsight: HindsightClient, body: dict[str, Any], bank: str = BANK) -> None:
    """Retain the document of a recorded body."""
    (item,) = body["items"]
    memory = Memory(item.get("document_id", ""), item["content"], item.get("timestamp"), item.get("metadata", {}))
    await hindsight.retain(bank, memory, body.get("operation_id", ""))


# Retain.


@pytest.mark.parametrize(
    "name",
    [
        "retain",
        "retain again, same operation_id",
        "retain after delete, same operation_id: accepted, nothing stored",
        "retain to be cancelled",
    ],
)
async def test_retain_sends_the_recorded_request(name: str) -> None:
    hindsight, send, recorded = client_of_recording(name)
    await retain_as(hindsight, recorded.body)
    assert_request_as_recorded(send, recorded)
    (request,) = send.asked
    assert request.body.isascii()
    assert request.headers["Authorization"] == "Bearer s3cret"
    assert request.headers["User-Agent"] == "paperclip-memory/1.2.3"
    assert (request.operation, request.timeout) == ("retain", 15.0)


async def test_retain_with_the_operation_id_of_another_bank_is_transient() -> None:
    hindsight, send, recorded = client_of_recording("retain, operation_id of another bank")
    with pytest.raises(Transient, match="409"):
        await retain_as(hindsight, recorded.body, bank="paperclip::f7b2ffb0-dc3a-437e-9f75-94ccd64bb80d::other")
    assert_request_as_recorded(send, recorded)


async def test_retain_of_blank_content_is_rejected() -> None:
    hindsight, _, recorded = client_of_recording("retain blank content")
    with pytest.raises(Permanent, match=r"body\.items\.0\.content value_error") as caught:
        await retain_as(hindsight, recorded.body)
    assert caught.value.reason is DeadLetterReason.REJECTED


async def test_retain_without_a_timestamp_sends_none() -> None:
    hindsight, send = client(answer(200, {"success": True}))
    await hindsight.retain("b", Memory("d", "half an emoji: \ud83d", None, {"agentId": "a"}), "o")
    assert send.bodies == [
        {
            "items": [
                {
                    "content": "half an emoji: \ud83d",
                    "context": "paperclip",
                    "document_id": "d",
                    "metadata": {"agentId": "a"},
                }
            ],
            "async": True,
            "operation_id": "o",
        }
    ]


@pytest.mark.parametrize("reply", [b"<html>", {"success": False}, {"success": "yes"}, {}, [], None])
async def test_retain_without_success_in_the_body_is_transient(reply: object) -> None:
    hindsight, _ = client(answer(200, reply))
    with pytest.raises(Transient, match="the body is not Hindsight's"):
        await hindsight.retain("b", Memory("d", "x", None, {}), "o")


# Recall.


@pytest.mark.parametrize("name", ["recall", "recall, close to the text", "recall in an unknown bank"])
async def test_recall_sends_the_recorded_request_and_returns_the_texts(name: str) -> None:
    hindsight, send, recorded = client_of_recording(name)
    bank = "nope" if "unknown" in name else BANK
    texts = await hindsight.recall(bank, recorded.body["query"], RecallBudget.MID, 1024)
    assert_request_as_recorded(send, recorded)
    assert texts == [result["text"] for result in recorded.reply.get("results", [])]


async def test_recall_returns_the_best_match_first() -> None:
    hindsight, _, recorded = client_of_recording("recall, close to the text")
    texts = await hindsight.recall(BANK, recorded.body["query"], RecallBudget.MID, 1024)
    assert texts[0].startswith("Please use 24h expiry for the tokens")


async def test_recall_without_a_word_is_rejected() -> None:
    hindsight, send, recorded = client_of_recording("recall without a word")
    with pytest.raises(Permanent, match=r"body\.query value_error") as caught:
        await hindsight.recall(BANK, "\U0001f389", RecallBudget.MID, 1024)
    assert_request_as_recorded(send, recorded)
    assert "\U0001f389" not in str(caught.value)


async def test_recall_with_too_long_a_query_is_rejected() -> None:
    """Hindsight before 1.0; the handler then halves the query."""
    hindsight, _ = client(answer(400, {"detail": "Query too long: 600 tokens exceeds maximum of 500"}))
    with pytest.raises(Permanent) as caught:
        await hindsight.recall("b", "q", RecallBudget.LOW, 1024)
    assert caught.value.reason is DeadLetterReason.REJECTED


@pytest.mark.parametrize("reply", [b"<html>", {}, {"results": None}, {"results": [{}]}, {"results": [{"text": 1}]}])
async def test_recall_with_an_unexpected_body_is_transient(reply: object) -> None:
    hindsight, _ = client(answer(200, reply))
    with pytest.raises(Transient, match=f"recall at {BASE}, but the body is not"):
        await hindsight.recall("b", "q", RecallBudget.HIGH, 1024)


@pytest.mark.parametrize(
    "name",
    [
        "recall with no key (server with ApiKeyTenantExtension)",
        "recall with a wrong key (server with ApiKeyTenantExtension)",
    ],
)
async def test_a_refused_key_is_upstream_down(name: str) -> None:
    hindsight, _, _recorded = client_of_recording(name)
    with pytest.raises(UpstreamDown) as caught:
        await hindsight.recall("x", "token", RecallBudget.MID, 1024)
    assert (caught.value.kind, caught.value.upstream) == (DownKind.REFUSED, Upstream.HINDSIGHT)
    assert "s3cret" not in str(caught.value)


# Operations.


async def test_unfinished_retains_are_pending_and_processing_children_of_one_document() -> None:
    recorded = exchange("operations by status pending")
    hindsight, send = client(answer(200, recorded.reply), answer(200, {"operations": [], "total": 0}))
    operations = await hindsight.unfinished_retains(CANCEL_BANK, "gone-1")
    created, updated = (recorded.reply["operations"][0][name] for name in ("created_at", "updated_at"))
    assert operations == [Operation(CHILD, "retain", "pending", "gone-1", created, None, updated)]
    path = "GET /base/v1/default/banks/paperclip%3A%3Acancel%3A%3Atest/operations?status="
    rest = "&type=retain&exclude_parents=true&limit=100&offset=0"
    assert send.lines == [f"{path}pending{rest}", f"{path}processing{rest}"]


def page(*numbers: int, total: int, status: str = "pending") -> Response:
    rows = [
        {"id": str(number), "task_type": "retain", "status": status, "document_id": "d", "items_count": 1}
        for number in numbers
    ]
    return answer(200, {"operations": rows, "total": total, "limit": 100, "offset": 0})


async def test_unfinished_retains_are_read_from_all_pages_without_duplicates() -> None:
    hindsight, send = client(
        page(*range(100), total=230),
        page(*range(100, 200), total=230),
        page(*range(200, 230), total=230),
        page(229, 300, total=2, status="processing"),
    )
    operations = await hindsight.unfinished_retains("b", "d")
    assert [operation.id for operation in operations] == [*map(str, range(230)), "300"]
    assert {operation.id: operation.status for operation in operations}["229"] == "processing"
    assert [line.rpartition("=")[2] for line in send.lines] == ["0", "100", "200", "0"]


async def test_cancelled_retains_have_their_time() -> None:
    recorded = exchange("operations by status pending")
    rows = [row | {"status": "cancelled"} for row in recorded.reply["operations"]]
    hindsight, send = client(answer(200, {"operations": rows, "total": len(rows)}))
    (operation,) = await hindsight.cancelled_retains(CANCEL_BANK, "gone-1")
    assert (operation.id, operation.status, operation.updated_at) == (CHILD, "cancelled", rows[0]["updated_at"])
    assert [line.partition("?")[2][:16] for line in send.lines] == ["status=cancelled"]


async def test_an_unknown_bank_has_no_operations_and_no_documents() -> None:
    not_found = answer(404, {"detail": "Bank 'b' not found"})
    hindsight, _ = client(not_found, not_found, not_found, not_found)
    assert await hindsight.unfinished_retains("b", "d") == []
    assert [operation async for operation in hindsight.operations("b")] == []
    assert [document async for document in hindsight.documents("b")] == []


async def test_operations_without_a_filter() -> None:
    recorded = exchange("operations of the bank")
    hindsight, send = client(answer(200, recorded.reply))
    operations = [operation async for operation in hindsight.operations(BANK)]
    assert [operation.id for operation in operations] == [row["id"] for row in recorded.reply["operations"]]
    assert send.lines == [f"GET {BANK_PATH}/operations?exclude_parents=true&limit=100&offset=0"]


@pytest.mark.parametrize(
    ("name", "done"), [("cancel the child", True), ("cancel of a finished or cancelled operation", False)]
)
async def test_cancel_is_true_unless_refused(name: str, done: bool) -> None:
    hindsight, send, recorded = client_of_recording(name)
    assert await hindsight.cancel(CANCEL_BANK, CHILD) is done
    assert_request_as_recorded(send, recorded)


async def test_cancel_of_an_unknown_operation_is_refused() -> None:
    hindsight, _ = client(answer(404, {"detail": "Operation x not found for bank b"}))
    assert await hindsight.cancel("b", "x") is False


# Documents.


@pytest.mark.parametrize(("name", "there"), [("delete document", True), ("delete document again", False)])
async def test_delete_document_is_true_unless_absent(name: str, there: bool) -> None:
    hindsight, send, recorded = client_of_recording(name)
    assert await hindsight.delete_document(BANK, DOCUMENT) is there
    assert_request_as_recorded(send, recorded)


async def test_document_has_text_date_and_metadata() -> None:
    hindsight, send, recorded = client_of_recording("document")
    document = await hindsight.document(BANK, DOCUMENT)
    assert_request_as_recorded(send, recorded)
    assert document is not None
    assert document.id == DOCUMENT
    assert document.original_text == recorded.reply["original_text"]
    assert document.event_date == "2026-11-30T09:52:20.573000+00:00"
    assert document.document_metadata == recorded.reply["document_metadata"]


@pytest.mark.parametrize("retain_params", [None, {}, {"event_date": None}, {"event_date": 1}])
async def test_a_document_without_retain_params_has_no_event_date(retain_params: object) -> None:
    hindsight, _ = client(answer(200, {"id": "d", "retain_params": retain_params}))
    document = await hindsight.document("b", "d")
    assert document is not None
    assert document.event_date is None


async def test_an_absent_document_is_none() -> None:
    hindsight, send, recorded = client_of_recording("document after that")
    assert await hindsight.document(BANK, DOCUMENT) is None
    assert_request_as_recorded(send, recorded)


async def test_documents_are_read_from_all_pages() -> None:
    recorded = exchange("documents of the bank")
    rest = [{"id": str(number)} for number in range(100)]
    hindsight, send = client(answer(200, {"items": rest, "total": 102}), answer(200, recorded.reply | {"total": 102}))
    documents = [document async for document in hindsight.documents(BANK)]
    assert [document.id for document in documents] == [*map(str, range(100)), DOCUMENT, "to-cancel"]
    assert documents[100].event_date == "2026-11-30T09:52:20.573000+00:00"
    assert send.lines == [f"GET {BANK_PATH}/documents?limit=100&offset={offset}" for offset in (0, 100)]


# Operators' calls.


async def test_stats_of_a_bank() -> None:
    hindsight, send, recorded = client_of_recording("stats")
    stats = await hindsight.stats(BANK)
    assert_request_as_recorded(send, recorded)
    assert stats is not None
    assert stats.model_dump() == {
        "pending_operations": 0,
        "failed_operations": 0,
        "pending_consolidation": 0,
        "failed_consolidation": 0,
        "last_consolidated_at": "2026-11-30T09:55:19.895109+00:00",
        "operations_by_status": {"cancelled": 1, "completed": 10},
    }


async def test_stats_of_an_unknown_bank_are_none() -> None:
    hindsight, send, recorded = client_of_recording("stats of an unknown bank")
    assert await hindsight.stats("nope") is None
    assert_request_as_recorded(send, recorded)


async def test_banks_returns_the_last_written_ones_and_their_number() -> None:
    rows = [{"bank_id": "a", "fact_count": 3}, {"bank_id": "b"}]
    hindsight, send = client(answer(200, {"banks": rows, "total": 7}), answer(200, {"banks": rows}))
    assert await hindsight.banks(2) == (["a", "b"], 7)
    assert await hindsight.banks(1) == (["a"], 2), "an older one gives all, and no total"
    assert send.lines == [f"GET /base/v1/default/banks?limit={limit}&offset=0" for limit in (2, 1)]


async def test_the_oldest_operation_is_the_last_of_the_listing() -> None:
    hindsight, send = client(page(31, total=31), page(1, total=31))
    assert await hindsight.oldest_operation("b", "pending") == Operation("1", "retain", "pending", "d")
    path = "GET /base/v1/default/banks/b/operations?status=pending&limit=1&offset="
    assert send.lines == [f"{path}0", f"{path}30"]


async def test_the_oldest_operation_of_a_listing_that_is_empty_or_shrinks() -> None:
    unknown = answer(404, {"detail": "Bank 'b' not found"})
    hindsight, _ = client(page(1, total=1), page(total=0), unknown, page(3, total=3), page(total=2))
    oldest = [await hindsight.oldest_operation("b", "pending") for _ in range(4)]
    assert [operation and operation.id for operation in oldest] == ["1", None, None, "3"]


async def test_health_sends_the_recorded_request() -> None:
    hindsight, send, recorded = client_of_recording("health")
    await hindsight.health()
    assert_request_as_recorded(send, recorded)
    assert send.asked[0].timeout == 5.0


async def test_version_returns_the_api_version() -> None:
    hindsight, send, recorded = client_of_recording("version")
    assert await hindsight.version() == "1.1.0"
    assert_request_as_recorded(send, recorded)


async def test_metrics_returns_the_text() -> None:
    hindsight, send, recorded = client_of_recording("metrics")
    assert await hindsight.metrics() == recorded.reply
    assert_request_as_recorded(send, recorded)


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_metrics_that_are_not_served_are_none(status: int) -> None:
    hindsight, _ = client(answer(status, b"<html>"))
    assert await hindsight.metrics() is None


@pytest.mark.parametrize(
    "reply", [answer(404, {"detail": "Bank 'paperclip-memory-check' not found"}), answer(200, exchange("stats").reply)]
)
async def test_authenticate_returns_for_an_accepted_key(reply: Response) -> None:
    hindsight, send = client(reply)
    assert await hindsight.authenticate()
    assert send.lines == ["GET /base/v1/default/banks/paperclip-memory-check/stats"]
    assert (send.asked[0].timeout, send.asked[0].operation) == (5.0, "authenticate")


async def test_authenticate_tells_a_key_that_may_not_see_the_probe_bank_from_a_bad_one() -> None:
    hindsight, _ = client(answer(403, {"detail": "Forbidden"}))
    assert not await hindsight.authenticate()


@pytest.mark.parametrize("status", [401, 402])
async def test_authenticate_raises_for_a_refused_key(status: int) -> None:
    hindsight, _ = client(answer(status, {"detail": "Authentication failed: Invalid API key"}))
    with pytest.raises(UpstreamDown, match="refuses our key"):
        await hindsight.authenticate()


# Every method.

CALLS: dict[str, Callable[[HindsightClient], Awaitable[object]]] = {
    "recall": lambda hindsight: hindsight.recall("b", "q", RecallBudget.MID, 1),
    "retain": lambda hindsight: hindsight.retain("b", Memory("d", "x", None, {}), "o"),
    "operations": lambda hindsight: hindsight.unfinished_retains("b", "d"),
    "cancel": lambda hindsight: hindsight.cancel("b", "o"),
    "document": lambda hindsight: hindsight.document("b", "d"),
    "documents": lambda hindsight: anext(aiter(hindsight.documents("b"))),
    "delete_document": lambda hindsight: hindsight.delete_document("b", "d"),
    "stats": lambda hindsight: hindsight.stats("b"),
    "banks": lambda hindsight: hindsight.banks(5),
    "health": lambda hindsight: hindsight.health(),
    "version": lambda hindsight: hindsight.version(),
    "authenticate": lambda hindsight: hindsight.authenticate(),
    "metrics": lambda hindsight: hindsight.metrics(),
}


def test_every_operation_has_a_call_in_the_table() -> None:
    assert set(CALLS) == set(HindsightOperation)


FAILURES: list[tuple[Response | TransportError, type[HandlingError]]] = [
    (ConnectError("refused"), UpstreamDown),
    (RequestTimeout("15 s"), Transient),
    (answer(401, {"detail": "no"}), UpstreamDown),
    (answer(503, headers={"retry-after": "3"}), Transient),
    (answer(404, exchange("bad route").reply), Transient),
    (answer(404, b"<html>nginx</html>"), Transient),
    (answer(302, headers={"location": "/login"}), Permanent),
]


@pytest.mark.parametrize(
    ("operation", "failure", "expected"),
    [
        (operation, failure, expected)
        for operation in CALLS
        for failure, expected in FAILURES
        if operation != "metrics" or not isinstance(failure, Response) or failure.status not in (401, 404)
    ],
)
async def test_every_failed_exchange_raises_from_the_error_tree(
    operation: str, failure: Response | TransportError, expected: type[HandlingError]
) -> None:
    hindsight, send = client(failure)
    with pytest.raises(expected, match=f"{operation} at {BASE}") as caught:
        await CALLS[operation](hindsight)
    assert caught.value.upstream is Upstream.HINDSIGHT
    assert send.asked[0].operation == operation


@pytest.mark.parametrize(("operation", "call"), [(name, call) for name, call in CALLS.items() if name != "metrics"])
async def test_the_html_page_of_a_proxy_is_transient(
    operation: str, call: Callable[[HindsightClient], Awaitable[object]]
) -> None:
    hindsight, _ = client(answer(200, b"<html>Sign in</html>"))
    with pytest.raises(Transient, match="a proxy's page"):
        await call(hindsight)
