"""Envelopes against what a plugin received of the same company (the recording), and against the schemas."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.relay.event_builder import (
    Announcement,
    event_id,
    issue_copy,
    of_activity,
    of_comment,
    of_run,
    of_vanished,
    run_copy,
    snippet,
    wake_comment,
)
from consumer.relay.times import instant
from demo import recording
from schemas.codec import decode, encode, parse

Json = dict[str, Any]

EVENTS = {(e["eventType"], e["payload"].get("commentId") or e["payload"].get("runId")): e for e in recording.events()}
ROWS = recording.audit_comments()
COMMENTS = {each["id"]: each for each in recording.comments()}
ISSUES = {each["id"]: each for each in recording.issues()}
RUNS = {each["id"]: each for each in recording.runs()}
TOLD = [row for row in ROWS if row["action"] == "issue.comment_added"]


def close(ours: str, theirs: str) -> bool:
    """Times of the same thing, written one after the other."""
    return abs(instant(ours) - instant(theirs)) < 1.0


def test_ids_never_change() -> None:
    """Consumers know a repeated event by its id: a changed namespace would make every one of them new."""
    comment = "eaeadea7-4ac3-45e4-a173-53a04acf0674"
    assert event_id("issue.comment.created", comment) == "da10b451-8590-5ac8-81c2-18ecc69aaa11"
    assert event_id("issue.comment.deleted", comment) != event_id("issue.comment.created", comment)


@pytest.mark.parametrize("row", TOLD, ids=lambda row: row["details"]["commentId"][:8])
def test_a_comment_is_announced_as_the_plugin_bus_does(row: Json) -> None:
    ours = of_activity(row)
    assert ours is not None
    theirs = EVENTS["issue.comment.created", row["details"]["commentId"]]
    assert close(ours["occurredAt"], theirs["occurredAt"])
    assert ours | {"eventId": "", "occurredAt": ""} == theirs | {"eventId": "", "occurredAt": ""}


@pytest.mark.parametrize(
    "row",
    [row for row in TOLD if not COMMENTS[row["details"]["commentId"]]["deletedAt"]],  # a tombstone has lost the rest
    ids=lambda row: row["details"]["commentId"][:8],
)
def test_a_comment_that_no_activity_tells_of_is_announced_alike(row: Json) -> None:
    """What the comment itself cannot know is who answers for a user's or an agent's comment: the bus asks the issue."""
    comment = COMMENTS[row["details"]["commentId"]]
    theirs = EVENTS["issue.comment.created", comment["id"]]
    ours = of_comment(comment, ISSUES[comment["issueId"]])
    assert close(ours["occurredAt"], theirs["occurredAt"])
    blank = {"eventId": "", "occurredAt": "", "payload": {}}
    assert ours | blank == theirs | blank
    asked = {"authorizationReason"} if comment["authorType"] == "user" else set()
    same = theirs["payload"].keys() - asked
    assert {name: ours["payload"][name] for name in same} == {name: theirs["payload"][name] for name in same}


def test_a_deletion_is_announced_from_the_audit_feed_and_from_the_tombstone_alike() -> None:
    row = next(row for row in ROWS if row["action"] == "issue.comment_deleted")
    told = of_activity(row)
    comment = COMMENTS[row["details"]["commentId"]]
    found = of_comment(comment, ISSUES[comment["issueId"]])
    assert told is not None
    assert told["eventType"] == "issue.comment.deleted"
    for name in ("eventId", "entityId", "actorId"):
        assert found[name] == told[name]
    assert found["payload"]["deletedAt"] == told["payload"]["deletedAt"]
    assert "bodySnippet" not in found["payload"]


@pytest.mark.parametrize("run", list(RUNS.values()), ids=lambda run: run["id"][:8])
def test_a_run_is_announced_as_the_plugin_bus_does(run: Json) -> None:
    heard = {type_: event for (type_, subject), event in EVENTS.items() if subject == run["id"]}
    before = ["succeeded"] if {"agent.run.finished", "agent.run.cancelled"} <= heard.keys() else []
    ours = {event["eventType"]: event for event in of_run(run, before)}
    assert ours.keys() == heard.keys()
    for type_, event in ours.items():
        theirs = heard[type_]
        assert close(event["occurredAt"], theirs["occurredAt"])
        same = {"eventId": "", "occurredAt": ""}
        if before and type_ == "agent.run.finished":  # it finished a moment before it was cancelled
            same["payload"] = event["payload"] | {"finishedAt": theirs["payload"]["finishedAt"]}
        assert event | same == theirs | {"eventId": "", "occurredAt": ""}


def test_the_run_that_never_ran_is_only_cancelled() -> None:
    run = next(iter(RUNS.values())) | {"status": "cancelled", "startedAt": None}
    assert [event["eventType"] for event in of_run(run)] == ["agent.run.cancelled"]


@pytest.mark.parametrize(
    ("status", "types"),
    [
        ("queued", []),
        ("scheduled_retry", []),
        ("running", ["agent.run.started"]),
        ("succeeded", ["agent.run.started", "agent.run.finished"]),
        ("failed", ["agent.run.started", "agent.run.failed"]),
        ("timed_out", ["agent.run.started", "agent.run.failed"]),
        ("cancelled", ["agent.run.started", "agent.run.cancelled"]),
        ("interrupted", ["agent.run.started"]),
    ],
)
def test_what_each_status_announces(status: str, types: list[str]) -> None:
    started = None if status in ("queued", "scheduled_retry") else "2026-11-30T09:52:12.652Z"
    run = next(iter(RUNS.values())) | {"status": status, "startedAt": started}
    assert [event["eventType"] for event in of_run(run)] == types


def test_a_hidden_issues_activity_names_no_comment() -> None:
    assert of_activity(TOLD[0] | {"details": None}) is None
    assert of_activity(TOLD[0] | {"action": "issue.updated"}) is None


def test_a_vanished_comment() -> None:
    issue = ISSUES[TOLD[0]["entityId"]]
    event = of_vanished("eaeadea7-4ac3-45e4-a173-53a04acf0674", issue, at="2026-11-30T10:00:00.000Z")
    assert (event["eventType"], event["actorType"], event["entityId"]) == (
        "issue.comment.cancelled",
        "system",
        issue["id"],
    )


@pytest.mark.parametrize("comment", COMMENTS.values(), ids=lambda each: each["id"][:8])
def test_everything_can_be_read_by_a_worker(comment: Json) -> None:
    issue = ISSUES[comment["issueId"]]
    copies = {"comment": comment, "issue": issue_copy(issue, described=False)}
    event = Announcement(of_comment(comment, issue), copies)
    read = parse(decode(encode(event.value())))
    assert read.model_dump(by_alias=True, exclude_unset=True)["payload"]["comment"]["id"] == comment["id"]
    assert event.subject == comment["id"]


def test_copies_hold_what_handlers_need_and_no_more() -> None:
    run = next(run for run in RUNS.values() if run["contextSnapshot"].get("paperclipWake"))
    copy = run_copy(run | {"resultJson": {"stdout": "secret"}, "stdoutExcerpt": "secret"})
    assert "secret" not in json.dumps(copy)
    assert copy["contextSnapshot"].keys() == {"issueId", "paperclipWake"}
    issue = next(iter(ISSUES.values())) | {"executionPolicy": {"much": "more"}}
    assert "description" not in issue_copy(issue, described=False)
    assert issue_copy(issue, described=True)["description"] == issue["description"]
    assert len(wake_comment(next(iter(COMMENTS.values())) | {"body": "x" * 9_000})["body"]) == 2_000


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_snippets_are_cut_as_javascript_cuts(body: str) -> None:
    cut = snippet(body)
    units = body.encode("utf-16-le", "surrogatepass")
    assert cut.encode("utf-16-le", "surrogatepass") == units[:240]


def test_a_snippet_can_end_in_half_an_emoji_and_still_be_sent() -> None:
    cut = snippet("x" * 119 + "\N{GRINNING FACE}")
    assert cut == "x" * 119 + "\ud83d"
    assert decode(encode({"bodySnippet": cut})) == {"bodySnippet": cut}
