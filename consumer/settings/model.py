"""All settings with their types, defaults and meanings. `consumer.settings.validation` loads and checks them."""

from typing import Annotated, Any

from pydantic import Field, FilePath, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from consumer.memory.policy import BankPart, MemoryPolicy, RecallBudget, UserSource
from consumer.settings.types import (
    PREFIX,
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
from schemas.paperclip import Uuid

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
"""Settings that the plugin `@vectorize-io/hindsight-paperclip` has too, with its names."""


class Settings(BaseSettings):
    """Every setting. Times are in seconds. `load_settings` also checks that they fit together."""

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
    """true: build bank ids from `bank_granularity`, even if `bank_id` is set. false: use `bank_id` for all memories."""
    bank_id: Bank | None = None
    """One bank for all agents; used unless `dynamic_bank_id` is true."""
    bank_granularity: Annotated[tuple[BankPart, ...], NoDecode, Decoded] = (BankPart.COMPANY, BankPart.AGENT)
    """Parts of a bank id, in this order: `company`, `agent`, `user`."""
    user_sources: Annotated[tuple[UserSource, ...], NoDecode, Decoded, Field(min_length=1)] = (
        UserSource.CREATOR_EMAIL,
        UserSource.ORIGIN_ID,
    )
    """Fields that can name an issue's user: `creatorEmail`, `originId`, `createdByUserId`."""
    user_required: bool = False
    """Skip events without a known user; false omits the user part of the bank id, as the plugin does."""
    recall_budget: Annotated[RecallBudget, Lower] = RecallBudget.MID
    """How thoroughly a recall searches: `low` is the fastest, `high` finds the most."""
    auto_retain: bool = True
    """Whether comments are retained."""
    retain_system_comments: bool = False
    """Whether Paperclip's own notices are retained too."""
    enabled_agent_ids: Annotated[tuple[Uuid, ...], NoDecode, Decoded] | None = None
    """UUIDs of the agents that have memory; unset or empty: all."""

    kafka_bootstrap_servers: Servers = "localhost:9092"
    """Bootstrap brokers, `host:port` separated by commas."""
    kafka_security_protocol: Annotated[SecurityProtocol, Upper] = SecurityProtocol.PLAINTEXT
    """`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."""
    kafka_sasl_mechanism: Annotated[SaslMechanism, Upper] | None = None
    """`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`; needed with `SASL_…`."""
    kafka_sasl_username: str | None = None
    """User name for PLAIN and SCRAM."""
    kafka_sasl_password: SecretStr | None = None
    """Password for PLAIN and SCRAM."""
    kafka_oauth_token_url: Endpoint | None = None
    """OAUTHBEARER: token endpoint (client credentials grant)."""
    kafka_oauth_client_id: str | None = None
    """OAUTHBEARER: client id."""
    kafka_oauth_client_secret: SecretStr | None = None
    """OAUTHBEARER: client secret."""
    kafka_oauth_scope: str | None = None
    """OAUTHBEARER: scope to request, if any."""
    kafka_ssl_cafile: FilePath | None = None
    """PEM file of trusted CAs; unset: the system's."""
    kafka_ssl_certfile: FilePath | None = None
    """PEM file of our client certificate."""
    kafka_ssl_keyfile: FilePath | None = None
    """PEM file of the certificate's key; unset: the certificate's file holds it."""
    kafka_ssl_password: SecretStr | None = None
    """Password of that key."""
    kafka_client_id: Text = "paperclip-memory"
    """Client id in brokers' logs and quotas."""
    kafka_rack: Text | None = None
    """Rack or zone (`client.rack`), to read from a nearby replica."""
    kafka_enable_idempotence: bool = True
    """Idempotent producers; false only for brokers without them, such as the demo's."""

    topic_agent_runs: Name = "paperclip.agent.runs"
    """Topic of `agent.run.*` events."""
    topic_issue_comments: Name = "paperclip.issue.comments"
    """Topic of `issue.comment.*` events."""
    topic_recalls: Name = "paperclip.memory.recalls"
    """Compacted topic of recalled memories."""
    topic_dead_letters: Name = "paperclip.memory.dead-letters"
    """Topic of records that cannot be handled."""
    topic_relay_checkpoints: Name = "paperclip.memory.relay-checkpoints"
    """Compacted topic of the relay's checkpoints."""
    topic_partitions: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Partitions of each topic that `topics` creates."""
    topic_replication_factor: Annotated[int, Field(ge=1, le=100)] | None = None
    """Replicas of each topic that `topics` creates; unset: the broker's default."""
    group_recall: Name = "paperclip-memory-recall"
    """Consumer group of the recall lane."""
    group_retain: Name = "paperclip-memory-retain"
    """Consumer group of the retain lane."""

    paperclip_api_url: Url | None = None
    """Base URL of Paperclip's API; unset: events must carry the objects that handlers need."""
    paperclip_api_key: ApiKey | None = None
    """Key of Paperclip's API; unset for a `local_trusted` server."""
    http_backend: Backend = HttpBackend.HTTPX
    """`httpx`, or `pyreqwest` (the extra `fast`) for many events per core."""
    http_timeout: Seconds = 15.0
    """Seconds for a whole request to Hindsight or Paperclip."""
    health_timeout: Seconds = 5.0
    """Seconds for one health probe of a service."""

    recall_in_flight: InFlight = 32
    """Maximum records in flight in a worker's recall lane."""
    retain_in_flight: InFlight = 16
    """Maximum records in flight in a worker's retain lane."""
    recall_deadline: Seconds = 60.0
    """Age in seconds at which a run's start is skipped instead of recalled for."""
    forget_deadline: Seconds = 86_400.0
    """Age in seconds at which a waiting deletion becomes a dead letter, if it was tried for an hour."""
    max_attempts: Annotated[int, Field(ge=1, le=1000)] = 10
    """Failures of a record before it becomes a dead letter."""
    retry_first_delay: Seconds = 1.0
    """Maximum seconds before the first retry; doubles with each further one."""
    retry_max_delay: Seconds = 300.0
    """Maximum seconds before any retry."""
    drain_timeout: Seconds = 3.0
    """Seconds that a rebalance waits for records in flight."""
    shutdown_timeout: Seconds = 25.0
    """Seconds from SIGTERM to the forced end; keep it below the supervisor's limit."""

    tools_host: Text = "127.0.0.1"
    """Address on which the tools listen; `0.0.0.0` in containers."""
    tools_port: Port = 8765
    """Port of the tools: MCP at `/mcp`, REST at `/v1`; 0: any free port, which the log names."""
    tools_url: Url | None = None
    """Base URL under which Paperclip reaches the tools, for `connect`; unset: built from tools_host and tools_port."""
    tools_allowed_hosts: Annotated[tuple[str, ...], NoDecode, Decoded] = ("localhost", "127.0.0.1", "[::1]")
    """Host names, each with or without a port, that calls to the tools may use; `*` allows any."""
    tools_shared_secret: SharedSecret | None = None
    """Secret of Paperclip's tool connection, at least 16 characters; unset: agents call with their own keys only."""
    tools_identity_ttl: Seconds = 30.0
    """Seconds that Paperclip's answer about an agent's key is cached; a revoked key works that much longer."""
    tools_in_flight: InFlight = 32
    """Maximum requests in flight from the tools to each of Hindsight and Paperclip."""
    tools_runs_held: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    """Runs whose recalled memories the tools cache; for others they recall live."""
    tools_metrics_port: Port = 9465
    """Port of the tools' `/metrics`, `/livez`, `/readyz`, on worker_host; 0: any free port, which the log names."""

    relay_companies: Annotated[tuple[Uuid, ...], NoDecode, Decoded] | None = None
    """UUIDs of the companies that the relay follows; unset or empty: all that the key can read."""
    relay_start: Start = "now"
    """Where the relay first starts: `now`, `beginning`, or a time; later it continues from its checkpoint."""
    relay_poll_interval: Seconds = 1.2
    """Seconds between polls of a company when Paperclip's WebSocket triggers none."""
    relay_sweep_interval: Seconds = 10.0
    """Seconds between sweeps for comments that Paperclip does not announce."""
    relay_websocket: bool = True
    """Poll at once when Paperclip's WebSocket signals a change; without it events arrive later, and none is lost."""
    relay_enrich: bool = True
    """Embed the comment, its issue and the run in fresh events; false leaves it to workers to fetch them."""
    relay_in_flight: InFlight = 8
    """Maximum requests in flight from the relay to Paperclip."""
    relay_metrics_port: Port = 9466
    """Port of the relay's `/metrics`, `/livez`, `/readyz`, on worker_host; 0: any free port, which the log names."""

    exporter_interval: Seconds = 15.0
    """Seconds between polls of Kafka and of Hindsight by the exporter."""
    exporter_max_age: Seconds = 180.0
    """Seconds that the exporter serves its last snapshot; after that it serves no values instead of outdated ones."""
    exporter_banks: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Banks that the exporter inspects while Hindsight's queue is not empty, the most recently written first."""
    exporter_port: Port = 9467
    """Port of the exporter's `/metrics`, `/livez`, `/readyz`, on worker_host; 0: any free port, which the log names."""

    worker_host: Text = "127.0.0.1"
    """Address on which every process serves `/metrics`, `/livez`, `/readyz`; `0.0.0.0` in containers."""
    worker_port: Port = 9464
    """Port of the worker's `/metrics`, `/livez`, `/readyz`, on worker_host; 0: any free port, which the log names."""
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
