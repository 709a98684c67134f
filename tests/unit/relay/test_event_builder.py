"""Envelopes against the recording of what a plugin received of the same company, and against the schemas."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.paperclip.models import Json
from consumer.relay.event_builder import (
    OutgoingEvent,
    event_from_activity,
    event_from_comment,
    event_from_vanished_comment,
    event_id,
    events_from_run,
    snippet,
    trim_issue,
    trim_run,
    trim_wake_comment,
)
from demo import recording
from schemas.codec import decode, encode, parse
from schemas.timestamps import parse_timestamp

EVENTS = {(e["eventType"], e["payload"].get("commentId") or e["payload"].get("runId")): e for e in recording.events()}
ROWS = recording.audit_comments()
COMMENTS = {row["id"]: row for row in recording.comments()}
ISSUES = {row["id"]: row for row in recording.issues()}
RUNS = {row["id"]: row for row in recording.runs()}
COMMENT_ADDED = [row for row in ROWS if row["action"] == "issue.comment_added"]


def nearly_same_time(built: str, recorded: str) -> bool:
    """Paperclip writes the times of one change one after the other."""
    return abs(parse_timestamp(built) - parse_timestamp(recorded)) < 1.0


def test_event_ids_never_change() -> None:
    """Consumers recognise a repeated event by its id: a changed namespace would make all of them new."""
    comment = "eaeadea7-4ac3-45e4-a173-53a04acf0674"
    assert event_id("issue.comment.created", comment) == "da10b451-8590-5ac8-81c2-18ecc69aaa11"
    assert event_id("issue.comment.deleted", comment) != event_id("issue.comment.created", comment)


@pytest.mark.parametrize("row", COMMENT_ADDED, ids=lambda row: row["details"]["commentId"][:8])
def test_event_from_activity_equals_the_plugin_bus_event(row: Json) -> None:
    built = event_from_activity(row)
    assert built is not None
    recorded = EVENTS["issue.comment.created", row["details"]["commentId"]]
    assert nearly_same_time(built["occurredAt"], recorded["occurredAt"])
    assert built | {"eventId": "", "occurredAt": ""} == recorded | {"eventId": "", "occurredAt": ""}


@pytest.mark.parametrize(
    "row",
    [row for row in COMMENT_ADDED if not COMMENTS[row["details"]["commentId"]]["deletedAt"]],  # no tombstones
    ids=lambda row: row["details"]["commentId"][:8],
)
def test_event_from_comment_equals_the_plugin_bus_event(row: Json) -> None:
    """Except `authorizationReason` of a user's comment, which the comment itself does not hold."""
    comment = COMMENTS[row["details"]["commentId"]]
    recorded = EVENTS["issue.comment.created", comment["id"]]
    built = event_from_comment(comment, ISSUES[comment["issueId"]])
    assert nearly_same_time(built["occurredAt"], recorded["occurredAt"])
    blank = {"eventId": "", "occurredAt": "", "payload": {}}
    assert built | blank == recorded | blank
    asked = {"authorizationReason"} if comment["authorType"] == "user" else set()
    same = recorded["payload"].keys() - asked
    assert {name: built["payload"][name] for name in same} == {name: recorded["payload"][name] for name in same}


def test_deletion_event_from_the_tombstone_equals_the_one_from_activity() -> None:
    row = next(row for row in ROWS if row["action"] == "issue.comment_deleted")
    from_activity = event_from_activity(row)
    comment = COMMENTS[row["details"]["commentId"]]
    from_tombstone = event_from_comment(comment, ISSUES[comment["issueId"]])
    assert from_activity is not None
    assert from_activity["eventType"] == "issue.comment.deleted"
    for name in ("eventId", "entityId", "actorId"):
        assert from_tombstone[name] == from_activity[name]
    assert from_tombstone["payload"]["deletedAt"] == from_activity["payload"]["deletedAt"]
    assert "bodySnippet" not in from_tombstone["payload"]


@pytest.mark.parametrize("run", list(RUNS.values()), ids=lambda run: run["id"][:8])
def test_events_from_run_equal_the_plugin_bus_events(run: Json) -> None:
    bus_events = {type_: event for (type_, subject), event in EVENTS.items() if subject == run["id"]}
    before = ["succeeded"] if {"agent.run.finished", "agent.run.cancelled"} <= bus_events.keys() else []
    built = {event["eventType"]: event for event in events_from_run(run, before)}
    assert built.keys() == bus_events.keys()
    for type_, event in built.items():
        recorded = bus_events[type_]
        assert nearly_same_time(event["occurredAt"], recorded["occurredAt"])
        same = {"eventId": "", "occurredAt": ""}
        if before and type_ == "agent.run.finished":  # it finished a moment before it was cancelled
            same["payload"] = event["payload"] | {"finishedAt": recorded["payload"]["finishedAt"]}
        assert event | same == recorded | {"eventId": "", "occurredAt": ""}


def test_run_that_never_started_has_only_a_cancelled_event() -> None:
    run = next(iter(RUNS.values())) | {"status": "cancelled", "startedAt": None}
    assert [event["eventType"] for event in events_from_run(run)] == ["agent.run.cancelled"]


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
def test_run_event_types_by_status(status: str, types: list[str]) -> None:
    started = None if status in ("queued", "scheduled_retry") else "2026-11-30T09:52:12.652Z"
    run = next(iter(RUNS.values())) | {"status": status, "startedAt": started}
    assert [event["eventType"] for event in events_from_run(run)] == types


def test_activity_of_hidden_issues_and_other_actions_has_no_event() -> None:
    assert event_from_activity(COMMENT_ADDED[0] | {"details": None}) is None
    assert event_from_activity(COMMENT_ADDED[0] | {"action": "issue.updated"}) is None


def test_event_from_vanished_comment_is_cancelled_by_the_system() -> None:
    issue = ISSUES[COMMENT_ADDED[0]["entityId"]]
    event = event_from_vanished_comment("eaeadea7-4ac3-45e4-a173-53a04acf0674", issue, at="2026-11-30T10:00:00.000Z")
    assert (event["eventType"], event["actorType"], event["entityId"]) == (
        "issue.comment.cancelled",
        "system",
        issue["id"],
    )


@pytest.mark.parametrize("comment", COMMENTS.values(), ids=lambda comment: comment["id"][:8])
def test_event_with_embedded_objects_is_parsed_by_its_schema(comment: Json) -> None:
    issue = ISSUES[comment["issueId"]]
    embedded = {"comment": comment, "issue": trim_issue(issue, description=False)}
    event = OutgoingEvent(event_from_comment(comment, issue), embedded)
    parsed = parse(decode(encode(event.value())))
    assert parsed.model_dump(by_alias=True, exclude_unset=True)["payload"]["comment"]["id"] == comment["id"]
    assert event.key == comment["id"]


def test_trimmed_objects_hold_only_what_handlers_need() -> None:
    run = next(run for run in RUNS.values() if run["contextSnapshot"].get("paperclipWake"))
    trimmed = trim_run(run | {"resultJson": {"stdout": "secret"}, "stdoutExcerpt": "secret"})
    assert "secret" not in json.dumps(trimmed)
    assert trimmed["contextSnapshot"].keys() == {"issueId", "paperclipWake"}
    issue = next(iter(ISSUES.values())) | {"executionPolicy": {"much": "more"}}
    assert "description" not in trim_issue(issue, description=False)
    assert trim_issue(issue, description=True)["description"] == issue["description"]
    assert len(trim_wake_comment(next(iter(COMMENTS.values())) | {"body": "x" * 9_000})["body"]) == 2_000


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_snippet_is_cut_at_120_utf16_units(body: str) -> None:
    cut = snippet(body)
    units = body.encode("utf-16-le", "surrogatepass")
    assert cut.encode("utf-16-le", "surrogatepass") == units[:240]


def test_snippet_that_ends_in_half_an_emoji_survives_encoding() -> None:
    cut = snippet("x" * 119 + "\N{GRINNING FACE}")
    assert cut == "x" * 119 + "\ud83d"
    assert decode(encode({"bodySnippet": cut})) == {"bodySnippet": cut}
