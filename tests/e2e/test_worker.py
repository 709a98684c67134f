"""Real Apache Kafka, a real Hindsight, real workers: captured events in, documents and recalls out."""

import json
import random
from pathlib import Path

import pytest

from consumer.embedded.hindsight import Hindsight
from tests.conftest import HINDSIGHT_KEY
from tests.e2e.site import Site, gauge, open_site, wait_for
from tests.support.kafka import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.real_kafka, pytest.mark.timeout(300)]

ADA, BEN = "d5add4c6-9a97-4ddd-9a15-33dcc8c6607c", "eeae0a0c-0292-4695-8619-c5bb30200687"
ISSUE = "84f04695-b2f5-472e-9096-5cfbd079d332"


def owner(site: Site, comment: dict[str, str | None]) -> str | None:
    issue = site.company.standin.issues[str(comment["issueId"])]
    return comment["authorAgentId"] or comment["derivedAuthorAgentId"] or issue["assigneeAgentId"]


def test_the_recording_twice_and_shuffled(site: Site) -> None:
    """One document for each living comment that has an event and is not skipped by rule, in the right bank."""
    events = site.company.events * 2
    random.Random(7).shuffle(events)  # noqa: S311 - the same order each time
    site.publish(events)
    with site.worker():
        site.wait_consumed()
        wait_for(
            "all is digested",
            lambda: all(site.digested(site.company.bank(agent)) for agent in site.company.standin.agents),
        )

    announced = {event["payload"]["commentId"] for event in site.company.created()}
    comments = [site.company.standin.comments[each] for each in announced]
    expected = {c["id"]: (owner(site, c), c["createdAt"]) for c in comments if not c["deletedAt"]}
    assert len(expected) == 17
    found = {
        document_id: (agent, document["retain_params"]["event_date"])
        for agent in site.company.standin.agents
        for document_id, document in site.documents(site.company.bank(agent)).items()
    }
    assert {each: agent for each, (agent, _) in found.items()} == {each: agent for each, (agent, _) in expected.items()}
    assert {each: date[:23] for each, (_, date) in found.items()} == {e: date[:23] for e, (_, date) in expected.items()}
    assert site.read("dead_letters") == []


def test_the_same_event_twice_is_one_operation(site: Site) -> None:
    event = site.company.said("We keep the cookie flow until March.", agent=BEN, issue=ISSUE)
    bank = site.company.bank(BEN)
    with site.worker():
        site.publish([event, event, event | {"eventId": "00000000-0000-4000-8000-000000000001"}])
        site.wait_consumed()
        wait_for("it is digested", lambda: site.digested(bank))
    batches = [op for op in site.operations(bank) if op["operation_type"] == "batch_retain"]
    assert [op["status"] for op in batches] == ["completed"]
    assert list(site.documents(bank)) == [event["payload"]["commentId"]]


def test_recall_of_a_new_bank_and_then_of_what_was_retained(site: Site) -> None:
    run = site.company.started()
    agent, run_id = run["payload"]["agentId"], run["payload"]["runId"]
    with site.worker():
        site.publish([run])
        site.wait_consumed()
        text = "Release notes must mention the token expiry of 24 hours."
        site.publish([site.company.said(text, agent=agent, issue=run["payload"]["issueId"])])
        bank = site.company.bank(agent)
        wait_for("the document is there", lambda: site.documents(bank) and site.digested(bank))
        later = site.company.started()
        site.publish([later])
        site.wait_consumed()
    records = [(key, json.loads(value)) for key, value in site.read("recalls") if key and value]
    first = next(record for key, record in records if key.decode() == run_id)
    assert (first["status"], first["memories"], first["bankId"]) == ("empty", [], bank)
    second = next(record for key, record in records if key.decode() == later["payload"]["runId"])
    assert second["status"] == "recalled"
    assert any("token expiry" in memory for memory in second["memories"])


def test_the_end_of_a_run_takes_its_memories_away(site: Site) -> None:
    run = site.company.started()
    with site.worker():
        site.publish([run, run | {"eventType": "agent.run.finished"}])
        site.wait_consumed()
    assert [value is None for _, value in site.read("recalls")] == [False, True]


def test_a_deleted_comment_is_gone(site: Site) -> None:
    event = site.company.said("A decision that is taken back.", agent=BEN, issue=ISSUE)
    bank, comment = site.company.bank(BEN), event["payload"]["commentId"]
    with site.worker():
        site.publish([event])
        wait_for("it is stored", lambda: comment in site.documents(bank))
        site.publish([site.company.deletes(event)])
        wait_for("it is gone", lambda: comment not in site.documents(bank))
        site.publish([event], headers=[("replay", b"backfill")])
        site.wait_consumed()
        wait_for("all is digested", lambda: site.digested(bank))
    assert site.documents(bank) == {}


def test_a_comment_deleted_while_its_retain_is_queued_does_not_come_back(site: Site) -> None:
    """Many retains are queued, and the last ones are deleted before Hindsight has begun with them."""
    bank = site.company.bank(BEN)
    events = [site.company.said(f"Note {n}: the build took {n} minutes.", agent=BEN, issue=ISSUE) for n in range(24)]
    gone = events[16:]
    with site.worker():
        site.publish(events)
        wait_for(
            "all are queued",
            lambda: len([op for op in site.operations(bank) if op["operation_type"] == "retain"]) == 24,
        )
        site.publish([site.company.deletes(event) for event in gone])
        site.wait_consumed()
        wait_for("all is digested", lambda: site.digested(bank))
    cancelled = [op for op in site.operations(bank, status="cancelled") if op["operation_type"] == "retain"]
    assert cancelled, "no retain was still queued: the test shows nothing"
    assert set(site.documents(bank)) == {event["payload"]["commentId"] for event in events[:16]}


def test_hindsight_stopped_and_started_in_the_middle_loses_nothing(site: Site) -> None:
    bank = site.company.bank(BEN)
    events = [site.company.said(f"Finding {n} about the deploy.", agent=BEN, issue=ISSUE) for n in range(12)]
    with site.worker() as metrics:
        site.publish(events[:6])
        wait_for("the first are handled", lambda: metrics.handled() >= 3)
        site.hindsight.stop()
        try:
            site.publish(events[6:])
            opened = {"lane": "retain", "upstream": "hindsight", "reason": "unreachable"}
            wait_for("the lane waits", lambda: gauge(metrics, "breaker_open", opened) == 1)
            assert site.lag() > 0
        finally:
            site.hindsight.start()
        site.wait_consumed()
        wait_for("all is there", lambda: set(site.documents(bank)) == {e["payload"]["commentId"] for e in events})
        wait_for("the breaker is closed", lambda: gauge(metrics, "breaker_open", opened) == 0)
    assert site.read("dead_letters") == []


def test_a_wrong_hindsight_key_loses_nothing(broker: Broker, hindsight_with_key: Hindsight, tmp_path: Path) -> None:
    """The retain lane waits and says so; recalls are published as failed; with the right key every comment arrives."""
    with open_site(broker, hindsight_with_key, tmp_path) as site:
        bank = site.company.bank(BEN)
        events = [site.company.said(f"Key test {n}.", agent=BEN, issue=ISSUE) for n in range(5)]
        run = site.company.started()
        with site.worker(HINDSIGHT_API_KEY="wrong") as metrics:
            site.publish([run, *events])
            opened = {"lane": "retain", "upstream": "hindsight", "reason": "refused"}
            wait_for("the lane waits", lambda: gauge(metrics, "breaker_open", opened) == 1)
            polled = gauge(metrics, "last_poll_timestamp_seconds", {"lane": "retain"})
            wait_for("it polls on", lambda: gauge(metrics, "last_poll_timestamp_seconds", {"lane": "retain"}) > polled)
            wait_for("the recall is published", lambda: len(site.read("recalls")) == 1)
        key, value = site.read("recalls")[0]
        assert (key, json.loads(value or b"{}")["status"]) == (run["payload"]["runId"].encode(), "failed")
        assert "refuses our key" in "".join(log.read_text() for log in tmp_path.glob("worker-*.log"))
        assert site.documents(bank, HINDSIGHT_KEY) == {}
        with site.worker(HINDSIGHT_API_KEY=HINDSIGHT_KEY):
            site.wait_consumed()
            expected = {event["payload"]["commentId"] for event in events}
            wait_for("all arrive", lambda: set(site.documents(bank, HINDSIGHT_KEY)) == expected)
        assert site.read("dead_letters") == []


def test_an_expired_paperclip_key_loses_nothing(broker: Broker, hindsight: Hindsight, tmp_path: Path) -> None:
    """No comment is stored as its snippet because Paperclip refuses us."""
    with open_site(broker, hindsight, tmp_path, key="new") as site:
        bank = site.company.bank(BEN)
        body = "The whole body is longer than a snippet. " * 10
        events = [site.company.said(f"{n}: {body}", agent=BEN, issue=ISSUE) for n in range(4)]
        with site.worker(PAPERCLIP_API_KEY="expired") as metrics:
            site.publish([site.company.started(), *events])
            opened = {"lane": "retain", "upstream": "paperclip", "reason": "refused"}
            wait_for("the lane waits", lambda: gauge(metrics, "breaker_open", opened) == 1)
            wait_for("the recall is published", lambda: len(site.read("recalls")) == 1)
            assert json.loads(site.read("recalls")[0][1] or b"{}")["status"] == "failed"
            assert site.documents(bank) == {}
            site.company.standin.key = "expired"  # the operator puts it right
            site.wait_consumed()
            wait_for("all are digested", lambda: len(site.documents(bank)) == 4 and site.digested(bank))
        assert all(document["text_length"] > 400 for document in site.documents(bank).values())


def test_a_body_with_half_an_emoji_is_retained(site: Site) -> None:
    event = site.company.said("Ship it \ud83d now", agent=BEN, issue=ISSUE)
    event["payload"]["comment"] = site.company.standin.comments[event["payload"]["commentId"]]
    bank = site.company.bank(BEN)
    with site.worker():
        site.publish([event])
        wait_for("it is stored", lambda: len(site.documents(bank)) == 1)
    document = site.get(f"{bank.replace(':', '%3A')}/documents/{event['payload']['commentId']}")
    assert document["original_text"] == "Ship it  now"
