"""What `topics` does on a real broker."""

from typing import Any

import pytest

from consumer.kafka.topics import TopicState, ensure_topics, survey_topics
from consumer.settings.model import Settings
from tests.support.topics import Topics

FIELDS = ("topic_agent_runs", "topic_issue_comments", "topic_recalls", "topic_dead_letters", "topic_relay_checkpoints")


def settings(topics: Topics, **fields: Any) -> Settings:
    names = {field: topics.name(field) for field in FIELDS}
    return Settings(
        hindsight_api_url="http://localhost:8888",
        kafka_bootstrap_servers=topics.broker.bootstrap_servers,
        **(names | fields),
    )


async def test_topics_are_created_once(topics: Topics) -> None:
    ours = settings(topics)
    for step, state in (
        (survey_topics, TopicState.MISSING),
        (ensure_topics, TopicState.CREATED),
        (survey_topics, TopicState.EXISTS),
        (ensure_topics, TopicState.EXISTS),
    ):
        assert {(report.state, report.details) for report in await step(ours)} == {(state, ())}


async def test_too_few_partitions_are_reported(topics: Topics) -> None:
    ours = settings(topics, topic_partitions=2)
    await ensure_topics(ours)
    reports = await survey_topics(settings(topics, topic_partitions=3))
    assert {(report.state, report.details) for report in reports} == {(TopicState.DIFFERS, ("2 partitions, not 3",))}


@pytest.mark.real_kafka
async def test_different_configuration_is_reported_and_kept(topics: Topics) -> None:
    name = await topics.create("recalls", partitions=8, config={"cleanup.policy": "delete", "segment.ms": "7200000"})
    ours = settings(topics, topic_recalls=name)
    for _ in range(2):
        [report] = [report for report in await ensure_topics(ours) if report.name == name]
        assert report.state is TopicState.DIFFERS
        assert report.details == (
            "cleanup.policy is delete, not compact,delete",
            "segment.ms is 7200000, not 3600000",
        )


@pytest.mark.real_kafka
async def test_dead_letters_have_room_over_an_existing_source(topics: Topics) -> None:
    name = await topics.create("comments", partitions=8, config={"max.message.bytes": "4000000"})
    ours = settings(topics, topic_issue_comments=name)
    await ensure_topics(ours)
    assert {report.state for report in await survey_topics(ours)} == {TopicState.EXISTS}


@pytest.mark.real_kafka
async def test_refused_topic_is_reported_with_the_brokers_reason(topics: Topics) -> None:
    reports = await ensure_topics(settings(topics, topic_replication_factor=100))
    assert {report.state for report in reports} == {TopicState.REFUSED}
    assert all("InvalidReplicationFactorError" in detail for report in reports for detail in report.details)
