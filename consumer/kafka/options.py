"""Makes Kafka clients from the settings."""

import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from consumer.errors import DownKind, SettingsError, Upstream, UpstreamDown
from consumer.kafka.oauth import NO_TOKEN, ClientCredentials
from consumer.settings.model import Settings
from consumer.settings.types import SaslMechanism, label
from consumer.stream.unreadable import skip_unreadable_records

REQUEST_TIMEOUT = 10.0
"""Seconds after which a producer gives up on a record, so that it is not sent after the caller has failed."""
MAX_REQUEST_SIZE = 16 * 1024 * 1024
"""Bytes; far over Kafka's default limit, so that the topic's limit decides."""


def client_options(settings: Settings) -> dict[str, Any]:
    """Keyword arguments of every aiokafka client: brokers and authentication.

    Raises:
        SettingsError: a TLS file cannot be used.
    """
    options: dict[str, Any] = {
        "bootstrap_servers": settings.kafka_bootstrap_servers,
        "client_id": settings.kafka_client_id,
        "security_protocol": settings.kafka_security_protocol.value,
    }
    if settings.kafka_security_protocol.tls:
        options["ssl_context"] = _ssl_context(settings)
    if settings.kafka_sasl_mechanism is not None:
        options["sasl_mechanism"] = settings.kafka_sasl_mechanism.value
    if settings.kafka_sasl_mechanism is SaslMechanism.OAUTHBEARER:
        options["sasl_oauth_token_provider"] = ClientCredentials.of(settings)
    elif settings.kafka_sasl_password is not None:
        options["sasl_plain_username"] = settings.kafka_sasl_username
        options["sasl_plain_password"] = settings.kafka_sasl_password.get_secret_value()
    return options


def consumer_options(settings: Settings) -> dict[str, Any]:
    """`client_options` with the rack, so that the consumer can read from a nearby replica (KIP-392)."""
    skip_unreadable_records()
    return {**client_options(settings), "client_rack": settings.kafka_rack}


def groupless_consumer(settings: Settings, *topics: str) -> AIOKafkaConsumer:
    """A consumer without a group, not started. It reads topics or assigned partitions from their start."""
    return AIOKafkaConsumer(
        *topics, **consumer_options(settings), enable_auto_commit=False, auto_offset_reset="earliest"
    )


def lane_consumer(settings: Settings, group: str) -> AIOKafkaConsumer:
    """A lane's consumer, not started. `rebalance_timeout_ms` covers the drain, the commit and the cancelling."""
    return AIOKafkaConsumer(
        **consumer_options(settings),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        partition_assignment_strategy=(RangePartitionAssignor,),
        fetch_max_wait_ms=50,
        max_partition_fetch_bytes=256 * 1024,
        fetch_max_bytes=4 * 1024 * 1024,
        session_timeout_ms=10_000,
        heartbeat_interval_ms=2_000,
        rebalance_timeout_ms=int((settings.drain_timeout + 12) * 1000),
        metadata_max_age_ms=60_000,
    )


def producer(settings: Settings) -> AIOKafkaProducer:
    """A producer, not started. All in-sync replicas must acknowledge a record. Keys and values are bytes.

    No batching delay (`linger_ms=0`): a recall must be published at once, and records that arrive during a request form
    the next batch anyway.
    """
    return AIOKafkaProducer(
        **client_options(settings),
        acks="all",
        enable_idempotence=settings.kafka_enable_idempotence,
        request_timeout_ms=int(REQUEST_TIMEOUT * 1000),
        max_request_size=MAX_REQUEST_SIZE,
    )


@contextmanager
def translate_kafka_errors(settings: Settings) -> Iterator[None]:
    """Translate aiokafka's errors to `UpstreamDown`.

    Raises:
        UpstreamDown: Kafka cannot be reached, or refuses our credentials.
    """
    reason = _LastWarning()
    log = logging.getLogger("aiokafka")
    log.addHandler(reason)
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as error:
        why = reason.text or str(error) or type(error).__name__
        if settings.kafka_sasl_mechanism is SaslMechanism.OAUTHBEARER and NO_TOKEN not in why:
            why += ". If the broker refused the token, only its own log says so"  # aiokafka drops the broker's answer
        message = f"Kafka at {settings.kafka_bootstrap_servers}: {why}"
        raise UpstreamDown(message, upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE) from error
    finally:
        log.removeHandler(reason)


class _LastWarning(logging.Handler):
    """Keeps aiokafka's last warning, which names the reason of a failed connection. Its error does not."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


def _ssl_context(settings: Settings) -> ssl.SSLContext:
    cafile, certfile = settings.kafka_ssl_cafile, settings.kafka_ssl_certfile
    try:
        context = ssl.create_default_context(cafile=cafile)
    except OSError as error:
        raise SettingsError([f"{label('kafka_ssl_cafile')} = {cafile}: has no PEM certificates ({error})"]) from error
    if certfile is not None:
        password = settings.kafka_ssl_password
        # Without a password OpenSSL would prompt for one.
        secret = password.get_secret_value() if password is not None else ""
        try:
            context.load_cert_chain(certfile, settings.kafka_ssl_keyfile, secret)
        except OSError as error:
            problem = f"{label('kafka_ssl_certfile')} = {certfile}: cannot be used with its key and password ({error})"
            raise SettingsError([problem]) from error
    return context
