"""The agent who had an issue when a comment was made."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.paperclip.models import Json
from consumer.relay.assignee_history import (
    ACTIVITY_DELAY,
    RETRIES,
    AssigneeCache,
    IssueHistories,
    IssueHistory,
    assignee_at,
    assignee_changes,
)
from schemas.timestamps import format_timestamp, parse_timestamp
from tests.support.fake_feed import NOON, FakeFeedClient


def updated(at: float, before: str | None, after: str | None) -> Json:
    change = {"assigneeAgentId": {"from": before, "to": after}}
    return {"createdAt": format_timestamp(at), "details": {"changes": change}}


def checked_out(at: float, agent: str) -> Json:
    details = {"agentId": agent}
    return {"createdAt": format_timestamp(at), "action": "issue.checked_out", "agentId": None, "details": details}


def released(at: float, agent: str) -> Json:
    return {"createdAt": format_timestamp(at), "action": "issue.released", "agentId": agent, "details": None}


@given(st.lists(st.sampled_from([None, "ada", "bea", "cid"]), min_size=1, max_size=6), st.integers(0, 7))
def test_assignee_is_the_one_of_the_last_change_before_the_time(agents: list[str | None], at: int) -> None:
    """Agent n has the issue from second n on."""
    activity = [updated(NOON + second, before, after) for second, (before, after) in enumerate(pairwise(agents), 1)]
    changes = assignee_changes(reversed(activity))
    issue = {"assigneeAgentId": agents[-1]}
    assert assignee_at(issue, changes, NOON + at + 0.5) == agents[min(at, len(agents) - 1)]


def test_activity_that_does_not_change_the_assignee_is_ignored() -> None:
    rows: list[Json] = [
        {"createdAt": format_timestamp(NOON + 9), "details": None},
        {"createdAt": format_timestamp(NOON + 9), "details": {"changes": {"title": {"from": "a", "to": "b"}}}},
        {"createdAt": format_timestamp(NOON + 9), "details": {"changes": None}},
    ]
    assert assignee_at({"assigneeAgentId": "ada"}, assignee_changes(rows), NOON) == "ada"


@pytest.mark.parametrize(
    ("rows", "now", "before"),
    [
        ([checked_out(1, "ada")], "ada", "ada"),  # its run has begun
        ([updated(0, "ada", None), checked_out(2, "bea")], "bea", None),  # nobody had it
        ([released(1, "ada")], None, "ada"),
        ([updated(0, None, "ada"), released(2, "ada")], None, "ada"),
        ([checked_out(1, "ada"), released(2, "ada"), updated(3, None, "bea")], "bea", "ada"),
    ],
)
def test_assignee_before_checkouts_and_releases(rows: list[Json], now: str | None, before: str | None) -> None:
    rows = [row | {"createdAt": format_timestamp(NOON + parse_timestamp(row["createdAt"]))} for row in rows]
    assert assignee_at({"assigneeAgentId": now}, assignee_changes(rows), NOON + 0.5) == before
    assert assignee_at({"assigneeAgentId": now}, assignee_changes(rows), NOON + 9) == now


def test_activity_with_a_time_that_cannot_be_parsed_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="Invalid isoformat"):
        assignee_changes([updated(NOON, None, None) | {"createdAt": "soon"}])


def histories(feed: FakeFeedClient, assignees: AssigneeCache | None = None) -> IssueHistories:
    return IssueHistories(feed, assignees or AssigneeCache(), lambda: feed.now)


def history(feed: FakeFeedClient, issue: str) -> IssueHistory:
    return IssueHistory(feed, feed.issues_by_id[issue], AssigneeCache(), lambda: feed.now)


async def assignee(feed: FakeFeedClient, issue: str, time: str, assignees: AssigneeCache | None = None) -> str | None:
    then = await histories(feed, assignees).issue_at(issue, time, pace=None)
    assert then is not None
    agent: str | None = then["assigneeAgentId"]
    return agent


@pytest.fixture
def feed() -> FakeFeedClient:
    return FakeFeedClient()


async def test_activity_is_read_once_and_only_if_the_issue_changed_since(feed: FakeFeedClient) -> None:
    ada, bea = feed.agent_ids
    issue = feed.add_issue(agent=ada)
    first = feed.time
    feed.advance(60)
    second = feed.time
    feed.assign(issue, bea)
    feed.advance(60)
    issue_history = history(feed, issue)
    assert (await issue_history.at(feed.time))["assigneeAgentId"] == bea
    assert feed.calls["activity"] == 0
    assert (await issue_history.at(first))["assigneeAgentId"] == ada
    assert (await issue_history.at(second))["assigneeAgentId"] == bea
    assert feed.calls["activity"] == 1


async def test_activity_of_a_change_of_just_now_is_waited_for(feed: FakeFeedClient) -> None:
    """Paperclip changes the issue first and writes its activity a moment later."""
    ada, bea = feed.agent_ids
    issue = feed.add_issue(agent=ada)
    time = feed.time
    feed.advance(0.1)
    feed.assign(issue, bea)
    late = feed.activity_rows.pop()

    async def write_activity() -> None:
        while feed.calls["activity"] < 2:  # noqa: ASYNC110 - it must be read in vain first
            await asyncio.sleep(0)
        feed.activity_rows.append(late)

    writing = asyncio.create_task(write_activity())
    assert await assignee(feed, issue, time) == ada
    await writing


async def test_activity_of_an_older_change_is_not_waited_for(feed: FakeFeedClient) -> None:
    issue = feed.add_issue(agent=feed.agent_ids[0])
    time = format_timestamp(feed.now - 1)
    feed.advance(ACTIVITY_DELAY)
    then = await history(feed, issue).at(time)
    assert then["assigneeAgentId"] == feed.agent_ids[0]
    assert feed.calls["activity"] == 1


async def test_activity_of_an_issue_with_its_cached_assignee_is_not_waited_for(
    feed: FakeFeedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paperclip moves `updatedAt` for many reasons without activity."""
    monkeypatch.setattr("consumer.relay.assignee_history.RETRY_INTERVAL", 0)
    assignees = AssigneeCache()
    issue = feed.add_issue(agent=feed.agent_ids[0])
    for calls in (RETRIES + 1, RETRIES + 2):
        time = feed.time
        feed.advance(0.25)
        feed.issues_by_id[issue]["updatedAt"] = feed.time
        agent = await assignee(feed, issue, time, assignees)
        assert (agent, feed.calls["activity"]) == (feed.agent_ids[0], calls)


async def test_issue_that_went_to_an_agent_and_back_had_that_agent(feed: FakeFeedClient) -> None:
    assignees = AssigneeCache()
    issue = feed.add_issue(agent=None)
    assignees.remember(feed.issues_by_id[issue])
    feed.advance(10)
    feed.assign(issue, feed.agent_ids[0])
    feed.advance(1)
    time = feed.time
    feed.advance(1)
    feed.assign(issue, None)
    assert await assignee(feed, issue, time, assignees) == feed.agent_ids[0]


async def test_activity_read_before_the_issue_changed_is_read_again(feed: FakeFeedClient) -> None:
    """Both are asked for at once; the answers of a slow Paperclip are of different moments."""
    ada, bea = feed.agent_ids
    issue = feed.add_issue(agent=ada)
    time = feed.time
    feed.advance(1)
    read, slow = feed.issue_json, True

    async def read_slowly(issue_id: str) -> Json | None:
        nonlocal slow
        if slow:
            slow = False
            await asyncio.sleep(0)  # the activity is read meanwhile
            feed.assign(issue, bea)
            feed.add_comment(issue, audited=False)
            feed.advance(ACTIVITY_DELAY)
        return await read(issue_id)

    feed.issue_json = read_slowly  # type: ignore[method-assign]
    assert await assignee(feed, issue, time) == ada
    assert feed.calls["activity"] == 2


async def test_change_after_the_time_outweighs_the_cached_assignee(feed: FakeFeedClient) -> None:
    assignees = AssigneeCache()
    ada, bea = feed.agent_ids
    issue = feed.add_issue(agent=ada)
    assignees.remember(feed.issues_by_id[issue])
    feed.advance(1)
    time = feed.time
    feed.advance(1)
    feed.assign(issue, bea)
    assert await assignee(feed, issue, time, assignees) == ada


async def test_batch_reads_each_issue_once_and_has_none_for_an_unknown_one(feed: FakeFeedClient) -> None:
    issue = feed.add_issue(agent=feed.agent_ids[0])
    batch = histories(feed)
    await asyncio.gather(*(batch.issue_at(issue, feed.time, pace=None) for _ in range(5)))
    assert (feed.calls["issue_json"], feed.calls["activity"]) == (1, 1)
    assert await batch.issue_at("eaeadea7-4ac3-45e4-a173-53a04acf0674", feed.time, pace=None) is None
