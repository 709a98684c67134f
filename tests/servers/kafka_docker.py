"""Apache Kafka in a container, when a Docker engine answers."""

import docker  # type: ignore[import-untyped]
from docker.errors import DockerException  # type: ignore[import-untyped]
from testcontainers.community.kafka import KafkaContainer

IMAGE = "confluentinc/cp-kafka:7.9.0"


def available() -> bool:
    """Whether a Docker engine answers."""
    try:
        client = docker.from_env(timeout=5)
    except DockerException:
        return False
    try:
        return bool(client.ping())
    except DockerException:
        return False
    finally:
        client.close()


def container() -> KafkaContainer:
    """One KRaft node that is not started yet."""
    return KafkaContainer(IMAGE).with_kraft()
