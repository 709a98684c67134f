"""Apache Kafka in a container, when a Docker engine answers."""

import os
import socket
from urllib.parse import urlsplit

from testcontainers.community.kafka import KafkaContainer

IMAGE = "confluentinc/cp-kafka:7.9.0"


def available() -> bool:
    """Whether a Docker engine accepts connections where `DOCKER_HOST` says, or at its usual place.

    Asked of the socket itself: the Docker client leaks one when nobody answers, which `-W error` does not forgive.
    """
    where = urlsplit(os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock")
    unix = where.scheme == "unix"
    with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as probe:
        probe.settimeout(5)
        try:
            probe.connect(where.path if unix else (where.hostname or "127.0.0.1", where.port or 2375))
        except OSError:
            return False
        return True


def container() -> KafkaContainer:
    """One KRaft node that is not started yet."""
    return KafkaContainer(IMAGE).with_kraft()
