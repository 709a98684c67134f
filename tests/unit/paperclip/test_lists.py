"""Paperclip's lists: pages, cursors and anchors."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from consumer.errors import Permanent, Transient, UpstreamDown
from consumer.http.transport import Request, Response
from consumer.paperclip.client import AUDIT_PAGE, COMMENTS_PAGE, ISSUES_PAGE, PaperclipClient
from consumer.paperclip.models import is_forbidden

COMPANY = "f7b2ffb0-dc3a-437e-9f75-94ccd64bb80d"
ISSUE = "84f04695-b2f5-472e-9096-5cfbd079d332"
RUN = "f287efe6-ea0c-4d1b-a555-2124ecfd6e38"
NOON = "2026-11-30T12:00:00.000Z"


def comment_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


class FakeServer:
    """Answers each request with what a function makes of its path and query; keeps the requests."""

    def __init__(self, answer: Callable[[str, dict[str, str]], Any]) -> None:
        self._answer = answer
        self.requests: list[tuple[str, dict[str, str]]] = []

    async def __call__(self, request: Request) -> Response:
        parts = urlsplit(request.url)
        query = dict(parse_qsl(parts.query))
        self.requests.append((parts.path, query))
        answer = self._answer(parts.path, query)
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        return Response(status, {"date": "Mon, 30 Nov 2026 12:00:00 GMT"}, json.dumps(body).encode())

    @property
    def client(self) -> PaperclipClient:
        return PaperclipClient(self, "http://paperclip/base", key="key", user_agent="test")


async def test_audit_feed_is_read_by_its_cursor_to_the_end() -> None:
    pages = [{"items": [{"id": 1}, {"id": 2}], "nextCursor": "more"}, {"items": [{"id": 3}], "nextCursor": None}]
    server = FakeServer(lambda *_: pages.pop(0))
    assert [row["id"] async for row in server.client.audit_feed(COMPANY, NOON)] == [1, 2, 3]
    path, query = server.requests[0]
    assert path == f"/base/api/companies/{COMPANY}/audit/agent-actions"
    assert query == {
        "actorScope": "all",
        "entityType": "issue",
        "action": "issue.comment",
        "from": NOON,
        "limit": str(AUDIT_PAGE),
    }
    assert server.requests[1][1]["cursor"] == "more"


async def test_audit_feed_without_the_permission_is_forbidden() -> None:
    server = FakeServer(lambda *_: (403, {"error": "Audit filters require permission: audit:view_agent_actions"}))
    with pytest.raises(Permanent) as caught:
        [row async for row in server.client.audit_feed(COMPANY, NOON)]
    assert is_forbidden(caught.value)
    assert not await server.client.can_read_audit_feed(COMPANY)
    assert await FakeServer(lambda *_: {"items": [], "nextCursor": None}).client.can_read_audit_feed(COMPANY)


async def test_issue_that_two_pages_hold_comes_once() -> None:
    """An issue that changes meanwhile moves to the front, and pushes another one over the page's end again."""
    rows = [{"id": str(number)} for number in range(ISSUES_PAGE + 3)]

    def answer(_: str, query: dict[str, str]) -> Any:
        offset = int(query["offset"])
        return rows[:ISSUES_PAGE] if offset == 0 else rows[offset - 1 :]

    server = FakeServer(answer)
    assert [row["id"] async for row in server.client.issues(COMPANY, NOON)] == [row["id"] for row in rows]
    query = server.requests[0][1]
    assert query | {"updatedSince": NOON, "sortDir": "desc"} == query
    assert [query["offset"] for _, query in server.requests] == ["0", str(ISSUES_PAGE)]


class FakeComments:
    """An issue's comments as Paperclip pages them: an empty page after an anchor that is gone."""

    def __init__(self, count: int) -> None:
        self.ids = [comment_id(number) for number in range(count)]
        self.remove_before_page: dict[int, str] = {}
        self.pages = 0

    def answer(self, path: str, query: dict[str, str]) -> Any:
        if path.rpartition("/")[0].endswith("/comments"):
            id_ = path.rpartition("/")[2]
            return {"id": id_} if id_ in self.ids else (404, {"error": "Comment not found"})
        self.pages += 1
        if removed := self.remove_before_page.get(self.pages):
            self.ids.remove(removed)
        ids = self.ids if query["order"] == "asc" else self.ids[::-1]
        if after := query.get("after"):
            ids = ids[ids.index(after) + 1 :] if after in ids else []
        return [{"id": id_} for id_ in ids[: int(query["limit"])]]

    async def read(self, *, oldest_first: bool = True) -> list[str]:
        client = FakeServer(self.answer).client
        return [row["id"] async for row in client.comments(ISSUE, oldest_first=oldest_first)]


@pytest.mark.parametrize("oldest_first", [True, False])
async def test_comments_of_three_pages_come_in_order(oldest_first: bool) -> None:
    comments = FakeComments(2 * COMMENTS_PAGE + 1)
    ids = await comments.read(oldest_first=oldest_first)
    assert ids == (comments.ids if oldest_first else comments.ids[::-1])
    assert comments.pages == 3


async def test_comments_go_on_after_an_anchor_that_was_cancelled_meanwhile() -> None:
    comments = FakeComments(2 * COMMENTS_PAGE)
    comments.remove_before_page = {2: comment_id(COMMENTS_PAGE - 1), 3: comment_id(COMMENTS_PAGE - 2)}
    expected = set(comments.ids)
    ids = await comments.read()
    assert set(ids) == expected
    assert len(ids) == len(expected)


async def test_comments_of_exactly_one_page_come_once() -> None:
    comments = FakeComments(COMMENTS_PAGE)
    assert await comments.read() == comments.ids


async def test_run_end_statuses_are_those_of_lifecycle_events() -> None:
    rows = [
        {"eventType": "lifecycle", "payload": None},
        {"eventType": "lifecycle", "payload": {"status": "succeeded", "exitCode": None}},
        {"eventType": "lifecycle", "payload": {"dir": "/tmp"}},
        {"eventType": "adapter.invoke", "payload": {"status": "not a status of the run"}},
    ]
    assert await FakeServer(lambda *_: rows).client.run_end_statuses(RUN) == ["succeeded"]


async def test_runs_are_asked_for_by_limit_and_agent() -> None:
    server = FakeServer(lambda *_: [{"id": RUN}])
    await server.client.runs(COMPANY, 50)
    await server.client.runs(COMPANY, 1_000, ISSUE)
    assert [query for _, query in server.requests] == [
        {"summary": "true", "limit": "50"},
        {"summary": "true", "limit": "1000", "agentId": ISSUE},
    ]


async def test_plugin_without_a_configuration_in_a_company_is_none() -> None:
    server = FakeServer(lambda path, _: None if path.endswith("/config") else [{"id": ISSUE}])
    assert await server.client.plugins() == [{"id": ISSUE}]
    assert await server.client.plugin_config(ISSUE, COMPANY) is None
    assert server.requests[1] == (f"/base/api/plugins/{ISSUE}/config", {"companyId": COMPANY})


async def test_server_date_is_the_date_header() -> None:
    assert await FakeServer(lambda *_: {"status": "ok"}).client.server_date() == "Mon, 30 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize("body", [None, 1, {"items": 1, "nextCursor": None}, {"items": []}, [1]])
async def test_audit_feed_in_another_shape_is_transient(body: Any) -> None:
    with pytest.raises(Transient):
        [row async for row in FakeServer(lambda *_: body).client.audit_feed(COMPANY, NOON)]


async def test_runs_with_an_expired_key_are_refused() -> None:
    with pytest.raises(UpstreamDown):
        await FakeServer(lambda *_: (401, {"error": "Unauthorized"})).client.runs(COMPANY, 50)


async def test_runs_of_an_id_that_is_not_a_uuid_are_not_asked_for() -> None:
    server = FakeServer(lambda *_: [])
    with pytest.raises(Permanent):
        await server.client.runs("no-uuid", 50)
    assert server.requests == []
