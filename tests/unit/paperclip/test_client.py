"""The client against recorded objects, and against the answers that a real Paperclip (2026.824) gave to each key."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from consumer.errors import DeadLetterReason, DownKind, HandlingError, Permanent, Transient, Upstream, UpstreamDown
from consumer.http.transport import Reply, SendError, TimedOut, Unreachable
from consumer.paperclip.client import Identity, KeyKind, PaperclipClient, PaperclipOperation
from demo import recording
from tests.unit.http.scripted import Scripted, answer

BASE = "https://paperclip.example/base"
COMPANY = "f7b2ffb0-dc3a-437e-9f75-94ccd64bb80d"
ADA = "d5add4c6-9a97-4ddd-9a15-33dcc8c6607c"
ID = "84f04695-b2f5-472e-9096-5cfbd079d332"
OTHER = "00000000-0000-4000-8000-000000000000"

# What the real one said, in its `authenticated` mode.
NO_ISSUE = answer(404, {"error": "Issue not found"})  # to a wrong key and for another company's issue too
NO_COMMENT = answer(404, {"error": "Comment not found"})
NO_RUN = answer(404, {"error": "Heartbeat run not found"})
NO_ROUTE = answer(404, {"error": "API route not found"})
BOARD_ONLY = answer(403, {"error": "Board access required"})  # /api/companies, to an agent's and to a wrong key
AGENT_ONLY = answer(401, {"error": "Agent authentication required"})  # /api/agents/me, to a board and to a wrong key
ME = answer(200, recording.agent_me())
COMPANIES = answer(200, [recording.company()])


def client(*answers: Reply | SendError) -> tuple[PaperclipClient, Scripted]:
    send = Scripted(list(answers))
    return PaperclipClient(send, BASE, key="s3cret", user_agent="paperclip-memory/1.2.3"), send


@pytest.mark.parametrize("row", recording.runs(), ids=lambda row: row["id"])
async def test_run(row: dict[str, Any]) -> None:
    paperclip, send = client(answer(200, row))
    run = await paperclip.run(row["id"])
    assert send.lines == [f"GET /base/api/heartbeat-runs/{row['id']}"]
    assert run is not None
    assert (run.id, run.agent_id) == (row["id"], row["agentId"])
    headers = send.asked[0].headers
    assert (headers["Authorization"], headers["User-Agent"]) == ("Bearer s3cret", "paperclip-memory/1.2.3")


@pytest.mark.parametrize("row", recording.issues(), ids=lambda row: row["id"])
async def test_issue(row: dict[str, Any]) -> None:
    paperclip, send = client(answer(200, row))
    issue = await paperclip.issue(row["id"].upper())
    assert send.lines == [f"GET /base/api/issues/{row['id']}"]
    assert issue is not None
    assert (issue.id, issue.title, issue.description) == (row["id"], row["title"], row["description"])


@pytest.mark.parametrize("row", recording.comments(), ids=lambda row: row["id"])
async def test_comment(row: dict[str, Any]) -> None:
    paperclip, send = client(answer(200, row))
    comment = await paperclip.comment(row["issueId"], row["id"])
    assert send.lines == [f"GET /base/api/issues/{row['issueId']}/comments/{row['id']}"]
    assert comment is not None
    assert (comment.id, comment.body, comment.deleted_at) == (row["id"], row["body"], row["deletedAt"])


async def test_agents() -> None:
    rows = recording.agents()
    paperclip, send = client(answer(200, rows))
    assert list(await paperclip.agents(COMPANY)) == [row["id"] for row in rows]
    assert send.lines == [f"GET /base/api/companies/{COMPANY}/agents"]


# What is gone, and what only looks so.


async def test_a_comment_that_is_gone() -> None:
    gone = recording.made("comment-gone-404").value["get"]
    paperclip, send = client(answer(gone["status"], gone["body"]))
    assert await paperclip.comment(ID, OTHER) is None
    assert len(send.asked) == 1


@pytest.mark.parametrize("call", ["run", "issue", "comment"])
async def test_a_wrong_key_looks_like_absence_and_is_not(call: str) -> None:
    paperclip, send = client(NO_RUN if call == "run" else NO_ISSUE, BOARD_ONLY, AGENT_ONLY)
    with pytest.raises(UpstreamDown) as caught:
        await CALLS[call](paperclip)
    assert caught.value.kind is DownKind.REFUSED
    assert send.lines[1:] == ["GET /base/api/companies", "GET /base/api/agents/me"]


@pytest.mark.parametrize("proof", [[COMPANIES], [BOARD_ONLY, ME]], ids=["board", "agent"])
async def test_a_run_or_an_issue_that_a_good_key_is_not_shown(proof: list[Reply]) -> None:
    paperclip, _ = client(NO_RUN, *proof, NO_ISSUE, *proof)
    assert await paperclip.run(ID) is None
    assert await paperclip.issue(ID) is None


async def test_no_comment_is_given_up_for_an_issue_that_a_good_key_is_not_shown() -> None:
    """Deleted, or another company's: Paperclip does not say, and a deletion would hang on it."""
    paperclip, _ = client(NO_ISSUE, BOARD_ONLY, ME)
    with pytest.raises(Permanent, match="deleted, or is another company's") as caught:
        await paperclip.comment(ID, OTHER)
    assert caught.value.reason is DeadLetterReason.FORBIDDEN


@pytest.mark.parametrize("reply", [NO_ROUTE, answer(404, b"<html>404</html>"), answer(404, {"message": "gone"})])
@pytest.mark.parametrize("call", ["run", "issue", "comment"])
async def test_a_404_that_is_not_paperclips_own_says_nothing(call: str, reply: Reply) -> None:
    paperclip, send = client(reply)
    with pytest.raises(Transient, match="a wrong base URL"):
        await CALLS[call](paperclip)
    assert len(send.asked) == 1


async def test_a_key_check_that_fails_decides_nothing() -> None:
    paperclip, _ = client(NO_ISSUE, answer(503))
    with pytest.raises(Transient):
        await paperclip.comment(ID, OTHER)


@pytest.mark.parametrize("call", ["run", "issue", "comment"])
@pytest.mark.parametrize("reply", [b"<html>", [], {}, None, {"id": OTHER}, {"id": "x"}, {"status": "ok"}])
async def test_another_object_than_asked_for_is_transient(call: str, reply: object) -> None:
    paperclip, _ = client(answer(200, reply))
    with pytest.raises(Transient, match="not with what Paperclip answers"):
        await CALLS[call](paperclip)


@pytest.mark.parametrize("reply", [b"<html>", {}, {"id": ID}, [{}], [1], [{"id": 1}], [{"id": "x"}]])
async def test_agents_of_another_shape_are_transient(reply: object) -> None:
    paperclip, _ = client(answer(200, reply))
    with pytest.raises(Transient, match="not with what Paperclip answers"):
        await paperclip.agents(COMPANY)


@pytest.mark.parametrize("bad", ["", "x", "..", "local-board", f"{ID}/..", f"{ID}\n", f" {ID}"])
async def test_an_id_that_is_no_uuid_is_never_sent(bad: str) -> None:
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


async def test_a_board_key() -> None:
    paperclip, send = client(COMPANIES)
    assert await paperclip.authenticate() == Identity(KeyKind.BOARD, (COMPANY,))
    assert (send.lines, send.asked[0].timeout) == (["GET /base/api/companies"], 5.0)


async def test_an_agents_key() -> None:
    paperclip, send = client(BOARD_ONLY, ME)
    assert await paperclip.authenticate() == Identity(KeyKind.AGENT, (COMPANY,), ADA)
    assert send.lines == ["GET /base/api/companies", "GET /base/api/agents/me"]


async def test_a_wrong_key() -> None:
    paperclip, _ = client(BOARD_ONLY, AGENT_ONLY)
    with pytest.raises(UpstreamDown, match="refuses our key") as caught:
        await paperclip.authenticate()
    assert caught.value.kind is DownKind.REFUSED
    assert "s3cret" not in str(caught.value)


async def test_another_companys_agents_are_forbidden() -> None:
    paperclip, _ = client(answer(403, {"error": "Agent key cannot access another company"}))
    with pytest.raises(Permanent) as caught:
        await paperclip.agents(COMPANY)
    assert caught.value.reason is DeadLetterReason.FORBIDDEN


async def test_health() -> None:
    paperclip, send = client(answer(200, {"status": "ok"}))
    await paperclip.health()
    assert (send.lines, send.asked[0].timeout) == (["GET /base/api/health"], 5.0)


# Every method.

CALLS: dict[str, Callable[[PaperclipClient], Awaitable[object]]] = {
    "run": lambda paperclip: paperclip.run(ID),
    "issue": lambda paperclip: paperclip.issue(ID),
    "comment": lambda paperclip: paperclip.comment(OTHER, ID),
    "agents": lambda paperclip: paperclip.agents(COMPANY),
    "health": lambda paperclip: paperclip.health(),
    "authenticate": lambda paperclip: paperclip.authenticate(),
}


def test_every_operation_is_held_to_it() -> None:
    assert set(CALLS) == set(PaperclipOperation)


@pytest.mark.parametrize(("operation", "call"), CALLS.items())
@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Unreachable("refused"), UpstreamDown),
        (TimedOut("15 s"), Transient),
        (answer(401, {"error": "Unauthorized"}), UpstreamDown),
        (answer(500, {"error": "Internal server error"}), Transient),
        (answer(200, b"<html>Sign in</html>"), Transient),
        (answer(302, headers={"location": "/login"}), Permanent),
    ],
)
async def test_every_failure_is_ours(
    operation: str,
    call: Callable[[PaperclipClient], Awaitable[object]],
    failure: Reply | SendError,
    expected: type[HandlingError],
) -> None:
    paperclip, send = client(failure)
    with pytest.raises(expected, match=f"{operation} at {BASE}") as caught:
        await call(paperclip)
    assert caught.value.upstream is Upstream.PAPERCLIP
    assert send.asked[0].operation == operation
