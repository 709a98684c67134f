"""The recording is what its README says."""

from collections import Counter

import pytest

from demo import recording


def test_events() -> None:
    assert Counter(event["eventType"] for event in recording.events()) == {
        "agent.run.started": 24,
        "agent.run.finished": 20,
        "agent.run.failed": 4,
        "agent.run.cancelled": 1,
        "issue.comment.created": 18,
    }


def test_comments() -> None:
    comments = recording.comments()
    assert Counter(comment["authorType"] for comment in comments) == {"user": 4, "agent": 15, "system": 9}
    assert sum(comment["deletedAt"] is not None for comment in comments) == 1
    with_event = {event["payload"].get("commentId") for event in recording.events()}
    assert [c["authorType"] for c in comments if c["id"] not in with_event].count("user") == 1


def test_recording_has_every_object_that_an_event_names() -> None:
    events = recording.events()
    named = [event["payload"] for event in events]
    assert {payload["runId"] for payload in named if payload["runId"]} <= {run["id"] for run in recording.runs()}
    issues = {issue["id"] for issue in recording.issues()}
    assert {payload.get("issueId") for payload in named} - {None} <= issues
    agents = {agent["id"] for agent in recording.agents()}
    assert {payload["agentId"] for payload in named} - {None} <= agents
    assert {event["companyId"] for event in events} == {recording.company()["id"]}
    assert recording.agent_me()["id"] in agents


def test_feeds() -> None:
    assert len(recording.runs_list()) == 3
    assert {row["type"] for row in recording.live_events()} >= {"activity.logged", "heartbeat.run.status"}
    assert {row["action"] for row in recording.audit_comments()} == {"issue.comment_added", "issue.comment_deleted"}
    assert {row["id"] for row in recording.audit_comments()} <= {row["id"] for row in recording.activity()}


def test_names_of_exchanges_are_unique() -> None:
    names = [exchange.name for exchange in recording.exchanges()]
    assert len(set(names)) == len(names) == 38
    unknown = recording.exchange("recall in an unknown bank")
    assert (unknown.method, unknown.status) == ("POST", 404)
    with pytest.raises(KeyError):
        recording.exchange("nothing of this name")


@pytest.mark.parametrize("name", recording.made_names())
def test_made_objects_name_their_source_and_reason(name: str) -> None:
    made = recording.made(name)
    assert made.why
    captured = {event["eventId"] for event in recording.events()} | {row["id"] for row in recording.comments()}
    assert made.made_from in captured


def test_each_call_returns_new_objects() -> None:
    recording.events()[0]["payload"].clear()
    assert recording.events()[0]["payload"]
