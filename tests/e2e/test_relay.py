"""Real Paperclip, real Apache Kafka: what a plugin would hear is on the topics, and what it would not hear, too."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumer.embedded.hindsight import Hindsight
from tests.support.kafka import Broker
from tests.support.paperclip import Packages, Paperclip
from tests.support.paperclip_company import SAY, Json, ListenerPlugin, PaperclipCompany, eventually, paperclip_company
from tests.support.relay_installation import RelayInstallation, what

pytestmark = [pytest.mark.e2e, pytest.mark.every_paperclip, pytest.mark.real_kafka, pytest.mark.timeout(300)]

SLOW = 'mkdir "$HOME/slow-$PAPERCLIP_AGENT_ID" && sleep 60; exit 0'
"""The first run is slow; those with which Paperclip follows up a cancelled one are not."""


@pytest.fixture
def acme(paperclip: Paperclip) -> Iterator[PaperclipCompany]:
    with paperclip_company(paperclip) as opened:
        yield opened


@pytest.fixture
def installation(broker: Broker, hindsight: Hindsight, tmp_path: Path, acme: PaperclipCompany) -> RelayInstallation:
    return RelayInstallation(broker, hindsight, tmp_path, acme)


@pytest.fixture(scope="module")
def listener(paperclip: Paperclip, paperclip_packages: Packages) -> Iterator[ListenerPlugin]:
    with paperclip_company(paperclip, "Listeners") as opened:
        listening = ListenerPlugin(opened, paperclip_packages)
        yield listening
        listening.remove(opened)


def work(acme: PaperclipCompany) -> dict[str, str]:
    """A short day: every kind of event, and comments that Paperclip announces nowhere. Ids by name."""
    ada = acme.agent("Ada", SAY + 'say "Done: tokens expire after 24 hours."')
    bad = acme.agent("Bad", "exit 3")
    slow = acme.agent("Slow", SLOW)
    done = acme.issue("Ship the login", ada, status="todo", description="Finish the migration.")
    failing = acme.issue("Break the build", bad, status="todo")
    stuck = acme.issue("Wait for it", slow, status="todo")
    quiet = acme.issue("Think about names", ada)

    def run_of(agent: str) -> Json | None:
        return next((run for run in acme.runs() if run["agentId"] == agent and run["startedAt"]), None)

    slow_run = eventually("Slow runs", lambda: run_of(slow))["id"]
    said = acme.say(quiet, "Please use 24h expiry \N{GRINNING FACE}.")
    deleted = acme.say(quiet, "This is wrong.")
    acme.delete(quiet, deleted)
    cancelled = acme.say(stuck, "Never mind.")
    acme.cancel(stuck, cancelled)
    half = acme.say_half_an_emoji(quiet, "and more.")
    acme.post(f"/api/heartbeat-runs/{slow_run}/cancel")
    eventually("Ada has answered", lambda: any(each["authorAgentId"] == ada for each in acme.comments(done)))
    eventually("Bad has failed", lambda: any(run["status"] == "failed" for run in acme.runs()))
    eventually("no run is under way", lambda: all(run["status"] not in ("queued", "running") for run in acme.runs()))
    return {
        "ada": ada,
        "quiet": quiet,
        "failing": failing,
        "said": said,
        "deleted": deleted,
        "cancelled": cancelled,
        "half": half,
        "slow_run": slow_run,
    }


def heard_of(listener: ListenerPlugin, acme: PaperclipCompany) -> list[Json]:
    return [event for event in listener.heard() if event["companyId"] == acme.id]


def same_shape(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where an event of ours differs from the plugin's: times may, by less than they are written apart."""
    if path in ("payload.comment", "payload.issue", "payload.run", "eventId", "occurredAt", "payload.finishedAt"):
        return []
    if isinstance(theirs, dict):
        return [
            problem
            for name in theirs.keys() | ours.keys()
            if not (name in ("comment", "issue", "run") and name not in theirs)
            for problem in same_shape(ours.get(name, "absent"), theirs.get(name, "absent"), f"{path}.{name}".strip("."))
        ]
    return [] if ours == theirs else [f"{path}: {ours!r}, not {theirs!r}"]


@pytest.mark.parametrize("websocket", ["true", "false"])
def test_what_a_plugin_hears_and_what_it_does_not(
    installation: RelayInstallation, acme: PaperclipCompany, listener: ListenerPlugin, websocket: str
) -> None:
    """The same events as the plugin's, field by field; beside them deletions, and comments without an event."""
    with installation.relay(RELAY_WEBSOCKET=websocket, RELAY_SWEEP_INTERVAL="2"):
        ids = work(acme)
        heard = heard_of(listener, acme)
        eventually(
            "all that the plugin heard is published",
            lambda: {what(event) for event in heard} <= installation.published(),
        )
        eventually("half an emoji is found", lambda: ("issue.comment.created", ids["half"]) in installation.published())
        eventually(
            "the deletion is published", lambda: ("issue.comment.deleted", ids["deleted"]) in installation.published()
        )
    kinds = {event["eventType"] for event in heard}
    assert kinds == {
        "agent.run.started",
        "agent.run.finished",
        "agent.run.failed",
        "agent.run.cancelled",
        "issue.comment.created",
    }
    events = installation.events()
    ours = {what(event): event for event in events}
    silent = {
        each["id"] for issue in acme.get(f"/api/companies/{acme.id}/issues") for each in acme.comments(issue["id"])
    }
    heard_since = {what(event) for event in heard_of(listener, acme)}  # Paperclip follows up what has failed
    silent = {id_ for id_ in silent if ("issue.comment.created", id_) not in heard_since}
    assert ids["half"] in silent
    more = {("issue.comment.deleted", ids["deleted"]), ("issue.comment.cancelled", ids["cancelled"])}
    assert more <= ours.keys()
    assert ours.keys() - heard_since - more <= {("issue.comment.created", id_) for id_ in silent}
    assert [problem for event in heard for problem in same_shape(ours[what(event)], event)] == []
    fresh = ours["issue.comment.created", ids["said"]]["payload"]
    assert fresh["comment"]["body"] == "Please use 24h expiry \N{GRINNING FACE}."
    assert fresh["issue"]["assigneeAgentId"] == ids["ada"]
    started = [event for event in events if event["eventType"] == "agent.run.started" and "run" in event["payload"]]
    assert any(event["payload"]["run"]["contextSnapshot"]["paperclipWake"]["issue"]["title"] for event in started)


def test_a_key_that_may_not_read_the_audit_feed(installation: RelayInstallation, acme: PaperclipCompany) -> None:
    """The sweep alone finds comments, deletions by their tombstones, and cancellations by their absence."""
    slow = acme.agent("Slow", SLOW)
    key = acme.key(slow)
    quiet, stuck = acme.issue("Think", slow), acme.issue("Wait", slow, status="todo")
    eventually("Slow runs", lambda: any(run["status"] == "running" for run in acme.runs()))
    with installation.relay(PAPERCLIP_API_KEY=key, RELAY_COMPANIES=""):
        said, deleted, cancelled = acme.say(quiet, "One."), acme.say(quiet, "Two."), acme.say(stuck, "Three.")
        half = acme.say_half_an_emoji(quiet, "more")
        created = {("issue.comment.created", each) for each in (said, deleted, cancelled, half)}
        eventually("comments are published", lambda: created <= installation.published())
        acme.delete(quiet, deleted)
        acme.cancel(stuck, cancelled)
        gone = {("issue.comment.deleted", deleted), ("issue.comment.cancelled", cancelled)}
        eventually("what is gone is published", lambda: gone <= installation.published())
    for run in acme.runs():
        acme.post(f"/api/heartbeat-runs/{run['id']}/cancel")
    log = "\n".join(path.read_text() for path in installation.logs.glob("relay-*.log"))
    assert "may not read Paperclip's audit feed" in log


def test_restarts_and_two_at_once(installation: RelayInstallation, acme: PaperclipCompany) -> None:
    """What happens while no relay runs is published later; two relays publish the same events under the same ids."""
    ada = acme.agent("Ada")
    issue = acme.issue("Think", ada)
    with installation.relay(RELAY_START="now"):
        first = acme.say(issue, "First.")
        eventually("it is published", lambda: ("issue.comment.created", first) in installation.published())
    second = acme.say(issue, "While nobody looked.")
    with installation.relay(RELAY_START="now"), installation.relay(RELAY_START="now"):
        eventually("it is published", lambda: ("issue.comment.created", second) in installation.published())
        third = acme.say(issue, "Twice.")

        def twice() -> bool:
            return [what(event) for event in installation.events()].count(("issue.comment.created", third)) == 2

        eventually("both publish it", twice)
    events = [event for event in installation.events() if event["eventType"].startswith("issue.comment.")]
    assert {what(event) for event in events} == {("issue.comment.created", each) for each in (first, second, third)}
    assert len({event["eventId"] for event in events}) == 3


def test_a_new_company_is_found_and_an_old_one_is_not_read_again(
    broker: Broker, hindsight: Hindsight, tmp_path: Path, paperclip: Paperclip, acme: PaperclipCompany
) -> None:
    """With `relay_start` now, what was before is left alone; a later company is followed from its beginning."""
    old = acme.say(acme.issue("Old", acme.agent("Ada")), "Before the relay.")
    installation = RelayInstallation(broker, hindsight, tmp_path, acme)
    with installation.relay(RELAY_COMPANIES="", RELAY_START="now"), paperclip_company(paperclip, "Late") as late:
        new = late.say(late.issue("New", late.agent("Bea")), "After the relay.")
        eventually("the new company is found", lambda: ("issue.comment.created", new) in installation.published())
    assert ("issue.comment.created", old) not in installation.published()
