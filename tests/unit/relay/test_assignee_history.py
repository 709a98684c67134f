"""Who an issue was assigned to when a comment was made."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.relay.assignee_history import (
    TOLD_WITHIN,
    TRIES,
    Assignees,
    IssuesThen,
    IssueThen,
    assignee_at,
    changes_of,
)
from consumer.relay.event_builder import Json
from consumer.relay.times import instant, iso
from tests.unit.relay.paper import NOON, Paper


def change(at: float, old: str | None, new: str | None) -> Json:
    return {"createdAt": iso(at), "details": {"changes": {"assigneeAgentId": {"from": old, "to": new}}}}


@given(st.lists(st.sampled_from([None, "ada", "bea", "cid"]), min_size=1, max_size=6), st.integers(0, 7))
def test_it_is_the_one_of_the_last_change_before(agents: list[str | None], at: int) -> None:
    """Agent n has the issue from second n on."""
    activity = [change(NOON + second, old, new) for second, (old, new) in enumerate(pairwise(agents), start=1)]
    issue = {"assigneeAgentId": agents[-1]}
    assert assignee_at(issue, changes_of(reversed(activity)), NOON + at + 0.5) == agents[min(at, len(agents) - 1)]


def test_other_activity_means_nothing() -> None:
    rows: list[Json] = [
        {"createdAt": iso(NOON + 9), "details": None},
        {"createdAt": iso(NOON + 9), "details": {"changes": {"title": {"from": "a", "to": "b"}}}},
        {"createdAt": iso(NOON + 9), "details": {"changes": None}},
    ]
    assert assignee_at({"assigneeAgentId": "ada"}, changes_of(rows), NOON) == "ada"


async def assignee(paper: Paper, issue: str, said: str, known: Assignees | None = None) -> str | None:
    """The agent that the issue had at this time."""
    found = await IssuesThen(paper, known or Assignees(), lambda: paper.now).at(issue, said)  # type: ignore[arg-type]
    assert found is not None
    agent: str | None = found["assigneeAgentId"]
    return agent


def taken(at: float, agent: str) -> Json:
    return {"createdAt": iso(at), "action": "issue.checked_out", "agentId": None, "details": {"agentId": agent}}


def let_go(at: float, agent: str) -> Json:
    return {"createdAt": iso(at), "action": "issue.released", "agentId": agent, "details": None}


@pytest.mark.parametrize(
    ("rows", "now", "before"),
    [
        ([taken(1, "ada")], "ada", "ada"),  # its run has begun
        ([change(0, "ada", None), taken(2, "bea")], "bea", None),  # nobody had it
        ([let_go(1, "ada")], None, "ada"),
        ([change(0, None, "ada"), let_go(2, "ada")], None, "ada"),
        ([taken(1, "ada"), let_go(2, "ada"), change(3, None, "bea")], "bea", "ada"),
    ],
)
def test_agents_take_issues_and_let_them_go(rows: list[Json], now: str | None, before: str | None) -> None:
    rows = [row | {"createdAt": iso(NOON + instant(row["createdAt"]))} for row in rows]
    assert assignee_at({"assigneeAgentId": now}, changes_of(rows), NOON + 0.5) == before
    assert assignee_at({"assigneeAgentId": now}, changes_of(rows), NOON + 9) == now


async def test_activity_is_read_once_and_only_if_the_issue_changed_since() -> None:
    paper = Paper()
    ada, bea = paper.agents_
    issue = paper.open(agent=ada)
    first = iso(paper.now)
    paper.tick(60)
    second = iso(paper.now)
    paper.assign(issue, bea)
    paper.tick(60)
    then = IssueThen(paper, paper.issues_[issue], Assignees(), lambda: paper.now)  # type: ignore[arg-type]
    assert (await then.at(iso(paper.now)))["assigneeAgentId"] == bea
    assert paper.calls["activity"] == 0
    assert (await then.at(first))["assigneeAgentId"] == ada
    assert (await then.at(second))["assigneeAgentId"] == bea
    assert paper.calls["activity"] == 1


async def test_a_change_of_just_now_is_waited_for() -> None:
    """Paperclip changes the issue first and tells of it a moment later."""
    paper = Paper()
    ada, bea = paper.agents_
    issue = paper.open(agent=ada)
    said = iso(paper.now)
    paper.tick(0.1)
    paper.assign(issue, bea)
    late = paper.activities.pop()

    async def tell() -> None:
        while paper.calls["activity"] < 2:  # noqa: ASYNC110 - it is the reader that must have come by
            await asyncio.sleep(0)
        paper.activities.append(late)

    telling = asyncio.create_task(tell())
    then = IssuesThen(paper, Assignees(), lambda: paper.now)  # type: ignore[arg-type]
    found = await then.at(issue, said)
    await telling
    assert found is not None
    assert found["assigneeAgentId"] == ada


async def test_a_change_that_nobody_tells_of_is_not_waited_for_long() -> None:
    paper = Paper()
    issue = paper.open(agent=paper.agents_[0])
    said = iso(paper.now - 1)
    paper.tick(TOLD_WITHIN)
    found = await IssueThen(paper, paper.issues_[issue], Assignees(), lambda: paper.now).at(said)  # type: ignore[arg-type]
    assert found["assigneeAgentId"] == paper.agents_[0]
    assert paper.calls["activity"] == 1


async def test_what_is_remembered_and_has_not_changed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paperclip moves `updatedAt` for many reasons that it tells nobody."""
    monkeypatch.setattr("consumer.relay.assignee_history.ASKED_EVERY", 0)
    paper, assignees = Paper(), Assignees()
    issue = paper.open(agent=paper.agents_[0])
    for asked in (TRIES + 1, TRIES + 2):
        said = iso(paper.now)
        paper.tick(0.25)
        paper.issues_[issue]["updatedAt"] = iso(paper.now)
        found = await assignee(paper, issue, said, assignees)
        assert (found, paper.calls["activity"]) == (paper.agents_[0], asked)


async def test_an_issue_that_went_to_another_and_back_was_the_others() -> None:
    paper, assignees = Paper(), Assignees()
    issue = paper.open(agent=None)
    assignees.note(paper.issues_[issue])
    paper.tick(10)
    paper.assign(issue, paper.agents_[0])
    paper.tick(1)
    said = iso(paper.now)
    paper.tick(1)
    paper.assign(issue, None)
    found = await assignee(paper, issue, said, assignees)
    assert found == paper.agents_[0]


async def test_activity_that_was_read_before_a_change_is_read_again_however_long_that_took() -> None:
    """Both are asked for at once; of a slow Paperclip the answers are of different moments."""
    paper = Paper()
    ada, bea = paper.agents_
    issue = paper.open(agent=ada)
    said = iso(paper.now)
    paper.tick(1)
    read, slow = paper.issue_json, True

    async def slowly(issue_id: str) -> Json | None:
        nonlocal slow
        if slow:
            slow = False
            await asyncio.sleep(0)  # the activity is read meanwhile
            paper.assign(issue, bea)
            paper.say(issue, told=False)
            paper.tick(TOLD_WITHIN)
        return await read(issue_id)

    paper.issue_json = slowly  # type: ignore[method-assign]
    found = await assignee(paper, issue, said)
    assert (found, paper.calls["activity"]) == (ada, 2)


async def test_a_change_after_the_comment_is_not_taken_for_what_is_remembered() -> None:
    paper, assignees = Paper(), Assignees()
    ada, bea = paper.agents_
    issue = paper.open(agent=ada)
    assignees.note(paper.issues_[issue])
    paper.tick(1)
    said = iso(paper.now)
    paper.tick(1)
    paper.assign(issue, bea)
    found = await assignee(paper, issue, said, assignees)
    assert found == ada


async def test_a_batch_asks_for_each_issue_once() -> None:
    paper = Paper()
    issue = paper.open(agent=paper.agents_[0])
    said = iso(paper.now)
    then = IssuesThen(paper, Assignees(), lambda: paper.now)  # type: ignore[arg-type]
    await asyncio.gather(*(then.at(issue, said) for _ in range(5)))
    assert (paper.calls["issue_json"], paper.calls["activity"]) == (1, 1)
    assert await then.at("eaeadea7-4ac3-45e4-a173-53a04acf0674", said) is None


def test_times() -> None:
    with pytest.raises(ValueError, match="Invalid isoformat"):
        changes_of([change(NOON, None, None) | {"createdAt": "soon"}])
