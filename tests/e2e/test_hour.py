"""An hour of work in small, with everything killed once along the way: nothing is missing, duplicate or orphaned.

Real Paperclip, Hindsight and Apache Kafka. `PAPERCLIP_MEMORY_TEST_FULL_SIZE=1` gives it its full size.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from consumer.embedded.hindsight import Hindsight
from demo.services import Service
from tests.support import kafka_jvm
from tests.support.kafka import Broker, Kind
from tests.support.kafka_jvm import JvmKafka
from tests.support.paperclip import Packages, Paperclip, Target
from tests.support.paperclip_company import SAY, Json, ListenerPlugin, PaperclipCompany, eventually, paperclip_company
from tests.support.relay_installation import FULL_SIZE, RelayInstallation, what

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.every_paperclip,
    pytest.mark.real_kafka,
    pytest.mark.timeout(1500 if FULL_SIZE else 480),
]

COMPANIES, ISSUES, COMMENTS = (3, 60, 600) if FULL_SIZE else (3, 12, 90)

BUSY = SAY + 'say "Done: $PAPERCLIP_RUN_ID"; case "$PAPERCLIP_RUN_ID" in *[0-4]) exit 3;; esac'
"""Answers each run with a comment; three runs of ten fail."""


class Killable(Protocol):
    """A server."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


class BusyCompany:
    """One company of the hour: Busy works on what wakes it, Quiet is paused and only owns things."""

    def __init__(self, acme: PaperclipCompany, issues: int, chance: random.Random) -> None:
        self.company = acme
        self.chance = chance
        self.agents = [acme.agent("Busy", BUSY), acme.agent("Quiet")]
        busy, quiet = self.agents
        acme.pause(quiet)
        self.key = acme.key(busy)
        self.busy_issue = acme.issue("Keep the lights on", busy, status="todo", description="Report every day.")
        self.run = eventually("Busy runs", lambda: acme.run_of(busy, self.busy_issue))
        self.issues = [acme.issue(f"Issue {number}", quiet) for number in range(issues - 1)]
        self.half: set[str] = set()

    @property
    def banks(self) -> list[str]:
        return [self.company.bank(agent) for agent in self.agents]

    def comment(self, number: int) -> None:
        """One comment, of one of the kinds there are."""
        acme, issue = self.company, self.chance.choice(self.issues[1:])  # the first is always somebody's
        kind = number % 20
        if kind == 0:
            acme.say(self.busy_issue, f"Please look at {number}.")  # wakes Busy
        elif kind in (1, 2, 3, 4):
            acme.say(self.busy_issue, f"Noted {number}.", self.key, self.run)
        elif kind == 5:
            self.half.add(acme.say_half_an_emoji(self.issues[0], str(number)))
        elif kind == 6:
            wrong = acme.say(issue, f"Use {number}h, no.")
            acme.delete(issue, wrong)
            acme.say(issue, f"Use {number}h, yes.")
        elif kind == 7:
            acme.say(issue, f"Said before it was given to another: {number}.")
            acme.assign(issue, self.chance.choice([*self.agents, None]))
        else:
            acme.say(issue, f"Decision {number}: " + "we keep it. " * self.chance.randrange(1, 40))

    def cancel_a_run(self) -> None:
        for run in self.company.runs():
            if run["status"] in ("queued", "running"):
                self.company.post(f"/api/heartbeat-runs/{run['id']}/cancel")
                return

    def at_rest(self) -> bool:
        return all(run["status"] not in ("queued", "running") for run in self.company.runs())

    def comments(self) -> list[Json]:
        listed = self.company.get(f"/api/companies/{self.company.id}/issues", limit=1000)
        return [each for issue in listed for each in self.company.comments(issue["id"])]


@pytest.fixture
def own_paperclip(paperclip_packages: Packages, paperclip_target: Target, server_logs: Path) -> Iterator[Paperclip]:
    """A Paperclip that nobody else uses while it is killed."""
    with Paperclip(paperclip_packages, server_logs, paperclip_target.mode) as server:
        yield server


def test_an_hour_of_work(
    own_paperclip: Paperclip, paperclip_packages: Packages, hindsight: Hindsight, tmp_path: Path
) -> None:
    if not kafka_jvm.available():
        pytest.fail("needs an Apache Kafka that it can kill: a JVM and Maven")
    chance = random.Random(7)  # noqa: S311 - the same hour each time
    with ExitStack() as stack:
        kafka = stack.enter_context(JvmKafka(tmp_path))
        hosts = [
            stack.enter_context(paperclip_company(own_paperclip, f"Company {number}")) for number in range(COMPANIES)
        ]
        listener = ListenerPlugin(hosts[0], paperclip_packages)
        companies = [BusyCompany(each, ISSUES // COMPANIES, chance) for each in hosts]
        installation = RelayInstallation(Broker(kafka.bootstrap_servers, Kind.JVM), hindsight, tmp_path, *hosts)
        relay = stack.enter_context(Service("relay", installation.settings, tmp_path / "relay.log"))
        worker = stack.enter_context(Service("worker", installation.settings, tmp_path / "worker.log"))

        accidents: list[Callable[[], None]] = [
            lambda: _again(relay.server),
            lambda: _again(worker.server),
            lambda: _again(kafka),
            lambda: _again(own_paperclip),
        ]
        for number in range(COMMENTS):
            companies[number % COMPANIES].comment(number // COMPANIES)
            if number % (COMMENTS // 6) == 0:
                companies[number % COMPANIES].cancel_a_run()
            if accidents and number and number % (COMMENTS // 5) == 0:
                accidents.pop(0)()
        assert not accidents

        eventually("all runs have ended", lambda: all(company.at_rest() for company in companies), deadline=180)
        heard = {what(event) for event in listener.heard()}
        eventually("all that the plugin heard is published", lambda: heard <= installation.published())
        banks = [bank for company in companies for bank in company.banks]
        half = {id_ for company in companies for id_ in company.half}
        living = {each["id"] for company in companies for each in company.comments() if not each["deletedAt"]}
        assert half <= living
        created = {("issue.comment.created", id_) for id_ in living}
        eventually("every comment is published", lambda: created <= installation.published())
        eventually("all is handled", lambda: installation.lag() == 0, deadline=120, every=1)
        eventually("all is digested", lambda: all(installation.digested(bank) for bank in banks), deadline=600, every=1)
        reports = eventually(
            "the audit has judged all", lambda: _judged(installation, companies), deadline=120, every=3
        )

        assert {kind: found for kind, found in _faults(reports).items() if found} == {}
        for company in companies:
            report = reports[company.company.id]
            assert report["stored"] == report["comments"] - sum(report["skipped"].values()), report
            assert set(report["skipped"]) <= {"system_comment", "no_agent"}
        held = [id_ for bank in banks for id_ in installation.held(bank)]
        assert len(held) == len(set(held))
        comments = {each["id"]: each for company in companies for each in company.comments()}
        deleted = {id_ for id_, comment in comments.items() if comment["deletedAt"]}
        system = {id_ for id_, comment in comments.items() if comment["authorType"] == "system"}
        assert deleted
        assert not set(held) & (deleted | system)
        assert half <= set(held)
        assert len(set(held)) >= COMMENTS
        assert installation.read("dead_letters") == []


def _again(server: Killable) -> None:
    server.kill()
    server.start()


def _judged(installation: RelayInstallation, companies: list[BusyCompany]) -> dict[str, Json] | None:
    """The audit's reports, once they have all comments; those of the last seconds are left alone."""
    reports = installation.audit(expect=None)
    living = {each.company.id: sum(1 for comment in each.comments() if not comment["deletedAt"]) for each in companies}
    return reports if all(reports[id_]["comments"] == count for id_, count in living.items()) else None


def _faults(reports: dict[str, Json]) -> dict[str, list[Json]]:
    kinds = ("missing", "stale", "duplicate", "orphaned", "failed_operations", "stalled_operations")
    return {kind: [each for report in reports.values() for each in report[kind]] for kind in kinds}
