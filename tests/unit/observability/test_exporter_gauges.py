from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from consumer.exporter.snapshot import HindsightSeen, KafkaSeen, Outcome
from consumer.observability.exporter_gauges import ExporterGauges
from tests.unit.exporter.samples import NOW, seen_hindsight, seen_kafka

MAX_AGE = 180.0


class Scrape:
    """A registry with the gauges of these outcomes."""

    def __init__(
        self,
        kafka: Outcome[KafkaSeen] | None = None,
        hindsight: Outcome[HindsightSeen] | None = None,
        now: Callable[[], float] = lambda: NOW,
    ) -> None:
        self.kafka = kafka or seen_kafka()
        self.hindsight = hindsight or seen_hindsight()
        self.registry = CollectorRegistry()
        self.registry.register(ExporterGauges(lambda: self.kafka, lambda: self.hindsight, MAX_AGE, now))

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"paperclip_memory_{name}", labels)

    def names(self, prefix: str) -> set[str]:
        return {
            sample.name
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name.startswith(f"paperclip_memory_{prefix}")
        }


def test_what_kafka_says() -> None:
    scrape = Scrape()
    place = {"group": "retain", "topic": "comments", "partition": "1"}
    assert scrape.value("group_lag_records", **place) == 4
    assert scrape.value("group_lag_seconds", **place) == 60
    assert scrape.value("group_committed_offset", **place) is None, "no commit is no offset, least of all 0"
    assert scrape.value("group_committed_offset", **place | {"partition": "0"}) == 3
    assert scrape.value("log_end_offset", topic="comments", partition="1") == 4
    assert scrape.value("group_partitions_without_commit", group="retain", topic="comments") == 1
    assert scrape.value("group_partitions_without_commit", group="recall", topic="runs") == 0
    assert scrape.value("group_members", group="recall") == 2
    assert scrape.value("group_state", group="retain", state="empty") == 1
    assert scrape.value("group_state", group="retain", state="stable") == 0
    assert scrape.value("dead_letter_depth_records", topic="dead-letters") == 9


def test_what_hindsight_says() -> None:
    scrape = Scrape()
    assert scrape.value("hindsight_queue_depth", operation_type="retain", status="pending") == 4
    assert scrape.value("hindsight_queue_depth", operation_type="consolidation", status="failed") == 0
    assert scrape.value("hindsight_consolidation_backlog") == 11
    assert scrape.value("hindsight_consolidation_failed") == 2
    assert scrape.value("hindsight_oldest_pending_seconds") == 33
    assert scrape.value("hindsight_banks_known") == 60
    assert scrape.value("hindsight_banks_observed") == 50


@pytest.mark.parametrize("source", ["kafka", "hindsight"])
def test_a_source_that_does_not_answer_has_no_gauges_and_the_other_keeps_its_own(source: str) -> None:
    scrape = Scrape()
    if source == "kafka":
        scrape.kafka = seen_kafka(None, at=NOW - 20, error="refused")
    else:
        scrape.hindsight = seen_hindsight(None, at=NOW - 20, error="refused")
    kafka, hindsight = scrape.names("group") | scrape.names("log") | scrape.names("dead"), scrape.names("hindsight")
    assert (kafka if source == "kafka" else hindsight) == set()
    assert hindsight if source == "kafka" else kafka
    assert scrape.value("collect_success", source=source) == 0
    assert scrape.value("snapshot_timestamp_seconds", source=source) == NOW - 20


def test_a_snapshot_past_its_age_limit_is_dropped() -> None:
    assert Scrape(seen_kafka(at=NOW - MAX_AGE)).names("group")
    old = Scrape(seen_kafka(at=NOW - MAX_AGE - 1))
    assert old.names("group") == set()
    assert old.value("snapshot_timestamp_seconds", source="kafka") == NOW - MAX_AGE - 1


def test_before_the_first_look_there_is_nothing_but_that_fact() -> None:
    scrape = Scrape(Outcome(), Outcome())
    assert scrape.names("") == {
        f"paperclip_memory_{name}"
        for name in ("snapshot_timestamp_seconds", "collect_success", "collect_duration_seconds")
    }
    assert scrape.value("snapshot_timestamp_seconds", source="kafka") == 0
    assert scrape.value("collect_success", source="kafka") == 0


def test_a_topic_that_is_not_there_has_no_lag_though_its_group_is_known() -> None:
    seen = seen_kafka().seen
    assert seen is not None
    recall, retain = seen.groups
    gone = KafkaSeen((recall, type(retain)(retain.name, retain.topics, 0, retain.state, ())), {}, {})
    scrape = Scrape(seen_kafka(gone))
    assert scrape.value("group_lag_records", group="recall", topic="runs", partition="0") == 2
    assert scrape.value("group_state", group="retain", state="empty") == 1
    assert not [s for f in scrape.registry.collect() if f.name.endswith("lag_records") for s in f.samples][1:]
    assert scrape.names("dead") == set()
