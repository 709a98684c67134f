"""Paperclip's lists on a scripted wire: pages, anchors, and what a refusal means."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from consumer.errors import Permanent, Transient, UpstreamDown
from consumer.http.transport import Reply, Request
from consumer.paperclip.feed import AUDIT_PAGE, COMMENTS_PAGE, ISSUES_PAGE, FeedClient, FeedOperation, forbidden

COMPANY = "f7b2ffb0-dc3a-437e-9f75-94ccd64bb80d"
ISSUE = "84f04695-b2f5-472e-9096-5cfbd079d332"
RUN = "f287efe6-ea0c-4d1b-a555-2124ecfd6e38"


def comment_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


class Wire:
    """Answers requests by a function of path and query; keeps them."""

    def __init__(self, answer: Callable[[str, dict[str, str]], Any]) -> None:
        self._answer = answer
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.operations: list[str] = []

    async def __call__(self, request: Request) -> Reply:
        parts = urlsplit(request.url)
        query = dict(parse_qsl(parts.query))
        self.asked.append((parts.path, query))
        self.operations.append(request.operation)
        found = self._answer(parts.path, query)
        status, body = found if isinstance(found, tuple) else (200, found)
        return Reply(status, {"date": "Mon, 30 Nov 2026 12:00:00 GMT"}, json.dumps(body).encode())

    @property
    def client(self) -> FeedClient:
        return FeedClient(self, "http://paperclip/base", key="key", user_agent="test")


async def test_the_audit_feed_is_drained_by_its_cursor() -> None:
    pages = [{"items": [{"id": 1}, {"id": 2}], "nextCursor": "more"}, {"items": [{"id": 3}], "nextCursor": None}]
    wire = Wire(lambda *_: pages.pop(0))
    assert [row["id"] async for row in wire.client.audit(COMPANY, "2026-11-30T12:00:00.000Z")] == [1, 2, 3]
    path, query = wire.asked[0]
    assert path == f"/base/api/companies/{COMPANY}/audit/agent-actions"
    assert query == {
        "actorScope": "all",
        "entityType": "issue",
        "action": "issue.comment",
        "from": "2026-11-30T12:00:00.000Z",
        "limit": str(AUDIT_PAGE),
    }
    assert wire.asked[1][1]["cursor"] == "more"


async def test_a_key_without_the_audit_permission() -> None:
    wire = Wire(lambda *_: (403, {"error": "Audit filters require permission: audit:view_agent_actions"}))
    with pytest.raises(Permanent) as caught:
        [row async for row in wire.client.audit(COMPANY, "2026-11-30T12:00:00.000Z")]
    assert forbidden(caught.value)
    assert not await wire.client.may_audit(COMPANY)
    assert await Wire(lambda *_: {"items": [], "nextCursor": None}).client.may_audit(COMPANY)


async def test_issues_in_pages_each_once() -> None:
    """An issue that changes meanwhile moves to the front, and pushes another one over the page's end again."""
    rows = [{"id": str(number)} for number in range(ISSUES_PAGE + 3)]

    def answer(_: str, query: dict[str, str]) -> Any:
        offset = int(query["offset"])
        return rows[:ISSUES_PAGE] if offset == 0 else rows[offset - 1 :]

    wire = Wire(answer)
    assert [row["id"] async for row in wire.client.issues(COMPANY, "2026-11-30T12:00:00.000Z")] == [
        row["id"] for row in rows
    ]
    assert wire.asked[0][1] | {"updatedSince": "2026-11-30T12:00:00.000Z", "sortDir": "desc"} == wire.asked[0][1]
    assert [query["offset"] for _, query in wire.asked] == ["0", str(ISSUES_PAGE)]


class Comments:
    """An issue's comments as Paperclip pages them: nothing follows an anchor that is gone."""

    def __init__(self, count: int) -> None:
        self.ids = [comment_id(number) for number in range(count)]
        self.remove_before_request: dict[int, str] = {}
        self.requests = 0

    def answer(self, path: str, query: dict[str, str]) -> Any:
        if path.rpartition("/")[0].endswith("/comments"):
            id_ = path.rpartition("/")[2]
            return {"id": id_} if id_ in self.ids else (404, {"error": "Comment not found"})
        self.requests += 1
        if gone := self.remove_before_request.get(self.requests):
            self.ids.remove(gone)
        ids = self.ids if query["order"] == "asc" else self.ids[::-1]
        if after := query.get("after"):
            ids = ids[ids.index(after) + 1 :] if after in ids else []
        return [{"id": each} for each in ids[: int(query["limit"])]]


@pytest.mark.parametrize("oldest_first", [True, False])
async def test_comments_in_pages(oldest_first: bool) -> None:
    comments = Comments(2 * COMMENTS_PAGE + 1)
    wire = Wire(comments.answer)
    found = [row["id"] async for row in wire.client.comments(ISSUE, oldest_first=oldest_first)]
    assert found == (comments.ids if oldest_first else comments.ids[::-1])
    assert comments.requests == 3


async def test_an_anchor_that_is_cancelled_meanwhile_ends_nothing() -> None:
    comments = Comments(2 * COMMENTS_PAGE)
    last = comment_id(COMMENTS_PAGE - 1)
    comments.remove_before_request = {2: last, 3: comment_id(COMMENTS_PAGE - 2)}
    everything = set(comments.ids)
    found = [row["id"] async for row in Wire(comments.answer).client.comments(ISSUE, oldest_first=True)]
    assert set(found) == everything
    assert len(found) == len(everything)


async def test_the_last_page_can_be_a_full_one() -> None:
    comments = Comments(COMMENTS_PAGE)
    found = [row["id"] async for row in Wire(comments.answer).client.comments(ISSUE, oldest_first=True)]
    assert found == comments.ids


async def test_only_paperclips_own_word_says_that_a_comment_is_gone() -> None:
    """`Issue not found` is its answer to an expired key, too."""
    gone = Wire(lambda *_: (404, {"error": "Comment not found"}))
    assert await gone.client.comment(ISSUE, comment_id(1)) is None
    for body, error in (({"error": "Issue not found"}, Permanent), ({"message": "nginx"}, Transient)):
        with pytest.raises(error):
            await Wire(lambda *_, body=body: (404, body)).client.comment(ISSUE, comment_id(1))


async def test_objects_that_are_not_shown() -> None:
    wire = Wire(lambda path, _: (404, {"error": "Issue not found" if "issues" in path else "Heartbeat run not found"}))
    assert await wire.client.issue(ISSUE) is None
    assert await wire.client.run(RUN) is None
    with pytest.raises(Transient):
        await Wire(lambda *_: (404, {"error": "API route not found"})).client.issue(ISSUE)


async def test_what_a_run_ended_with() -> None:
    rows = [
        {"eventType": "lifecycle", "payload": None},
        {"eventType": "lifecycle", "payload": {"status": "succeeded", "exitCode": None}},
        {"eventType": "lifecycle", "payload": {"dir": "/tmp"}},
        {"eventType": "adapter.invoke", "payload": {"status": "no status of the run"}},
    ]
    assert await Wire(lambda *_: rows).client.run_statuses(RUN) == ["succeeded"]


async def test_runs_of_all_or_of_one_agent() -> None:
    wire = Wire(lambda *_: [{"id": RUN}])
    await wire.client.runs(COMPANY, 50)
    await wire.client.runs(COMPANY, 1_000, ISSUE)
    assert [query for _, query in wire.asked] == [
        {"summary": "true", "limit": "50"},
        {"summary": "true", "limit": "1000", "agentId": ISSUE},
    ]


async def test_plugins_and_their_configuration() -> None:
    wire = Wire(lambda path, _: None if path.endswith("/config") else [{"id": ISSUE}])
    assert await wire.client.plugins() == [{"id": ISSUE}]
    assert await wire.client.plugin_config(ISSUE, COMPANY) is None
    assert wire.asked[1] == (f"/base/api/plugins/{ISSUE}/config", {"companyId": COMPANY})


async def test_the_clock() -> None:
    assert await Wire(lambda *_: {"status": "ok"}).client.clock() == "Mon, 30 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize("body", [None, 1, {"items": 1, "nextCursor": None}, {"items": []}, [1]])
async def test_an_answer_of_another_shape_is_no_answer(body: Any) -> None:
    wire = Wire(lambda *_: body)
    with pytest.raises(Transient):
        [row async for row in wire.client.audit(COMPANY, "2026-11-30T12:00:00.000Z")]
    with pytest.raises(Transient):
        await wire.client.issue(ISSUE)


async def test_an_expired_key_and_an_id_that_is_none() -> None:
    with pytest.raises(UpstreamDown):
        await Wire(lambda *_: (401, {"error": "Unauthorized"})).client.runs(COMPANY, 50)
    wire = Wire(lambda *_: [])
    with pytest.raises(Permanent):
        await wire.client.runs("no-uuid", 50)
    assert wire.asked == []


async def test_every_request_has_a_known_name() -> None:
    wire = Wire(lambda *_: [])
    await wire.client.agents(COMPANY)
    await wire.client.activity(ISSUE)
    assert [FeedOperation(each) for each in wire.operations] == [FeedOperation.AGENTS, FeedOperation.ACTIVITY]
