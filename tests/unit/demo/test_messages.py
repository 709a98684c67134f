"""The recording as Kafka records, and the later run."""

from collections import Counter

from demo import recording
from demo.messages import counts, later_run, to_message
from schemas.events import AgentRunStarted, IssueCommentCreated


def test_message_has_the_topic_and_key_of_its_run_or_comment() -> None:
    plays = [to_message(event) for event in recording.events()]

    assert Counter(each.topic for each in plays) == {"paperclip.agent.runs": 49, "paperclip.issue.comments": 18}
    for each in plays:
        if each.topic == "paperclip.agent.runs":
            assert each.key == each.event["payload"]["runId"]
        else:
            assert each.key == IssueCommentCreated.model_validate(each.event).payload.comment_id


def test_counts_are_per_event_type() -> None:
    assert dict(counts(recording.events())) == {
        "agent.run.cancelled": 1,
        "agent.run.failed": 4,
        "agent.run.finished": 20,
        "agent.run.started": 24,
        "issue.comment.created": 18,
    }


def test_later_run_has_new_ids_and_the_same_wake() -> None:
    ids = iter(["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"])
    runs = recording.runs()

    later = later_run(runs, recording.events(), lambda: next(ids))

    event = AgentRunStarted.model_validate(later.event)
    assert event.payload.run_id == event.entity_id == later.run["id"] == "11111111-1111-4111-8111-111111111111"
    assert event.event_id == "22222222-2222-4222-8222-222222222222"
    assert later.run["id"] not in {run["id"] for run in runs}
    wake = later.run["contextSnapshot"]["paperclipWake"]
    assert wake["issue"]["title"] == "Write the release notes"
    assert [comment["body"] for comment in wake["comments"]] == ["Mention the token expiry."]
    assert event.payload.agent_id == later.run["agentId"]
    assert runs == recording.runs()
