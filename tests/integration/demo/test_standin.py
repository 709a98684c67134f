"""The stand-in answers as Paperclip does."""

from collections.abc import AsyncIterator

import httpx
import pytest

from demo import recording
from demo.standin import StandIn, in_thread

ABSENT = "00000000-0000-4000-8000-000000000000"
COMMENT = recording.made("comment-gone-404")


@pytest.fixture
async def standin() -> AsyncIterator[StandIn]:
    async with StandIn() as running:
        yield running


@pytest.fixture
async def client(standin: StandIn) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"{standin.url}/api") as client:
        yield client


async def test_standin_serves_every_recorded_object(client: httpx.AsyncClient) -> None:
    company = recording.company()
    assert (await client.get(f"/companies/{company['id']}")).json() == company
    assert (await client.get(f"/companies/{company['id']}/agents")).json() == recording.agents()
    assert (await client.get("/agents/me")).json() == recording.agent_me()
    for run in recording.runs():
        assert (await client.get(f"/heartbeat-runs/{run['id']}")).json() == run
    for issue in recording.issues():
        assert (await client.get(f"/issues/{issue['id']}")).json() == issue
    for comment in recording.comments():
        assert (await client.get(f"/issues/{comment['issueId']}/comments/{comment['id']}")).json() == comment


async def test_standin_lists_comments_in_either_order_and_after_an_anchor(client: httpx.AsyncClient) -> None:
    path = f"/issues/{recording.issues()[0]['id']}/comments"
    newest = [row["createdAt"] for row in (await client.get(path)).json()]
    rows = (await client.get(path, params={"order": "asc"})).json()
    assert newest == sorted(newest, reverse=True)
    assert [row["createdAt"] for row in rows] == sorted(newest)
    rest = await client.get(path, params={"order": "asc", "after": rows[0]["id"], "limit": "1"})
    assert rest.json() == rows[1:2]
    assert (await client.get(path, params={"after": ABSENT})).json() == []


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        (f"/issues/{ABSENT}", 404, "Issue not found"),
        (f"/heartbeat-runs/{ABSENT}", 404, "Heartbeat run not found"),
        (f"/issues/{ABSENT}/comments/{ABSENT}", 404, "Issue not found"),
        (f"/companies/{ABSENT}", 404, "Company not found"),
        ("/issues/ACM-1x", 500, "Internal server error"),
        ("/heartbeat-runs/local-board", 500, "Internal server error"),
        ("/nothing", 404, "API route not found"),
    ],
)
async def test_standin_answers_404_for_missing_objects_and_500_for_other_ids(
    client: httpx.AsyncClient, path: str, status: int, error: str
) -> None:
    reply = await client.get(path)
    assert (reply.status_code, reply.json()) == (status, {"error": error})


async def test_standin_answers_404_for_a_removed_comment(standin: StandIn, client: httpx.AsyncClient) -> None:
    event, expected = COMMENT.value["event"], COMMENT.value["get"]
    comment = event["payload"]["commentId"]
    del standin.comments[comment]
    reply = await client.get(f"/issues/{event['entityId']}/comments/{comment}")
    assert (reply.status_code, reply.json()) == (expected["status"], expected["body"])


async def test_standin_requires_the_key_except_for_health(standin: StandIn, client: httpx.AsyncClient) -> None:
    standin.key = "right"
    assert (await client.get("/health")).status_code == 200
    assert (await client.get("/agents/me")).status_code == 401
    assert (await client.get("/agents/me", headers={"Authorization": "Bearer wrong"})).status_code == 401
    assert (await client.get("/agents/me", headers={"Authorization": "Bearer right"})).status_code == 200
    assert ("GET", "/api/agents/me") in standin.requests


def test_standin_serves_from_a_thread() -> None:
    with in_thread(StandIn()) as standin:
        url = f"{standin.url}/api/health"
        assert httpx.get(url).json() == {"status": "ok"}
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)
