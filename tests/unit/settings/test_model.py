"""Settings: where they come from, what is refused and in which words, and the policy they make."""

import importlib.util
import os
import subprocess
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from pydantic import ValidationError

from consumer.errors import SettingsError
from consumer.memory.policy import BankPart, RecallBudget, UserSource
from consumer.settings.model import PLUGIN_NAMES, Settings
from consumer.settings.reference import settings_help, unknown_variables
from consumer.settings.types import PREFIX, SaslMechanism, SecurityProtocol, variable
from consumer.settings.validation import SECRETS_DIR, is_secret, load_settings
from scripts.reference_tables import settings_table

AGENT = "d5add4c6-9a97-4ddd-9a15-33dcc8c6607c"
URL = "http://localhost:8888"
SASL = {
    "kafka_security_protocol": "SASL_SSL",
    "kafka_sasl_mechanism": "SCRAM-SHA-512",
    "kafka_sasl_username": "ada",
    "kafka_sasl_password": "pw",
}
OAUTH = {
    "kafka_security_protocol": "SASL_SSL",
    "kafka_sasl_mechanism": "OAUTHBEARER",
    "kafka_oauth_token_url": "https://id.example/token",
    "kafka_oauth_client_id": "us",
    "kafka_oauth_client_secret": "pw",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the caller's is seen; Hindsight's URL is set."""
    for name in [name for name in os.environ if name.upper().startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PAPERCLIP_MEMORY_HINDSIGHT_API_URL", URL)


def problems(**overrides: object) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(**overrides)
    return caught.value.problems


def test_defaults_of_all_settings() -> None:
    settings = load_settings()
    assert (settings.topic_agent_runs, settings.topic_issue_comments) == (
        "paperclip.agent.runs",
        "paperclip.issue.comments",
    )
    assert settings.topic_recalls == "paperclip.memory.recalls"
    assert settings.topic_dead_letters == "paperclip.memory.dead-letters"
    assert settings.topic_relay_checkpoints == "paperclip.memory.relay-checkpoints"
    assert (settings.group_recall, settings.group_retain) == ("paperclip-memory-recall", "paperclip-memory-retain")
    assert (settings.recall_in_flight, settings.retain_in_flight, settings.topic_partitions) == (32, 16, 8)
    assert (settings.recall_deadline, settings.forget_deadline, settings.drain_timeout) == (60, 24 * 3600, 3)
    assert (settings.max_attempts, settings.retry_first_delay, settings.retry_max_delay) == (10, 1, 300)
    assert (settings.http_timeout, settings.health_timeout) == (15, 5)
    assert settings.kafka_security_protocol is SecurityProtocol.PLAINTEXT
    assert settings.kafka_enable_idempotence
    assert settings.worker_host == "127.0.0.1"
    assert settings.paperclip_api_url is None


def test_default_policy_is_the_plugins() -> None:
    policy = load_settings().memory_policy()
    assert policy.static_bank is None
    assert policy.granularity == (BankPart.COMPANY, BankPart.AGENT)
    assert policy.user_sources == {UserSource.CREATOR_EMAIL, UserSource.ORIGIN_ID}
    assert policy.recall_budget is RecallBudget.MID
    assert (policy.auto_retain, policy.retain_system_comments, policy.user_required) == (True, False, False)
    assert policy.enabled_agents is None


def test_memory_policy_comes_from_the_settings() -> None:
    policy = load_settings(
        bank_granularity=["user", "agent"],
        user_sources="createdByUserId",
        user_required=True,
        recall_budget="High",
        auto_retain=False,
        retain_system_comments=True,
        enabled_agent_ids=[AGENT],
        recall_deadline=5,
    ).memory_policy()
    assert policy.granularity == (BankPart.USER, BankPart.AGENT)
    assert policy.user_sources == {UserSource.CREATED_BY_USER_ID}
    assert policy.recall_budget is RecallBudget.HIGH
    assert (policy.user_required, policy.auto_retain, policy.retain_system_comments) == (True, False, True)
    assert policy.enabled_agents == frozenset({AGENT})
    assert policy.recall_deadline == 5


@pytest.mark.parametrize(
    ("given", "static"),
    [
        ({"bank_id": "spool-farm"}, "spool-farm"),
        ({"bank_id": "spool-farm", "dynamic_bank_id": False}, "spool-farm"),
        ({"bank_id": "spool-farm", "dynamic_bank_id": True}, None),
        ({"bank_id": "  shared-bank  "}, "shared-bank"),
        ({"bank_id": "   "}, None),
        ({"bank_id": "記憶::a@b+c"}, "記憶::a@b+c"),
        ({}, None),
    ],
)
def test_bank_id_is_static_unless_dynamic_bank_id_is_true(given: dict[str, object], static: str | None) -> None:
    assert load_settings(**given).memory_policy().static_bank == static


@pytest.mark.parametrize("bank", ["a/b", "_a", "a\nb", "ä" * 97, "a\udc80"])
def test_bank_id_that_hindsight_cannot_address_is_refused(bank: str) -> None:
    assert problems(bank_id=bank)[0].startswith("bank_id (PAPERCLIP_MEMORY_BANK_ID) = ")


@pytest.mark.parametrize("text", ["agent,user", " agent , user,", '["agent", "user"]', ' ["agent","user"]'])
def test_lists_are_read_as_words_or_json(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PAPERCLIP_MEMORY_BANK_GRANULARITY", text)
    assert load_settings().bank_granularity == (BankPart.AGENT, BankPart.USER)


def test_agents_in_a_variable_are_lower_cased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPERCLIP_MEMORY_ENABLED_AGENT_IDS", f"{AGENT.upper()},{AGENT}")
    assert load_settings().memory_policy().enabled_agents == frozenset({AGENT})


def test_an_empty_list_of_agents_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPERCLIP_MEMORY_ENABLED_AGENT_IDS", "[]")
    assert load_settings().memory_policy().is_enabled("anyone")


@pytest.mark.parametrize("field", sorted(Settings.model_fields))
def test_a_blank_variable_is_unset(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    expected = load_settings().model_copy()
    monkeypatch.setenv(variable(field), "  ")
    if field == "hindsight_api_url":
        assert len(problems()) == 1
    else:
        assert load_settings() == expected


def test_override_beats_variable_beats_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "paperclip_memory_hindsight_api_key").write_text("from file\n")
    (tmp_path / "PAPERCLIP_MEMORY_BANK_ID").write_text("from-file\n")
    (tmp_path / "paperclip_memory_kafka_rack").write_text("from-file\n")
    monkeypatch.setenv(SECRETS_DIR, str(tmp_path))
    monkeypatch.setenv("PAPERCLIP_MEMORY_BANK_ID", "from-variable")
    monkeypatch.setenv("PAPERCLIP_MEMORY_KAFKA_CLIENT_ID", "from-variable")
    settings = load_settings(kafka_client_id="override")
    assert settings.hindsight_api_key is not None
    assert settings.hindsight_api_key.get_secret_value() == "from file"
    assert (settings.kafka_rack, settings.bank_id, settings.kafka_client_id) == (
        "from-file",
        "from-variable",
        "override",
    )


def test_missing_secrets_directory_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(SECRETS_DIR, str(tmp_path / "gone"))
    assert problems()[0].startswith("PAPERCLIP_MEMORY_SECRETS_DIR = ")


def test_binary_secrets_file_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "paperclip_memory_hindsight_api_key").write_bytes(b"hunter2\xff")
    monkeypatch.setenv(SECRETS_DIR, str(tmp_path))
    (line,) = problems()
    assert line.startswith(f"{SECRETS_DIR} = ")
    assert '"hindsight_api_key"' in line
    assert "hunter2" not in line


def test_token_endpoint_is_kept_unchanged() -> None:
    url = "https://id.example/token/?tenant=1"
    assert load_settings(**OAUTH | {"kafka_oauth_token_url": url}).kafka_oauth_token_url == url
    assert problems(**OAUTH | {"kafka_oauth_token_url": "id.example/token"})[0].startswith("kafka_oauth_token_url (")


def test_hindsight_url_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAPERCLIP_MEMORY_HINDSIGHT_API_URL")
    (line,) = problems()
    assert line.startswith("hindsight_api_url (PAPERCLIP_MEMORY_HINDSIGHT_API_URL) is not set: ")


def test_urls_are_normalised() -> None:
    settings = load_settings(hindsight_api_url=" https://h.example/base// ", paperclip_api_url="http://127.0.0.1:3100/")
    assert settings.hindsight_api_url == "https://h.example/base"
    assert settings.paperclip_api_url == "http://127.0.0.1:3100"


@pytest.mark.parametrize("field", sorted(Settings.model_fields))
@pytest.mark.parametrize(
    "value",
    ["https://ada:hunter2@h.example", "https://ada:hun@ter/hunter2@h", "x y,ada:hunter2@h:9092", "//a:hunter2@"],
)
def test_no_error_prints_the_password_of_a_url(field: str, value: str) -> None:
    with suppress(SettingsError):
        load_settings(**{field: value})
        return
    assert "hunter2" not in str(problems(**{field: value}))


@pytest.mark.parametrize("url", ["localhost:8888", "ftp://h", "http://", "http://h:99999", "http://h:x"])
def test_invalid_url_is_refused(url: str) -> None:
    (line,) = problems(hindsight_api_url=url)
    assert line.startswith("hindsight_api_url (PAPERCLIP_MEMORY_HINDSIGHT_API_URL) = ")
    assert ": must be an absolute http:// or https:// URL" in line


def test_password_in_a_url_is_refused_and_not_shown() -> None:
    (line,) = problems(hindsight_api_url="https://ada:hunter2@h.example")
    assert " = 'https://…@h.example': must be " in line
    assert line.endswith(" URL, without user name and password")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("recall_budget", "max", "= 'max': must be 'low', 'mid' or 'high'"),
        ("bank_granularity", [], "= []: must name at least one of company, agent, user, and each at most once"),
        ("bank_granularity", "company,company", "each at most once"),
        ("bank_granularity", "team", "= 'team': must be 'company', 'agent' or 'user'"),
        ("bank_granularity", "[company", "must be a JSON list, or words separated by commas"),
        ("user_sources", [], "= []: "),
        ("auto_retain", "sometimes", "= 'sometimes': must be true or false"),
        ("enabled_agent_ids", ["ada"], "= 'ada': must be a UUID"),
        ("recall_in_flight", "0", "= '0': must be greater than or equal to 1"),
        ("retain_in_flight", "many", "= 'many': must be a valid integer"),
        ("recall_deadline", "inf", "= 'inf': must be a finite number"),
        ("http_timeout", "0", "= '0': must be greater than 0"),
        ("topic_agent_runs", "a topic", "= 'a topic': must be 1 to 249 letters of A-Z a-z 0-9 . _ -"),
        ("topic_agent_runs", "..", "= '..': must be 1 to 249"),
        ("kafka_bootstrap_servers", "kafka://h:9092", "without a scheme"),
        ("kafka_bootstrap_servers", "a:1,,b:2", "must be host:port"),
        ("kafka_ssl_cafile", "/no/such/file.pem", "= '/no/such/file.pem': must be a file that can be read"),
        ("worker_port", "65536", "= '65536': must be less than or equal to 65535"),
        ("log_format", "xml", "= 'xml': must be 'json' or 'console'"),
    ],
)
def test_bad_value_names_field_value_and_what_is_allowed(field: str, value: object, says: str) -> None:
    (line,) = problems(**{field: value})
    assert line.startswith(f"{field} ({variable(field)}) = ")
    assert says in line


def test_all_problems_are_reported_at_once() -> None:
    lines = problems(recall_budget="max", worker_port=-1, hindsight_api_url="x")
    assert [line.split()[0] for line in lines] == ["hindsight_api_url", "recall_budget", "worker_port"]


def test_long_value_is_cut_in_the_error() -> None:
    (line,) = problems(recall_budget="x" * 10_000)
    assert len(line) < 250


def test_unknown_override_suggests_the_nearest_setting() -> None:
    assert problems(recall_budgett="low") == ["unknown setting recall_budgett (did you mean recall_budget?)"]


@pytest.mark.parametrize("field", [name for name in Settings.model_fields if is_secret(name)])
def test_errors_never_print_secrets(field: str) -> None:
    assert "hunter2" not in problems(**{field: ["hunter2"]})[0]
    tls = {"kafka_ssl_certfile": __file__, "kafka_ssl_keyfile": __file__}
    settings = load_settings(**SASL | tls | {field: "hunter2-hunter2-hunter2"})
    assert getattr(settings, field).get_secret_value() == "hunter2-hunter2-hunter2"
    assert "hunter2" not in repr(settings) + str(settings.model_dump()) + settings.model_dump_json()


def test_secret_fields_are_known_by_their_type() -> None:
    assert {name for name in Settings.model_fields if is_secret(name)} == {
        "hindsight_api_key",
        "paperclip_api_key",
        "kafka_sasl_password",
        "kafka_oauth_client_secret",
        "kafka_ssl_password",
        "tools_shared_secret",
    }


@pytest.mark.parametrize(
    "secret", ["too-short", "with blanks in it, so it is none", "läßt-sich-nicht-senden", "x" * 1025]
)
def test_shared_secret_must_fit_a_header_and_have_16_characters(secret: str) -> None:
    (line,) = problems(tools_shared_secret=secret)
    assert line.endswith(": must be 16 to 1024 visible ASCII characters, without blanks")
    assert secret not in line


def test_dynamic_bank_id_false_requires_bank_id() -> None:
    for given in ({}, {"bank_id": "  "}):
        (line,) = problems(dynamic_bank_id=False, **given)
        assert line.startswith("bank_id (PAPERCLIP_MEMORY_BANK_ID) is not set")


@pytest.mark.parametrize("missing", ["kafka_sasl_mechanism", "kafka_sasl_username", "kafka_sasl_password"])
def test_missing_sasl_settings_are_named(missing: str) -> None:
    load_settings(**SASL)
    (line,) = problems(**{name: value for name, value in SASL.items() if name != missing})
    assert line.startswith(f"{missing} ({variable(missing)}) is not set: ")


@pytest.mark.parametrize("missing", ["kafka_oauth_token_url", "kafka_oauth_client_id", "kafka_oauth_client_secret"])
def test_missing_oauth_settings_are_named(missing: str) -> None:
    assert load_settings(**OAUTH).kafka_sasl_mechanism is SaslMechanism.OAUTHBEARER
    (line,) = problems(**{name: value for name, value in OAUTH.items() if name != missing})
    assert line.startswith(f"{missing} ({variable(missing)}) is not set: ")


def test_credentials_without_sasl_are_refused() -> None:
    lines = problems(**SASL | {"kafka_security_protocol": "SSL"})
    assert [line.split()[0] for line in lines] == ["kafka_sasl_mechanism", "kafka_sasl_username", "kafka_sasl_password"]


def test_tls_files_without_tls_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.touch()
    assert load_settings(kafka_security_protocol="ssl", kafka_ssl_cafile=file).kafka_ssl_cafile == file
    assert problems(kafka_ssl_cafile=file)[0].startswith("kafka_ssl_cafile (")
    lines = problems(kafka_security_protocol="SSL", kafka_ssl_keyfile=file)
    assert lines[0].startswith("kafka_ssl_certfile (")


def test_topic_and_group_names_must_differ() -> None:
    assert problems(topic_recalls="paperclip.agent.runs")[0].startswith("topic_recalls (")
    assert problems(group_retain="paperclip-memory-recall")[0].startswith("group_retain (")


def test_smaller_limit_must_not_exceed_the_larger() -> None:
    assert problems(drain_timeout=26)[0].endswith(" = 26: must not exceed shutdown_timeout = 25")
    assert problems(retry_first_delay=301)[0].endswith(" = 301: must not exceed retry_max_delay = 300")


def test_backend_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "pyreqwest" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    assert "pip install 'paperclip-memory[fast]'" in problems(http_backend="pyreqwest")[0]


def test_settings_are_immutable() -> None:
    settings = load_settings()
    with pytest.raises(ValidationError):
        settings.auto_retain = False  # type: ignore[misc]


def test_unknown_variables_are_named_with_the_nearest_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unknown_variables() == []
    monkeypatch.setenv("PAPERCLIP_MEMORY_RECALL_BUGDET", "low")
    monkeypatch.setenv("paperclip_memory_auto_retain", "true")
    monkeypatch.setenv("PAPERCLIP_MEMORY_QQ", "1")
    assert unknown_variables() == [
        "unknown setting PAPERCLIP_MEMORY_QQ",
        "unknown setting PAPERCLIP_MEMORY_RECALL_BUGDET (did you mean PAPERCLIP_MEMORY_RECALL_BUDGET?)",
    ]


def test_unknown_files_are_named_with_the_nearest_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("paperclip_memory_bank_id", "hindsight_api_key", "paperclip_memory_bank_idd", "tls.crt", "..data"):
        (tmp_path / name).touch()
    monkeypatch.setenv(SECRETS_DIR, str(tmp_path))
    assert unknown_variables() == [
        f"unknown setting: file hindsight_api_key in {SECRETS_DIR} (did you mean PAPERCLIP_MEMORY_HINDSIGHT_API_KEY?)",
        f"unknown setting: file paperclip_memory_bank_idd in {SECRETS_DIR} (did you mean PAPERCLIP_MEMORY_BANK_ID?)",
    ]


@pytest.mark.parametrize("field", sorted(Settings.model_fields))
def test_every_setting_is_explained(field: str) -> None:
    description = Settings.model_fields[field].description
    assert description
    assert f"| `{field}` | `{variable(field)}` |" in settings_table()
    assert f"  {variable(field)}" in settings_help()


def test_plugin_names_belong_to_existing_settings() -> None:
    assert set(PLUGIN_NAMES) <= set(Settings.model_fields)
    assert "| `hindsightApiKeyRef` |" in settings_table()


def test_docs_contain_the_generated_table() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "settings.md").read_text(encoding="utf-8")
    assert settings_table() in page


def test_reading_settings_imports_no_kafka_and_no_client() -> None:
    libraries = {"aiokafka", "httpx", "aiohttp", "pyreqwest"}
    code = f"import sys, consumer.settings.validation; sys.exit(bool({libraries} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_line_break_at_the_end_of_a_key_is_removed() -> None:
    key = load_settings(hindsight_api_key="abc\n").hindsight_api_key
    assert key is not None
    assert key.get_secret_value() == "abc"


def test_key_that_a_header_cannot_carry_is_refused_without_printing_it() -> None:
    (problem,) = problems(paperclip_api_key="naïve-key")
    assert problem.startswith("paperclip_api_key (PAPERCLIP_MEMORY_PAPERCLIP_API_KEY): must be printable ASCII")
    assert "naïve" not in problem


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Now", "now"),
        (" beginning ", "beginning"),
        ("2026-11-30T10:00:00Z", "2026-11-30T10:00:00+00:00"),
        ("2026-11-30", "2026-11-30T00:00:00"),
    ],
)
def test_relay_start_is_normalised(value: str, expected: str) -> None:
    assert load_settings(hindsight_api_url=URL, relay_start=value).relay_start == expected


def test_relay_start_that_is_not_a_time_is_refused() -> None:
    with pytest.raises(SettingsError, match="must be now, beginning, or a time"):
        load_settings(hindsight_api_url=URL, relay_start="yesterday")
