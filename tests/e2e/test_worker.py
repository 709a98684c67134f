"""Real Apache Kafka, a real Hindsight, real workers: captured events in, documents and recalls out."""

import json
import random
from pathlib import Path

import pytest

from consumer.embedded.hindsight import Hindsight
from tests.conftest import HINDSIGHT_KEY
from tests.support.installation import Installation, gauge, open_installation, wait_until_true
from tests.support.kafka import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.real_kafka, pytest.mark.timeout(300)]

ADA, BEN = "d5add4c6-9a97-4ddd-9a15-33dcc8c6607c", "eeae0a0c-0292-4695-8619-c5bb30200687"
ISSUE = "84f04695-b2f5-472e-9096-5cfbd079d332"


def owner(installation: Installation, comment: dict[str, str | None]) -> str | None:
    issue = installation.company.standin.issues[str(comment["issueId"])]
    return comment["authorAgentId"] or comment["derivedAuthorAgentId"] or issue["assigneeAgentId"]


def test_the_recording_twice_and_shuffled(installation: Installation) -> None:
    """One document for each living comment that has an event and is not skipped by rule, in the right bank."""
    events = installation.company.events * 2
    random.Random(7).shuffle(events)  # noqa: S311 - the same order each time
    installation.publish(events)
    with installation.worker():
        installation.wait_consumed()
        wait_until_true(
            "all is digested",
            lambda: all(
                installation.digested(installation.company.bank(agent)) for agent in installation.company.standin.agents
            ),
        )

    announced = {event["payload"]["commentId"] for event in installation.company.created()}
    comments = [installation.company.standin.comments[each] for each in announced]
    expected = {c["id"]: (owner(installation, c), c["createdAt"]) for c in comments if not c["deletedAt"]}
    assert len(expected) == 17
    found = {
        document_id: (agent, document["retain_params"]["event_date"])
        for agent in installation.company.standin.agents
        for document_id, document in installation.documents(installation.company.bank(agent)).items()
    }
    assert {each: agent for each, (agent, _) in found.items()} == {each: agent for each, (agent, _) in expected.items()}
    assert {each: date[:23] for each, (_, date) in found.items()} == {e: date[:23] for e, (_, date) in expected.items()}
    assert installation.read("dead_letters") == []


def test_the_same_event_twice_is_one_operation(installation: Installation) -> None:
    event = installation.company.said("We keep the cookie flow until March.", agent=BEN, issue=ISSUE)
    bank = installation.company.bank(BEN)
    with installation.worker():
        installation.publish([event, event, event | {"eventId": "00000000-0000-4000-8000-000000000001"}])
        installation.wait_consumed()
        wait_until_true("it is digested", lambda: installation.digested(bank))
    batches = [op for op in installation.operations(bank) if op["operation_type"] == "batch_retain"]
    assert [op["status"] for op in batches] == ["completed"]
    assert list(installation.documents(bank)) == [event["payload"]["commentId"]]


def test_recall_of_a_new_bank_and_then_of_what_was_retained(installation: Installation) -> None:
    run = installation.company.started()
    agent, run_id = run["payload"]["agentId"], run["payload"]["runId"]
    with installation.worker():
        installation.publish([run])
        installation.wait_consumed()
        text = "Release notes must mention the token expiry of 24 hours."
        installation.publish([installation.company.said(text, agent=agent, issue=run["payload"]["issueId"])])
        bank = installation.company.bank(agent)
        wait_until_true("the document is there", lambda: installation.documents(bank) and installation.digested(bank))
        later = installation.company.started()
        installation.publish([later])
        installation.wait_consumed()
    records = [(key, json.loads(value)) for key, value in installation.read("recalls") if key and value]
    first = next(record for key, record in records if key.decode() == run_id)
    assert (first["status"], first["memories"], first["bankId"]) == ("empty", [], bank)
    second = next(record for key, record in records if key.decode() == later["payload"]["runId"])
    assert second["status"] == "recalled"
    assert any("token expiry" in memory for memory in second["memories"])


def test_the_end_of_a_run_takes_its_memories_away(installation: Installation) -> None:
    run = installation.company.started()
    with installation.worker():
        installation.publish([run, run | {"eventType": "agent.run.finished"}])
        installation.wait_consumed()
    assert [value is None for _, value in installation.read("recalls")] == [False, True]


def test_a_deleted_comment_is_gone(installation: Installation) -> None:
    event = installation.company.said("A decision that is taken back.", agent=BEN, issue=ISSUE)
    bank, comment = installation.company.bank(BEN), event["payload"]["commentId"]
    with installation.worker():
        installation.publish([event])
        wait_until_true("it is stored", lambda: comment in installation.documents(bank))
        installation.publish([installation.company.deletes(event)])
        wait_until_true("it is gone", lambda: comment not in installation.documents(bank))
        installation.publish([event], headers=[("replay", b"backfill")])
        installation.wait_consumed()
        wait_until_true("all is digested", lambda: installation.digested(bank))
    assert installation.documents(bank) == {}


def test_a_comment_deleted_while_its_retain_is_queued_does_not_come_back(installation: Installation) -> None:
    """Many retains are queued, and the last ones are deleted before Hindsight has begun with them."""
    bank = installation.company.bank(BEN)
    events = [
        installation.company.said(f"Note {n}: the build took {n} minutes.", agent=BEN, issue=ISSUE) for n in range(24)
    ]
    gone = events[16:]
    with installation.worker():
        installation.publish(events)
        wait_until_true(
            "all are queued",
            lambda: len([op for op in installation.operations(bank) if op["operation_type"] == "retain"]) == 24,
        )
        installation.publish([installation.company.deletes(event) for event in gone])
        installation.wait_consumed()
        wait_until_true("all is digested", lambda: installation.digested(bank))
    cancelled = [op for op in installation.operations(bank, status="cancelled") if op["operation_type"] == "retain"]
    assert cancelled, "no retain was still queued: the test shows nothing"
    assert set(installation.documents(bank)) == {event["payload"]["commentId"] for event in events[:16]}


def test_hindsight_stopped_and_started_in_the_middle_loses_nothing(installation: Installation) -> None:
    bank = installation.company.bank(BEN)
    events = [installation.company.said(f"Finding {n} about the deploy.", agent=BEN, issue=ISSUE) for n in range(12)]
    with installation.worker() as metrics:
        installation.publish(events[:6])
        wait_until_true("the first are handled", lambda: metrics.handled() >= 3)
        installation.hindsight.stop()
        try:
            installation.publish(events[6:])
            opened = {"lane": "retain", "upstream": "hindsight", "reason": "unreachable"}
            wait_until_true("the lane waits", lambda: gauge(metrics, "breaker_open", opened) == 1)
            assert installation.lag() > 0
        finally:
            installation.hindsight.start()
        installation.wait_consumed()
        wait_until_true(
            "all is there", lambda: set(installation.documents(bank)) == {e["payload"]["commentId"] for e in events}
        )
        wait_until_true("the breaker is closed", lambda: gauge(metrics, "breaker_open", opened) == 0)
    assert installation.read("dead_letters") == []


def test_a_wrong_hindsight_key_loses_nothing(broker: Broker, hindsight_with_key: Hindsight, tmp_path: Path) -> None:
    """The retain lane waits and says so; recalls are published as failed; with the right key every comment arrives."""
    with open_installation(broker, hindsight_with_key, tmp_path) as installation:
        bank = installation.company.bank(BEN)
        events = [installation.company.said(f"Key test {n}.", agent=BEN, issue=ISSUE) for n in range(5)]
        run = installation.company.started()
        with installation.worker(HINDSIGHT_API_KEY="wrong") as metrics:
            installation.publish([run, *events])
            opened = {"lane": "retain", "upstream": "hindsight", "reason": "refused"}
            wait_until_true("the lane waits", lambda: gauge(metrics, "breaker_open", opened) == 1)
            polled = gauge(metrics, "last_poll_timestamp_seconds", {"lane": "retain"})
            wait_until_true(
                "it polls on", lambda: gauge(metrics, "last_poll_timestamp_seconds", {"lane": "retain"}) > polled
            )
            wait_until_true("the recall is published", lambda: len(installation.read("recalls")) == 1)
        key, value = installation.read("recalls")[0]
        assert (key, json.loads(value or b"{}")["status"]) == (run["payload"]["runId"].encode(), "failed")
        assert "refuses our key" in "".join(log.read_text() for log in tmp_path.glob("worker-*.log"))
        assert installation.documents(bank, HINDSIGHT_KEY) == {}
        with installation.worker(HINDSIGHT_API_KEY=HINDSIGHT_KEY):
            installation.wait_consumed()
            expected = {event["payload"]["commentId"] for event in events}
            wait_until_true("all arrive", lambda: set(installation.documents(bank, HINDSIGHT_KEY)) == expected)
        assert installation.read("dead_letters") == []


def test_an_expired_paperclip_key_loses_nothing(broker: Broker, hindsight: Hindsight, tmp_path: Path) -> None:
    """No comment is stored as its snippet because Paperclip refuses us."""
    with open_installation(broker, hindsight, tmp_path, key="new") as installation:
        bank = installation.company.bank(BEN)
        body = "The whole body is longer than a snippet. " * 10
        events = [installation.company.said(f"{n}: {body}", agent=BEN, issue=ISSUE) for n in range(4)]
        with installation.worker(PAPERCLIP_API_KEY="expired") as metrics:
            installation.publish([installation.company.started(), *events])
            opened = {"lane": "retain", "upstream": "paperclip", "reason": "refused"}
            wait_until_true("the lane waits", lambda: gauge(metrics, "breaker_open", opened) == 1)
            wait_until_true("the recall is published", lambda: len(installation.read("recalls")) == 1)
            assert json.loads(installation.read("recalls")[0][1] or b"{}")["status"] == "failed"
            assert installation.documents(bank) == {}
            installation.company.standin.key = "expired"  # the operator puts it right
            installation.wait_consumed()
            wait_until_true(
                "all are digested", lambda: len(installation.documents(bank)) == 4 and installation.digested(bank)
            )
        assert all(document["text_length"] > 400 for document in installation.documents(bank).values())


def test_a_body_with_half_an_emoji_is_retained(installation: Installation) -> None:
    event = installation.company.said("Ship it \ud83d now", agent=BEN, issue=ISSUE)
    event["payload"]["comment"] = installation.company.standin.comments[event["payload"]["commentId"]]
    bank = installation.company.bank(BEN)
    with installation.worker():
        installation.publish([event])
        wait_until_true("it is stored", lambda: len(installation.documents(bank)) == 1)
    document = installation.get(f"{bank.replace(':', '%3A')}/documents/{event['payload']['commentId']}")
    assert document["original_text"] == "Ship it  now"
