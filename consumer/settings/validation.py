"""What settings must hold together, and how a setting is called in a message."""

from typing import TYPE_CHECKING

from consumer.settings.types import SaslMechanism

if TYPE_CHECKING:
    from consumer.settings.model import Settings

PREFIX = "PAPERCLIP_MEMORY_"

_PASSWORD_NEEDS = ("kafka_sasl_username", "kafka_sasl_password")
_OAUTH_NEEDS = ("kafka_oauth_token_url", "kafka_oauth_client_id", "kafka_oauth_client_secret")
_SASL_FIELDS = ("kafka_sasl_mechanism", *_PASSWORD_NEEDS, *_OAUTH_NEEDS, "kafka_oauth_scope")
_TLS_FIELDS = ("kafka_ssl_cafile", "kafka_ssl_certfile", "kafka_ssl_keyfile", "kafka_ssl_password")
_TOPICS = ("topic_agent_runs", "topic_issue_comments", "topic_recalls", "topic_dead_letters", "topic_relay_checkpoints")
_GROUPS = ("group_recall", "group_retain")


def variable(field: str) -> str:
    """The environment variable, and the file of the secrets directory, of a field."""
    return PREFIX + field.upper()


def label(field: str) -> str:
    """A field with its variable, as messages name it."""
    return f"{field} ({variable(field)})"


def together(settings: "Settings") -> list[str]:
    """One line for each setting that is fine alone and wrong beside the others."""
    checks = (_bank_problems, _sasl_problems, _tls_problems, _limit_problems)
    return [problem for check in checks for problem in check(settings)]


def _bank_problems(settings: "Settings") -> list[str]:
    if settings.dynamic_bank_id is False and settings.bank_id is None:
        return [f"{label('bank_id')} is not set: dynamic_bank_id = false needs the one bank's id"]
    return []


def _sasl_problems(settings: "Settings") -> list[str]:
    protocol, mechanism = settings.kafka_security_protocol, settings.kafka_sasl_mechanism
    if not protocol.sasl:
        given = [name for name in _SASL_FIELDS if getattr(settings, name) is not None]
        return [f"{label(name)} is set: it needs kafka_security_protocol SASL_SSL or SASL_PLAINTEXT" for name in given]
    if mechanism is None:
        return [f"{label('kafka_sasl_mechanism')} is not set: kafka_security_protocol = {protocol} needs it"]
    needed = _OAUTH_NEEDS if mechanism is SaslMechanism.OAUTHBEARER else _PASSWORD_NEEDS
    missing = [name for name in needed if getattr(settings, name) is None]
    return [f"{label(name)} is not set: kafka_sasl_mechanism = {mechanism} needs it" for name in missing]


def _tls_problems(settings: "Settings") -> list[str]:
    if not settings.kafka_security_protocol.tls:
        given = [name for name in _TLS_FIELDS if getattr(settings, name) is not None]
        return [f"{label(name)} is set: it needs kafka_security_protocol SSL or SASL_SSL" for name in given]
    if settings.kafka_ssl_certfile is None and (settings.kafka_ssl_keyfile or settings.kafka_ssl_password):
        return [f"{label('kafka_ssl_certfile')} is not set: kafka_ssl_keyfile and kafka_ssl_password need it"]
    return []


def _limit_problems(settings: "Settings") -> list[str]:
    problems = []
    for group in (_TOPICS, _GROUPS):
        names = [getattr(settings, field) for field in group]
        problems += [
            f"{label(field)} = {name!r}: another of {', '.join(group)} has this name"
            for i, (field, name) in enumerate(zip(group, names, strict=True))
            if name in names[:i]
        ]
    for smaller, larger in (("drain_timeout", "shutdown_timeout"), ("retry_first_delay", "retry_max_delay")):
        low, high = getattr(settings, smaller), getattr(settings, larger)
        if low > high:
            problems.append(f"{label(smaller)} = {low:g}: must not exceed {larger} = {high:g}")
    return problems
