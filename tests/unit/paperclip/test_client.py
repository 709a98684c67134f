"""Objects, 404s and keys: against recorded answers, and those that a real Paperclip (2026.824) gave to each key."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from consumer.errors import DeadLetterReason, DownKind, HandlingError, Permanent, Transient, Upstream, UpstreamDown
from consumer.http.transport import ConnectError, RequestTimeout, Response, TransportError
from consumer.paperclip.client import PaperclipClient
from consumer.paperclip.models import LOOKUPS, Identity, KeyKind, PaperclipOperation
from demo import recording
from tests.unit.http.scripted import Scripted, answer

BASE = "https://paperclip.example/base"
COMPANY = "f7b2ffb0-dc3a-437e-9f75-94ccd64bb80d"
ADA = "d5add4c6-9a97-4ddd-9a15-33dcc8c6607c"
ID = "84f04695-b2f5-472e-9096-5cfbd079d332"
OTHER = "00000000-0000-4000-8000-000000000000"

# Answers of a real Paperclip in its `authenticated` mode.
NO_ISSUE = answer(404, {"error": "Issue not found"})  # to a wrong key and for another company's issue too
NO_COMMENT = answer(404, {"error": "Comment not found"})
NO_RUN = answer(404, {"error": "Heartbeat run not found"})
NO_ROUTE = answer(404, {"error": "API route not found"})
BOARD_ONLY = answer(403, {"error": "Board access required"})  # /api/companies, to an agent's and to a wrong key
AGENT_ONLY = answer(401, {"error": "Agent authentication required"})  # /api/agents/me, to a board and to a wrong key
ME = answer(200, recording.agent_me())
COMPANIES = answer(200, [recording.company()])


def client(*answers: Response | TransportError) -> tuple[PaperclipClient, Scripted]:
    send = Scripted(list(answers))
    return PaperclipClient(send, BASE, key="s3cret", user_agent="paperclip-memory/1.2.3"), send


@pytest.mark.parametrize("row", recording.runs(), ids=lambda row: row["id"])
async def test_run_of_the_recording_is_parsed(row: dict[str, Any]) -> None:
    paperclip, send = client(answer(200, row))
    run = await paperclip.run(row["id"])
    assert send.lines == [f"GET /base/api/heartbeat-runs/{row['id']}"]
    assert run is not None
    assert (run.id, run.agent_id) == (row["id"], row["agentId"])
    headers = send.asked[0].headers
    assert (headers["Authorization"], headers["User-Agent"]) == ("Bearer s3cret", "paperclip-memory/1.2.3")


@pytest.mark.parametrize("row", recording.issues(), ids=lambda row: row["id"])
async def test_issue_of_the_recording_is_parsed_and_its_id_sent_in_lower_case(row: dict[str, Any]) -> None:
    paperclip, send = client(answer(200, row))
    issue = await paperclip.issue(row["id"].upper())
    assert send.lines == [f"GET /base/api/issues/{row['id']}"]
    assert issue is not None
    assert (issue.id, issue.title, issue.description) == (row["id"], row["title"], row["description"])


async def test_issue_by_identifier_sends_it_in_upper_case() -> None:
    row = recording.issues()[0]
    paperclip, send = client(answer(200, row))
    issue = await paperclip.issue_by_identifier(f" {row['identifier'].lower()} ")
    assert send.lines == [f"GET /base/api/issues/{row['identifier']}"]
    assert issue is not None
    assert issue.id == row["id"]


async def test_issue_by_identifier_is_none_for_an_unknown_one_and_unsent_for_any_other_text() -> None:
    paperclip, send = client(answer(500, {"error": "Internal server error"}))
    assert await paperclip.issue_by_identifier("PAP-999") is None
    assert [await paperclip.issue_by_identifier(text) for text in ("", "daily-digest", "PAP-1/../..", "P\u0661-1")] == [
        None
    ] * 4
    assert len(send.asked) == 1


@pytest.mark.parametrize("row", recording.comments(), ids=lambda row: row["id"])
async def test_comment_of_the_recording_is_parsed(row: dict[str, Any]) -> None:
    paperclip, send = client(answer(200, row))
    comment = await paperclip.comment(row["issueId"], row["id"])
    assert send.lines == [f"GET /base/api/issues/{row['issueId']}/comments/{row['id']}"]
    assert comment is not None
    assert (comment.id, comment.body, comment.deleted_at) == (row["id"], row["body"], row["deletedAt"])


async def test_agents_of_the_recording_are_their_ids() -> None:
    rows = recording.agents()
    paperclip, send = client(answer(200, rows))
    assert list(await paperclip.agents(COMPANY)) == [row["id"] for row in rows]
    assert send.lines == [f"GET /base/api/companies/{COMPANY}/agents"]


# 404: absence, a wrong key, a proxy.


async def test_comment_not_found_is_none_without_proving_the_key() -> None:
    gone = recording.made("comment-gone-404").value["get"]
    paperclip, send = client(answer(gone["status"], gone["body"]))
    assert await paperclip.comment(ID, OTHER) is None
    assert len(send.asked) == 1


@pytest.mark.parametrize("call", ["run", "issue", "comment", "run_json", "issue_json", "comment_json"])
async def test_404_to_a_wrong_key_is_refused_not_absence(call: str) -> None:
    paperclip, send = client(NO_RUN if call.startswith("run") else NO_ISSUE, BOARD_ONLY, AGENT_ONLY)
    with pytest.raises(UpstreamDown) as caught:
        await OBJECTS[call](paperclip)
    assert caught.value.kind is DownKind.REFUSED
    assert send.lines[1:] == ["GET /base/api/companies", "GET /base/api/agents/me"]


@pytest.mark.parametrize("proof", [[COMPANIES], [BOARD_ONLY, ME]], ids=["board", "agent"])
async def test_404_of_a_run_or_issue_to_a_good_key_is_none(proof: list[Response]) -> None:
    paperclip, _ = client(NO_RUN, *proof, NO_ISSUE, *proof)
    assert await paperclip.run(ID) is None
    assert await paperclip.issue(ID) is None


async def test_issue_not_found_for_a_comment_is_forbidden_not_absence() -> None:
    """Deleted, or another company's: Paperclip does not say, and a deletion would hang on it."""
    paperclip, _ = client(NO_ISSUE, BOARD_ONLY, ME)
    with pytest.raises(Permanent, match="deleted, or is another company's") as caught:
        await paperclip.comment(ID, OTHER)
    assert caught.value.reason is DeadLetterReason.FORBIDDEN


@pytest.mark.parametrize("reply", [NO_ROUTE, answer(404, b"<html>404</html>"), answer(404, {"message": "gone"})])
@pytest.mark.parametrize("call", ["run", "issue", "comment"])
async def test_404_in_other_words_is_transient(call: str, reply: Response) -> None:
    paperclip, send = client(reply)
    with pytest.raises(Transient, match="wrong base URL"):
        await CALLS[call](paperclip)
    assert len(send.asked) == 1


async def test_404_with_a_key_check_that_fails_is_transient() -> None:
    paperclip, _ = client(NO_ISSUE, answer(503))
    with pytest.raises(Transient):
        await paperclip.comment(ID, OTHER)


@pytest.mark.parametrize("call", ["run", "issue", "comment", "run_json", "issue_json", "comment_json"])
@pytest.mark.parametrize("reply", [b"<html>", [], {}, None, {"id": OTHER}, {"id": "x"}, {"status": "ok"}])
async def test_answer_that_is_not_the_requested_object_is_transient(call: str, reply: object) -> None:
    paperclip, _ = client(answer(200, reply))
    with pytest.raises(Transient, match="the body is not Paperclip's"):
        await OBJECTS[call](paperclip)


@pytest.mark.parametrize("reply", [b"<html>", {}, {"id": ID}, [{}], [1], [{"id": 1}], [{"id": "x"}]])
async def test_agents_in_another_shape_are_transient(reply: object) -> None:
    paperclip, _ = client(answer(200, reply))
    with pytest.raises(Transient, match="the body is not Paperclip's"):
        await paperclip.agents(COMPANY)


@pytest.mark.parametrize("bad", ["", "x", "..", "local-board", f"{ID}/..", f"{ID}\n", f" {ID}"])
async def test_id_that_is_not_a_uuid_is_permanent_and_not_sent(bad: str) -> None:
    paperclip, send = client()
    calls = [
        paperclip.run(bad),
        paperclip.issue(bad),
        paperclip.comment(bad, ID),
        paperclip.comment(ID, bad),
        paperclip.agents(bad),
    ]
    for call in calls:
        with pytest.raises(Permanent) as caught:
            await call
        assert caught.value.reason is DeadLetterReason.INVALID
    assert send.asked == []


# Keys.


async def test_authenticate_with_a_board_key_gives_its_companies() -> None:
    paperclip, send = client(COMPANIES)
    assert await paperclip.authenticate() == Identity(KeyKind.BOARD, (COMPANY,))
    assert (send.lines, send.asked[0].timeout) == (["GET /base/api/companies"], 5.0)


async def test_authenticate_with_an_agents_key_gives_the_agent() -> None:
    paperclip, send = client(BOARD_ONLY, ME)
    assert await paperclip.authenticate() == Identity(KeyKind.AGENT, (COMPANY,), ADA)
    assert send.lines == ["GET /base/api/companies", "GET /base/api/agents/me"]


async def test_authenticate_with_a_wrong_key_is_refused() -> None:
    paperclip, _ = client(BOARD_ONLY, AGENT_ONLY)
    with pytest.raises(UpstreamDown, match="refuses our key") as caught:
        await paperclip.authenticate()
    assert caught.value.kind is DownKind.REFUSED
    assert "s3cret" not in str(caught.value)


async def test_agents_of_another_company_are_forbidden() -> None:
    paperclip, _ = client(answer(403, {"error": "Agent key cannot access another company"}))
    with pytest.raises(Permanent) as caught:
        await paperclip.agents(COMPANY)
    assert caught.value.reason is DeadLetterReason.FORBIDDEN


async def test_health_returns_if_paperclip_is_up() -> None:
    paperclip, send = client(answer(200, {"status": "ok"}))
    await paperclip.health()
    assert (send.lines, send.asked[0].timeout) == (["GET /base/api/health"], 5.0)


# Every method.


async def collect(rows: AsyncIterator[object]) -> list[object]:
    return [row async for row in rows]


CALLS: dict[str, Callable[[PaperclipClient], Awaitable[object]]] = {
    "run": lambda paperclip: paperclip.run(ID),
    "issue": lambda paperclip: paperclip.issue(ID),
    "comment": lambda paperclip: paperclip.comment(OTHER, ID),
    "agents": lambda paperclip: paperclip.agents(COMPANY),
    "health": lambda paperclip: paperclip.health(),
    "audit": lambda paperclip: collect(paperclip.audit_feed(COMPANY, "2026-11-30T12:00:00.000Z")),
    "issues": lambda paperclip: collect(paperclip.issues(COMPANY)),
    "activity": lambda paperclip: paperclip.activity(ID),
    "comments": lambda paperclip: collect(paperclip.comments(ID, oldest_first=True)),
    "runs": lambda paperclip: paperclip.runs(COMPANY, 50),
    "run_events": lambda paperclip: paperclip.run_end_statuses(ID),
    "plugins": lambda paperclip: paperclip.plugins(),
    "authenticate": lambda paperclip: paperclip.authenticate(),
    "key": lambda paperclip: paperclip.key_expires_at(),
    "tool_connections": lambda paperclip: paperclip.tool_connections(COMPANY),
}


OBJECTS: dict[str, Callable[[PaperclipClient], Awaitable[object]]] = {
    **{name: CALLS[name] for name in ("run", "issue", "comment")},
    "run_json": lambda paperclip: paperclip.run_json(ID),
    "issue_json": lambda paperclip: paperclip.issue_json(ID),
    "comment_json": lambda paperclip: paperclip.comment_json(OTHER, ID),
}


def test_every_operation_is_tested() -> None:
    assert set(CALLS) == set(PaperclipOperation) - {PaperclipOperation.CLOCK}  # reads a header only
    assert set(LOOKUPS) < set(CALLS)


async def test_a_refused_key_is_a_refusal_of_every_request_but_that_of_its_own_end() -> None:
    for operation, call in CALLS.items():
        paperclip, _ = client(answer(401, {"error": "Unauthorized"}))
        if operation == "key":  # an agent's key gets this answer, too
            assert await call(paperclip) is None
            continue
        with pytest.raises(UpstreamDown, match=f"{operation} at {BASE}") as caught:
            await call(paperclip)
        assert caught.value.kind is DownKind.REFUSED


@pytest.mark.parametrize(("operation", "call"), CALLS.items())
@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (ConnectError("refused"), UpstreamDown),
        (RequestTimeout("15 s"), Transient),
        (answer(500, {"error": "Internal server error"}), Transient),
        (answer(200, b"<html>Sign in</html>"), Transient),
        (answer(302, headers={"location": "/login"}), Permanent),
    ],
)
async def test_every_failure_is_in_the_error_tree(
    operation: str,
    call: Callable[[PaperclipClient], Awaitable[object]],
    failure: Response | TransportError,
    expected: type[HandlingError],
) -> None:
    paperclip, send = client(failure)
    with pytest.raises(expected, match=f"{operation} at {BASE}") as caught:
        await call(paperclip)
    assert caught.value.upstream is Upstream.PAPERCLIP
    assert send.asked[0].operation == operation


# What Paperclip says about itself, the key and the tools' connection.


@pytest.mark.parametrize(
    ("health", "version"), [({"status": "ok", "version": "2026.916.1"}, "2026.916.1"), ({"status": "ok"}, None)]
)
async def test_the_release_is_what_health_tells_this_key(health: dict[str, str], version: str | None) -> None:
    paperclip, send = client(answer(200, health))
    assert await paperclip.health() == version
    assert send.lines == ["GET /base/api/health"]


@pytest.mark.parametrize(
    ("expires", "at"), [("2026-12-31T13:32:18.621Z", 1_798_723_938.621), (None, None)], ids=["expires", "never"]
)
async def test_the_end_of_a_board_key_is_found_by_its_id(expires: str | None, at: float | None) -> None:
    keys = [{"id": OTHER, "expiresAt": "2026-12-01T00:00:00Z"}, {"id": ID, "expiresAt": expires}]
    paperclip, send = client(answer(200, {"keyId": ID}), answer(200, keys))
    assert await paperclip.key_expires_at() == at
    assert send.lines == ["GET /base/api/cli-auth/me", "GET /base/api/board-api-keys"]


@pytest.mark.parametrize(
    "said",
    [answer(200, {"keyId": None}), BOARD_ONLY, answer(401, {"error": "Board authentication required"}), NO_ROUTE],
)
async def test_a_key_that_is_not_a_board_key_has_no_known_end(said: Response) -> None:
    paperclip, send = client(said)
    assert await paperclip.key_expires_at() is None
    assert len(send.asked) == 1


async def test_archived_connections_are_left_out() -> None:
    rows = [{"id": ID, "name": "a", "status": "active"}, {"id": OTHER, "name": "b", "status": "archived"}]
    paperclip, send = client(answer(200, {"connections": rows}))
    assert [row["name"] for row in await paperclip.tool_connections(COMPANY)] == ["a"]
    assert send.lines == [f"GET /base/api/companies/{COMPANY}/tools/connections"]


@pytest.mark.parametrize("said", [BOARD_ONLY, NO_ROUTE], ids=["no right", "older release"])
async def test_connections_that_are_not_shown_are_none(said: Response) -> None:
    paperclip, _ = client(said)
    assert await paperclip.tool_connections(COMPANY) == []
