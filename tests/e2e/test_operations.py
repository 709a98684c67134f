"""What operators see and are woken by: a real Prometheus over real processes, and the way out of each alert."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from consumer.embedded.hindsight import Hindsight
from consumer.exporter.hindsight_source import read_backlog
from consumer.exporter.snapshot import OperationStatus
from demo.ours import Service
from tests.e2e.office import Office
from tests.e2e.plant import Plant, faster, faster_rules, plant, scrape, write
from tests.e2e.site import Site, open_site, wait_for
from tests.support import kafka_jvm
from tests.support.kafka import Broker, Kind
from tests.support.paperclip import Paperclip
from tests.support.prometheus import Prometheus, promtool
from tests.unit.deploy.promql import ROOT, alerts, rules, selected

pytestmark = [pytest.mark.e2e, pytest.mark.real_kafka, pytest.mark.timeout(300)]

BEN, ISSUE = "eeae0a0c-0292-4695-8619-c5bb30200687", "84f04695-b2f5-472e-9096-5cfbd079d332"
BOARD = json.loads((ROOT / "deploy/grafana/dashboards/paperclip-memory.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
P = "paperclip_memory_"


@pytest.fixture(scope="module")
def here(
    broker: Broker, hindsight: Hindsight, paperclip: Paperclip, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Plant]:
    """Everything runs, and has handled the recording."""
    home = tmp_path_factory.mktemp("operations")
    office = Office(paperclip)
    issue = office.issue("Release notes", office.agent("Ada"))
    with open_site(broker, hindsight, home) as site:
        follow = {"PAPERCLIP_API_URL": paperclip.url, "RELAY_COMPANIES": office.id, "RELAY_START": "beginning"}
        with plant(site, home, follow) as running:
            office.say(issue, "Mention the token expiry.")
            site.publish(site.company.events)
            site.wait_consumed()
            yield running
    office.close()


def notes(site: Site, count: int) -> list[dict[str, Any]]:
    return [site.company.said(f"Note {n} of {count}.", agent=BEN, issue=ISSUE) for n in range(count)]


def lag_of(here: Plant, group: str) -> float | None:
    return here.prometheus.value(f'group:{P}group_lag_records:sum{{group="{here.site.prefix}.{group}"}}')


def test_promtool_finds_nothing_wrong_with_what_is_served(here: Plant) -> None:
    for name, text in here.scrapes().items():
        checked = promtool("check", "metrics", given=text)
        assert (name, checked.returncode, checked.stdout, checked.stderr) == (name, 0, "", "")


def test_every_rule_and_every_panel_gets_an_answer(here: Plant) -> None:
    asked = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    for panel in PANELS:
        for target in panel["targets"]:
            asked[f"{panel['title']}: {target['legendFormat']}"] = target["expr"].replace("$__rate_interval", "5s")
    for name, rule in alerts().items():  # an alert that answers, fires: so what it is made of must be there
        asked |= {f"{name}: {each.metric}": each.metric for each in selected(rule["expr"])}
    silent = dict(asked)

    def all_answer() -> bool:
        for name, expression in list(silent.items()):
            if here.prometheus.query(faster(expression)):
                del silent[name]
        return not silent

    wait_for(f"these answer: {silent}", all_answer, 60)
    assert len(asked) > 80
    assert here.prometheus.up() == 5


def test_two_exporters_do_not_double_a_sum(here: Plant) -> None:
    here.processes["worker"].server.stop()
    try:
        here.site.publish(notes(here.site, 3))
        wait_for("the lag is seen", lambda: lag_of(here, "retain") == 3)
        raw = here.prometheus.value(f'sum({P}group_lag_records{{group="{here.site.prefix}.retain"}})')
        assert raw == 6, "each of the two tells it"
    finally:
        here.processes["worker"].server.start()
    wait_for("it is handled", lambda: lag_of(here, "retain") == 0)


def test_queue_depth_and_backlog_are_what_hindsight_says(here: Plant) -> None:
    """Both say it of a moment, so it is compared until both speak of the same one."""

    def same() -> bool:
        said = read_backlog(httpx.get(f"{here.site.hindsight.url}/metrics", timeout=10).text)
        assert said is not None
        shown = {
            status: here.prometheus.value(f'status:{P}hindsight_queue_depth:max{{status="{status}"}}')
            for status in OperationStatus
        }
        waiting = here.prometheus.value(f"cluster:{P}hindsight_consolidation_backlog:max")
        told = {status: said.total(status) for status in OperationStatus}
        return (shown, waiting) == (told, said.consolidation)

    wait_for("they agree", same)


def test_status_shows_the_same(here: Plant) -> None:
    here.site.wait_consumed()
    status = here.status()
    recall, retain = status["groups"]
    assert (retain["group"], retain["members"], retain["state"]) == (f"{here.site.prefix}.retain", 1, "stable")
    assert (recall["lag_records"], retain["lag_records"], retain["lag_seconds"]) == (0, 0, 0)
    assert len(retain["partitions"]) == 8
    assert retain["last_commit"] is not None
    assert status["hindsight"]["banks_known"] >= 1
    assert status["silent"] == {}
    shown = here.run("status")
    assert f"{here.site.prefix}.retain: 1 member (stable), nothing waits, last commit" in shown
    assert "✗ kafka" in here.run("status", expect=1, KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")


def test_a_stopped_group_shows_its_lag_and_pages(here: Plant) -> None:
    """MemoryEventsDelayed and MemoryGroupEmpty; their runbooks say: start the workers."""
    here.processes["worker"].server.stop()
    try:
        values = [json.dumps(event).encode() for event in notes(here.site, 4)]
        topic = here.site.topics["issue_comments"]
        asyncio.run(write(here.site.broker.bootstrap_servers, topic, values, time.time() - 400))
        here.fires("MemoryGroupEmpty")
        here.fires("MemoryEventsDelayed")
        behind = here.prometheus.value(f'group:{P}group_lag_seconds:max{{group="{here.site.prefix}.retain"}}')
        assert behind is not None
        assert 400 <= behind < 500
        assert lag_of(here, "retain") == 4
        retain = here.status()["groups"][1]
        assert (retain["members"], retain["state"], retain["lag_records"]) == (0, "empty", 4)
    finally:
        here.processes["worker"].server.start()
    here.ends("MemoryGroupEmpty", "MemoryEventsDelayed", "MemoryGroupStalled")


def test_dead_letters_open_a_ticket(here: Plant) -> None:
    """The runbook says: list them; what cannot be repaired needs nothing."""
    topic = here.site.topics["issue_comments"]
    asyncio.run(write(here.site.broker.bootstrap_servers, topic, [b"no event"], time.time()))
    here.fires("MemoryDeadLetters")
    listed = json.loads(here.run("dead-letters", "list", "--reason", "undecodable", "--json"))
    assert listed["by_reason"] == {"undecodable": 1}
    depth = f'{P}dead_letter_depth_records{{topic="{here.site.topics["dead_letters"]}"}}'
    wait_for("the exporter counts it", lambda: here.prometheus.value(f"max({depth})") == 1)
    assert here.status()["dead_letters"] == {"by_reason": {"undecodable": 1}, "redriven": 0}
    here.ends("MemoryDeadLetters")


def test_an_open_breaker_and_a_queue_that_does_not_drain(here: Plant) -> None:
    """Hindsight goes away, and comes back without workers of its own; the runbooks say: start it, and start them.

    It comes back without the backlog in its metrics too: the exporters take it from `/stats` then.
    """
    server = here.site.hindsight.server
    usual = server.env
    assert usual is not None
    server.stop()
    try:
        here.site.publish(notes(here.site, 3))
        here.fires("MemoryBreakerOpen")
        wait_for("its source is silent", lambda: here.prometheus.value(f"max({P}hindsight_queue_depth)") is None)
        assert here.prometheus.value(f'max({P}collect_success{{source="hindsight"}})') == 0
        server.env = {
            **usual,
            "HINDSIGHT_API_WORKER_ENABLED": "false",
            "HINDSIGHT_API_METRICS_BACKLOG_ENABLED": "false",
            "HINDSIGHT_API_BANK_STATS_CACHE_TTL_SECONDS": "0",
        }
        server.start()
        here.ends("MemoryBreakerOpen")
        here.fires("HindsightQueueNotDraining")
        queue = here.status()["hindsight"]
        assert (queue["origin"], queue["pending"] > 0) == ("/stats", True)
        told = here.site.get(f"{here.site.company.bank(BEN).replace(':', '%3A')}/stats")
        assert (
            here.prometheus.value(f'status:{P}hindsight_queue_depth:max{{status="pending"}}')
            >= (told["pending_operations"])
        )
        assert here.prometheus.value(f"cluster:{P}hindsight_oldest_pending_seconds:max > 0")
    finally:
        server.stop()
        server.env = usual
        server.start()
    here.ends("HindsightQueueNotDraining")


def test_a_dead_kafka_is_unobserved_and_not_0(hindsight: Hindsight, tmp_path: Path) -> None:
    """MemoryLagUnobserved; its runbook says: start it."""
    if not kafka_jvm.available():
        pytest.fail("needs an Apache Kafka that it can stop: a JVM and Maven")
    with (
        kafka_jvm.JvmKafka(tmp_path) as kafka,
        open_site(Broker(kafka.bootstrap_servers, Kind.JVM), hindsight, tmp_path) as site,
    ):
        site.publish(notes(site, 2))
        exporter = Service("exporter", site.settings | {"EXPORTER_INTERVAL": "1"}, tmp_path / "exporter.log")
        targets = {"paperclip-memory": [exporter.address]}
        with exporter, Prometheus(tmp_path, targets, faster_rules(tmp_path)) as prometheus:
            records = f"sum({P}group_lag_records)"
            wait_for("the lag is seen", lambda: prometheus.value(records) == 2)
            kafka.kill()
            wait_for("nothing is said of lag", lambda: prometheus.query(records) == [])
            wait_for("it pages", lambda: "MemoryLagUnobserved" in prometheus.firing())
            assert not re.search(rf"^{P}(group_|log_end|dead_letter_depth)", scrape(exporter), re.MULTILINE)
            assert f'{P}collect_success{{source="kafka"}} 0.0' in scrape(exporter)
            assert f'{P}collect_success{{source="hindsight"}} 1.0' in scrape(exporter)
            kafka.start()
            wait_for("it is seen again", lambda: prometheus.value(records) == 2)
            wait_for("it ends", lambda: "MemoryLagUnobserved" not in prometheus.firing())
