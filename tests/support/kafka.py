"""The one Kafka of a test session: which, and how to start it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from consumer.embedded.broker import TansuBroker
from tests.support import kafka_docker, kafka_jvm

SERVERS = "PAPERCLIP_MEMORY_KAFKA_BOOTSTRAP_SERVERS"
REQUIRE_REAL = "PAPERCLIP_MEMORY_TEST_REQUIRE_REAL_KAFKA"


class Kind(Enum):
    """Where the broker comes from, the first that is to be had; its value is for people."""

    GIVEN = f"the broker that {SERVERS} names"
    DOCKER = f"Apache Kafka in Docker ({kafka_docker.IMAGE})"
    JVM = kafka_jvm.JvmKafka.name
    PIP_ONLY = TansuBroker.name

    @property
    def real(self) -> bool:
        """Whether it can do all that Apache Kafka can."""
        return self is not Kind.PIP_ONLY


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker."""

    bootstrap_servers: str
    kind: Kind

    @property
    def idempotence(self) -> bool:
        """Whether it has idempotent producers (the setting `kafka_enable_idempotence`)."""
        return self.kind.real


def choose() -> Kind:
    """The broker of this machine."""
    if os.environ.get(SERVERS):
        return Kind.GIVEN
    if kafka_docker.available():
        return Kind.DOCKER
    if kafka_jvm.available():
        return Kind.JVM
    return Kind.PIP_ONLY


@contextmanager
def running(kind: Kind, logs: Path) -> Iterator[Broker]:
    """A broker of this kind, while the context lasts."""
    match kind:
        case Kind.GIVEN:
            yield Broker(os.environ[SERVERS], kind)
        case Kind.DOCKER:
            with kafka_docker.container() as container:
                yield Broker(container.get_bootstrap_server(), kind)
        case Kind.JVM:
            with kafka_jvm.JvmKafka(logs) as server:
                yield Broker(server.bootstrap_servers, kind)
        case Kind.PIP_ONLY:
            with TansuBroker(logs) as server:
                yield Broker(server.bootstrap_servers, kind)
