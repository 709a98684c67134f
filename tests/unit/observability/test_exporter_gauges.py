from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from consumer.exporter.snapshot import HindsightSnapshot, KafkaSnapshot, LastPoll
from consumer.observability.exporter_gauges import ExporterGauges
from tests.unit.exporter.samples import NOW, polled_hindsight, polled_kafka

MAX_AGE = 180.0


class Scrape:
    """A registry with the gauges of these polls."""

    def __init__(
        self,
        kafka: LastPoll[KafkaSnapshot] | None = None,
        hindsight: LastPoll[HindsightSnapshot] | None = None,
        now: Callable[[], float] = lambda: NOW,
    ) -> None:
        self.kafka = kafka or polled_kafka()
        self.hindsight = hindsight or polled_hindsight()
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


def test_a_kafka_snapshot_gives_the_kafka_gauges() -> None:
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


def test_a_hindsight_snapshot_gives_the_hindsight_gauges() -> None:
    scrape = Scrape()
    assert scrape.value("hindsight_queue_depth", operation_type="retain", status="pending") == 4
    assert scrape.value("hindsight_queue_depth", operation_type="consolidation", status="failed") == 0
    assert scrape.value("hindsight_consolidation_backlog") == 11
    assert scrape.value("hindsight_consolidation_failed") == 2
    assert scrape.value("hindsight_oldest_pending_seconds") == 33
    assert scrape.value("hindsight_banks_known") == 60
    assert scrape.value("hindsight_banks_observed") == 50


@pytest.mark.parametrize("source", ["kafka", "hindsight"])
def test_an_unavailable_source_has_no_gauges_and_the_other_keeps_its_own(source: str) -> None:
    scrape = Scrape()
    if source == "kafka":
        scrape.kafka = polled_kafka(None, at=NOW - 20, error="refused")
    else:
        scrape.hindsight = polled_hindsight(None, at=NOW - 20, error="refused")
    kafka, hindsight = scrape.names("group") | scrape.names("log") | scrape.names("dead"), scrape.names("hindsight")
    assert (kafka if source == "kafka" else hindsight) == set()
    assert hindsight if source == "kafka" else kafka
    assert scrape.value("collect_success", source=source) == 0
    assert scrape.value("snapshot_timestamp_seconds", source=source) == NOW - 20


def test_a_snapshot_past_its_age_limit_is_dropped() -> None:
    assert Scrape(polled_kafka(at=NOW - MAX_AGE)).names("group")
    old = Scrape(polled_kafka(at=NOW - MAX_AGE - 1))
    assert old.names("group") == set()
    assert old.value("snapshot_timestamp_seconds", source="kafka") == NOW - MAX_AGE - 1


def test_before_the_first_poll_only_the_source_gauges_exist() -> None:
    scrape = Scrape(LastPoll(), LastPoll())
    assert scrape.names("") == {
        f"paperclip_memory_{name}"
        for name in ("snapshot_timestamp_seconds", "collect_success", "collect_duration_seconds")
    }
    assert scrape.value("snapshot_timestamp_seconds", source="kafka") == 0
    assert scrape.value("collect_success", source="kafka") == 0


def test_a_missing_topic_has_no_lag_though_its_group_has_a_state() -> None:
    kafka = polled_kafka().snapshot
    assert kafka is not None
    recall, retain = kafka.groups
    without_topic = KafkaSnapshot((recall, type(retain)(retain.name, retain.topics, 0, retain.state, ())), {}, {})
    scrape = Scrape(polled_kafka(without_topic))
    assert scrape.value("group_lag_records", group="recall", topic="runs", partition="0") == 2
    assert scrape.value("group_state", group="retain", state="empty") == 1
    assert not [s for f in scrape.registry.collect() if f.name.endswith("lag_records") for s in f.samples][1:]
    assert scrape.names("dead") == set()
