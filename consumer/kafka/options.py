"""Kafka clients as the settings ask for them: the options that all share, and those of consumers and producers."""

import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from consumer.errors import DownKind, SettingsError, Upstream, UpstreamDown
from consumer.kafka.oauth import NONE_TO_BE_HAD, ClientCredentials
from consumer.kafka.unreadable import skip_unreadable_records
from consumer.settings.model import Settings
from consumer.settings.types import SaslMechanism, label

REQUEST_TIMEOUT = 10.0
"""Seconds that a producer tries: what is not acknowledged by then is not sent later, behind the caller's back."""
MAX_REQUEST_SIZE = 16 * 1024 * 1024
"""Bytes; far over Kafka's default limit of a record, so that the topic's limit decides what is too large."""


def client_options(settings: Settings) -> dict[str, Any]:
    """Keyword arguments of every aiokafka client: where the brokers are, and how to prove who we are.

    Raises:
        SettingsError: a TLS file holds nothing that can be used.
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
    """`client_options` of a consumer: with the rack, so that it may read from a replica nearby (KIP-392)."""
    skip_unreadable_records()
    return {**client_options(settings), "client_rack": settings.kafka_rack}


def groupless_consumer(settings: Settings, *topics: str) -> AIOKafkaConsumer:
    """A consumer without a group, not started, that reads from the start: these topics, or what it will be assigned."""
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
    """A producer, not started: a record counts when all in-sync replicas have it. Keys and values are bytes.

    It waits for no company (`linger_ms` 0): a recall must be out at once, and what comes while a request is out makes
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
    """Turn what aiokafka raises within into words.

    Raises:
        UpstreamDown: Kafka cannot be reached, or does not take us for who we are.
    """
    reason = _LastWarning()
    log = logging.getLogger("aiokafka")
    log.addHandler(reason)
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as error:
        why = reason.text or str(error) or type(error).__name__
        if settings.kafka_sasl_mechanism is SaslMechanism.OAUTHBEARER and NONE_TO_BE_HAD not in why:
            why += ". If the broker refuses our token, only its own log says so"  # aiokafka drops its answer
        message = f"Kafka at {settings.kafka_bootstrap_servers}: {why}"
        raise UpstreamDown(message, upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE) from error
    finally:
        log.removeHandler(reason)


class _LastWarning(logging.Handler):
    """Keeps what aiokafka only logs: why it could not connect. The error that it raises says no more than that."""

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
        raise SettingsError([f"{label('kafka_ssl_cafile')} = {cafile}: holds no PEM certificates ({error})"]) from error
    if certfile is not None:
        password = settings.kafka_ssl_password
        # Without a password OpenSSL would ask for one on the terminal.
        secret = password.get_secret_value() if password is not None else ""
        try:
            context.load_cert_chain(certfile, settings.kafka_ssl_keyfile, secret)
        except OSError as error:
            problem = f"{label('kafka_ssl_certfile')} = {certfile}: cannot be used with its key and password ({error})"
            raise SettingsError([problem]) from error
    return context
