"""All settings, typed. They come from `PAPERCLIP_MEMORY_*` variables, and from files of those names in a directory.

A variable wins over a file; a blank one counts as unset. The names are the plugin's, in snake_case (`PLUGIN_NAMES`).
`consumer.settings.reference` shows them to people.
"""

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, FilePath, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableSource

from consumer.errors import SettingsError
from consumer.memory.policy import BankPart, MemoryPolicy, RecallBudget, UserSource
from consumer.settings.types import (
    ApiKey,
    Backend,
    Bank,
    Decoded,
    Endpoint,
    HttpBackend,
    InFlight,
    LogFormat,
    LogLevel,
    Lower,
    Name,
    Port,
    SaslMechanism,
    Seconds,
    SecurityProtocol,
    Servers,
    SharedSecret,
    Start,
    Text,
    Upper,
    Url,
)
from consumer.settings.validation import PREFIX, label, together
from schemas.paperclip import Uuid

SECRETS_DIR = f"{PREFIX}SECRETS_DIR"
PLUGIN_NAMES = {
    "hindsight_api_url": "hindsightApiUrl",
    "hindsight_api_key": "hindsightApiKeyRef",
    "dynamic_bank_id": "dynamicBankId",
    "bank_id": "bankId",
    "bank_granularity": "bankGranularity",
    "recall_budget": "recallBudget",
    "auto_retain": "autoRetain",
    "enabled_agent_ids": "enabledAgentIds",
}
"""Our fields that the plugin `@vectorize-io/hindsight-paperclip` has too, with its names."""


class _Together(ValueError):
    """Settings that are fine alone and wrong together; one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Settings(BaseSettings):
    """Every setting, checked. Make one with `load_settings`; times are seconds."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    hindsight_api_url: Url
    """Base URL of Hindsight's API, for example `http://localhost:8888`."""
    hindsight_api_key: ApiKey | None = None
    """Key of Hindsight's API; unset for a Hindsight without keys."""
    dynamic_bank_id: bool | None = None
    """true: one bank for each of `bank_granularity`, whatever `bank_id` says. false: the one bank `bank_id`."""
    bank_id: Bank | None = None
    """The one bank of all agents; used unless `dynamic_bank_id` is true."""
    bank_granularity: Annotated[tuple[BankPart, ...], NoDecode, Decoded] = (BankPart.COMPANY, BankPart.AGENT)
    """Parts of a bank id, in this order: `company`, `agent`, `user`."""
    user_sources: Annotated[tuple[UserSource, ...], NoDecode, Decoded, Field(min_length=1)] = (
        UserSource.CREATOR_EMAIL,
        UserSource.ORIGIN_ID,
    )
    """Where an issue's user may come from: `creatorEmail`, `originId`, `createdByUserId`."""
    user_required: bool = False
    """Skip what has no known user; false leaves the user part out of the bank id, as the plugin does."""
    recall_budget: Annotated[RecallBudget, Lower] = RecallBudget.MID
    """How thoroughly a recall searches: `low` is fastest, `high` finds most."""
    auto_retain: bool = True
    """Whether comments are retained."""
    retain_system_comments: bool = False
    """Whether Paperclip's own notices are retained too."""
    enabled_agent_ids: Annotated[tuple[Uuid, ...], NoDecode, Decoded] | None = None
    """UUIDs of the agents that have memory; unset or empty: all."""

    kafka_bootstrap_servers: Servers = "localhost:9092"
    """Brokers to start from: host:port, with commas between."""
    kafka_security_protocol: Annotated[SecurityProtocol, Upper] = SecurityProtocol.PLAINTEXT
    """`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."""
    kafka_sasl_mechanism: Annotated[SaslMechanism, Upper] | None = None
    """`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`; needed with `SASL_…`."""
    kafka_sasl_username: str | None = None
    """User name for PLAIN and SCRAM."""
    kafka_sasl_password: SecretStr | None = None
    """Password for PLAIN and SCRAM."""
    kafka_oauth_token_url: Endpoint | None = None
    """OAUTHBEARER: where tokens come from (client credentials grant)."""
    kafka_oauth_client_id: str | None = None
    """OAUTHBEARER: client id."""
    kafka_oauth_client_secret: SecretStr | None = None
    """OAUTHBEARER: client secret."""
    kafka_oauth_scope: str | None = None
    """OAUTHBEARER: scope to ask for, if any."""
    kafka_ssl_cafile: FilePath | None = None
    """PEM file of the CAs that brokers' certificates must come from; unset: the system's."""
    kafka_ssl_certfile: FilePath | None = None
    """PEM file of our client certificate."""
    kafka_ssl_keyfile: FilePath | None = None
    """PEM file of its key; unset: it stands in the certificate's file."""
    kafka_ssl_password: SecretStr | None = None
    """Password of that key."""
    kafka_client_id: Text = "paperclip-memory"
    """How we call ourselves in brokers' logs and quotas."""
    kafka_rack: Text | None = None
    """Our rack or zone (`client.rack`), to read from a replica nearby."""
    kafka_enable_idempotence: bool = True
    """Idempotent producers; false only for brokers that have none, like the demo's."""

    topic_agent_runs: Name = "paperclip.agent.runs"
    """Topic of `agent.run.*` events."""
    topic_issue_comments: Name = "paperclip.issue.comments"
    """Topic of `issue.comment.*` events."""
    topic_recalls: Name = "paperclip.memory.recalls"
    """Compacted topic of recalled memories."""
    topic_dead_letters: Name = "paperclip.memory.dead-letters"
    """Topic of records that cannot be handled."""
    topic_relay_checkpoints: Name = "paperclip.memory.relay-checkpoints"
    """Compacted topic of the relay's progress."""
    topic_partitions: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Partitions of each topic that `topics` creates."""
    topic_replication_factor: Annotated[int, Field(ge=1, le=100)] | None = None
    """Replicas of each topic that `topics` creates; unset: the broker's default."""
    group_recall: Name = "paperclip-memory-recall"
    """Consumer group of the recall lane."""
    group_retain: Name = "paperclip-memory-retain"
    """Consumer group of the retain lane."""

    paperclip_api_url: Url | None = None
    """Base URL of Paperclip's API; unset: events must carry all that is needed."""
    paperclip_api_key: ApiKey | None = None
    """Key of Paperclip's API; unset for a `local_trusted` server."""
    http_backend: Backend = HttpBackend.HTTPX
    """`httpx`, or `pyreqwest` (the extra `fast`) for many events per core."""
    http_timeout: Seconds = 15.0
    """Seconds for a whole request to Hindsight or Paperclip."""
    health_timeout: Seconds = 5.0
    """Seconds for one probe of a service's health."""

    recall_in_flight: InFlight = 32
    """Records that a worker's recall lane handles at once."""
    retain_in_flight: InFlight = 16
    """Records that a worker's retain lane handles at once."""
    recall_deadline: Seconds = 60.0
    """Seconds after which a run's start is too old to recall for."""
    forget_deadline: Seconds = 86_400.0
    """Seconds that a deletion may wait for Hindsight, before it is a dead letter."""
    max_attempts: Annotated[int, Field(ge=1, le=1000)] = 10
    """Failures of one record before it is a dead letter."""
    retry_first_delay: Seconds = 1.0
    """Longest wait in seconds before the first retry; doubles with each."""
    retry_max_delay: Seconds = 300.0
    """Longest wait in seconds before any retry."""
    drain_timeout: Seconds = 3.0
    """Seconds that a rebalance waits for records in flight."""
    shutdown_timeout: Seconds = 25.0
    """Seconds from SIGTERM to the end; keep it under the supervisor's limit."""

    tools_host: Text = "127.0.0.1"
    """Where the tools listen for agents and for Paperclip; `0.0.0.0` in containers."""
    tools_port: Port = 8765
    """Port of the tools: MCP at `/mcp`, REST at `/v1`; 0: any free one (the log says which)."""
    tools_url: Url | None = None
    """Base URL under which Paperclip reaches the tools, for `connect`; unset: made of tools_host and tools_port."""
    tools_allowed_hosts: Annotated[tuple[str, ...], NoDecode, Decoded] = ("localhost", "127.0.0.1", "[::1]")
    """Host names, each with or without a port, under which the tools may be called; `*` allows any."""
    tools_shared_secret: SharedSecret | None = None
    """Secret of Paperclip's tool connection, at least 16 characters; unset: agents call with their own keys only."""
    tools_identity_ttl: Seconds = 30.0
    """Seconds for which Paperclip's word on an agent's key is kept; a revoked key works that much longer."""
    tools_in_flight: InFlight = 32
    """Requests that the tools have open at once to each of Hindsight and Paperclip."""
    tools_runs_held: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    """Runs whose recalled memories the tools keep at hand; a run beyond is recalled live."""
    tools_metrics_port: Port = 9465
    """Port of the tools' `/metrics`, `/livez`, `/readyz`, on worker_host; 0: any free one (the log says which)."""

    relay_companies: Annotated[tuple[Uuid, ...], NoDecode, Decoded] | None = None
    """UUIDs of the companies that the relay follows; unset or empty: all that the key can see."""
    relay_start: Start = "now"
    """Where the relay begins when it is first started: `now`, `beginning`, or a time; later it goes on where it was."""
    relay_poll_interval: Seconds = 1.2
    """Seconds between two looks at a company while Paperclip's WebSocket does not say when to look."""
    relay_sweep_interval: Seconds = 10.0
    """Seconds between two looks for comments that Paperclip announces nowhere."""
    relay_websocket: bool = True
    """Whether Paperclip's WebSocket is used, to look at once; without it looks are less prompt, and nothing is lost."""
    relay_enrich: bool = True
    """Put the comment, its issue and the run into fresh events; false leaves the fetching to workers."""
    relay_in_flight: InFlight = 8
    """Requests that the relay has open at once to Paperclip."""
    relay_metrics_port: Port = 9466
    """Port of the relay's `/metrics`, `/livez`, `/readyz`, on worker_host; 0: any free one (the log says which)."""

    exporter_interval: Seconds = 15.0
    """Seconds between two looks of the exporter at Kafka, and at Hindsight."""
    exporter_max_age: Seconds = 180.0
    """Seconds for which the exporter shows what it saw last; then nothing, rather than what may be true no longer."""
    exporter_banks: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Banks, the last written to first, that the exporter looks into while Hindsight's queue is not empty."""
    exporter_port: Port = 9467
    """The exporter's port of `/metrics`, `/livez`, `/readyz`, on worker_host; 0: any free one (the log says which)."""

    worker_host: Text = "127.0.0.1"
    """Where every process serves `/metrics`, `/livez`, `/readyz`; `0.0.0.0` in containers."""
    worker_port: Port = 9464
    """The worker's port of these; 0: any free one (the log says which)."""
    log_format: Annotated[LogFormat, Lower] = LogFormat.JSON
    """`json`, or `console` for people."""
    log_level: Annotated[LogLevel, Lower] = LogLevel.INFO
    """`debug`, `info`, `warning` or `error`."""

    @model_validator(mode="before")
    @classmethod
    def _blank_is_unset(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if not isinstance(value, str) or value.strip()}

    @field_validator("bank_granularity")
    @classmethod
    def _granularity(cls, parts: tuple[BankPart, ...]) -> tuple[BankPart, ...]:
        if not parts or len(set(parts)) < len(parts):
            raise ValueError("must name at least one of company, agent, user, and each at most once")
        return parts

    @model_validator(mode="after")
    def _together(self) -> Self:
        problems = together(self)
        if problems:
            raise _Together(problems)
        return self

    def memory_policy(self) -> MemoryPolicy:
        """Return the memory policy of these settings. `bank_id` counts unless `dynamic_bank_id` is true."""
        return MemoryPolicy(
            static_bank=None if self.dynamic_bank_id else self.bank_id,
            granularity=self.bank_granularity,
            user_sources=frozenset(self.user_sources),
            user_required=self.user_required,
            enabled_agents=None if self.enabled_agent_ids is None else frozenset(self.enabled_agent_ids),
            auto_retain=self.auto_retain,
            retain_system_comments=self.retain_system_comments,
            recall_budget=self.recall_budget,
            recall_deadline=self.recall_deadline,
        )


def is_secret(field: str) -> bool:
    """Whether a field's value must never be shown."""
    return "SecretStr" in str(Settings.model_fields[field].annotation)


def load_settings(**overrides: Any) -> Settings:
    """Read and check all settings; `overrides` win over variables and files.

    Raises:
        SettingsError: one line for each problem: the field, its variable, the value (never a secret), what is allowed.
    """
    directory = os.environ.get(SECRETS_DIR, "").strip() or None
    if directory is not None and not Path(directory).is_dir():
        raise SettingsError([f"{SECRETS_DIR} = {directory!r}: must be a directory that can be read"])
    try:
        return Settings(_secrets_dir=directory, **overrides)
    except UnreadableSource as error:
        raise SettingsError([f"{SECRETS_DIR} = {directory!r}: {error} ({error.__cause__})"]) from None
    except ValidationError as error:
        raise SettingsError([line for each in error.errors() for line in _explain(each)]) from None


def nearest(word: str) -> str | None:
    """The field that a misspelt word may mean; None if none is near."""
    return next(iter(get_close_matches(word.lower(), list(Settings.model_fields), n=1, cutoff=0.7)), None)


def _explain(error: ErrorDetails) -> list[str]:
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, _Together):
        return cause.problems
    field, kind = str(error["loc"][0]), error["type"]
    if kind == "extra_forbidden":
        near = nearest(field)
        return [f"{field} is no setting" + (f" (did you mean {near}?)" if near else "")]
    if kind == "missing":
        return [f"{label(field)} is not set: {Settings.model_fields[field].description}"]
    shown = "" if is_secret(field) else f" = {_shown(error['input'])}"
    return [
        f"{label(field)}{shown}: {cause or _ALLOWED.get(kind) or error['msg'].replace('Input should be', 'must be')}"
    ]


_ALLOWED = {
    "bool_parsing": "must be true or false",
    "string_pattern_mismatch": "must be a UUID",
    "path_not_file": "must be a file that can be read",
}


def _shown(value: object) -> str:
    """A value that can stand in a log line: short, and without the password that a URL may hold."""
    text = re.sub(r"//[^/@]*@", "//…@", repr(value))
    return text if len(text) <= 100 else f"{text[:99]}…"
