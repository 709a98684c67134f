import json
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest
import structlog

from consumer.commands.check import to_json, to_text
from consumer.commands.paperclip_probes import TESTED, read_paperclip
from consumer.commands.probe import Mark, Probe, log_probes, passed
from consumer.commands.probes import probe_all, settings_probes
from consumer.errors import DeadLetterReason, DownKind, Permanent, SettingsError, Transient, Upstream, UpstreamDown
from consumer.hindsight.client import HindsightClient
from consumer.http.transport import ConnectError, Request, Response, Transport
from consumer.kafka.topics import TopicReport, TopicState
from consumer.paperclip.client import PaperclipClient
from consumer.paperclip.models import Identity, KeyKind
from consumer.settings.model import Settings
from consumer.settings.plugin_import import PACKAGE
from consumer.settings.validation import load_settings

HINDSIGHT_URL = "http://hindsight.example.org:8888"
PAPERCLIP_URL = "http://paperclip.example.org:3100"
BOARD = Identity(KeyKind.BOARD, ("c-1", "c-2"))


Errors = dict[str, Exception]


class Service:
    """A service whose calls raise what they are told to."""

    def __init__(self, version: str = "1.1.0", identity: Identity = BOARD, errors: Errors | None = None) -> None:
        self._version = version
        self._identity = identity
        self._errors = errors or {}
        self.asked: list[str] = []
        self.unauditable: set[str] = set()
        self.installed: list[dict[str, Any]] = []
        self.key_end: float | None = None
        self.connections: list[dict[str, Any]] = []

    async def health(self) -> str:
        self._ask("health")
        return self._version

    async def authenticate(self) -> Any:
        self._ask("authenticate")
        return self._identity

    async def version(self) -> str:
        self._ask("version")
        return self._version

    async def can_read_audit_feed(self, company_id: str) -> bool:
        return company_id not in self.unauditable

    async def plugins(self) -> list[dict[str, Any]]:
        return self.installed

    async def key_expires_at(self) -> float | None:
        self._ask("key")
        return self.key_end

    async def tool_connections(self, company_id: str) -> list[dict[str, Any]]:
        return self.connections if company_id == "c-1" else []

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if what in self._errors:
            raise self._errors[what]


def settings(**fields: Any) -> Settings:
    given = {"hindsight_api_key": "sesame", "paperclip_api_url": PAPERCLIP_URL, "paperclip_api_key": "sesame"}
    return Settings(hindsight_api_url=HINDSIGHT_URL, **(given | fields))


def kafka_with(*reports: TopicReport) -> Callable[[Settings], Any]:
    async def survey(_settings: Settings) -> list[TopicReport]:
        return list(reports)

    return survey


def kafka_that_raises(error: Exception) -> Callable[[Settings], Any]:
    async def survey(_settings: Settings) -> list[TopicReport]:
        raise error

    return survey


FINE = kafka_with(TopicReport("runs", TopicState.EXISTS), TopicReport("comments", TopicState.EXISTS))


async def probed(
    hindsight: Any = None, paperclip: Any = None, survey: Callable[[Settings], Any] = FINE, **fields: Any
) -> dict[str, Probe]:
    probes = await probe_all(settings(**fields), hindsight or Service(), paperclip or Service(TESTED[-1]), survey)
    assert len({probe.name for probe in probes}) == len(probes)
    return {probe.name: probe for probe in probes}


# The plugin's vectors (plugin-vectors.json, "check")


def test_missing_hindsight_api_url_fails_and_names_the_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAPERCLIP_MEMORY_HINDSIGHT_API_URL", raising=False)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    [probe] = settings_probes(caught.value)
    assert probe.mark is Mark.FAILED
    assert "hindsight_api_url (PAPERCLIP_MEMORY_HINDSIGHT_API_URL)" in probe.line


async def test_unreachable_hindsight_fails_and_names_the_url() -> None:
    async def refused(request: Request) -> Response:
        raise ConnectError("connection refused")

    probe = (await probed(client(refused)))["hindsight"]
    assert probe.mark is Mark.FAILED
    assert HINDSIGHT_URL in probe.line
    assert "connection refused" in probe.line
    assert "hindsight_api_url (PAPERCLIP_MEMORY_HINDSIGHT_API_URL)" in probe.fix


async def test_reachable_hindsight_passes() -> None:
    async def answers(request: Request) -> Response:
        path = request.url.removeprefix(HINDSIGHT_URL)
        if path == "/health":
            return Response(200, {}, b'{"status":"healthy","database":"connected"}')
        if path == "/version":
            return Response(200, {}, b'{"api_version":"1.1.0"}')
        return Response(404, {}, b'{"detail":"Bank \'paperclip-memory-check\' not found"}')

    probe = (await probed(client(answers)))["hindsight"]
    assert probe == Probe("hindsight", Mark.OK, f"{HINDSIGHT_URL} answers and accepts our key; version 1.1.0")


def client(send: Transport) -> HindsightClient:
    return HindsightClient(send, HINDSIGHT_URL, key="sesame", user_agent="paperclip-memory/test")


# Beyond the vectors


async def test_all_probes_pass_with_one_line_each() -> None:
    probes = await probe_all(settings(), Service(), Service(TESTED[-1]), FINE)
    assert to_text(probes).splitlines() == [
        "✓ settings: complete",
        "✓ kafka: localhost:9092 answers",
        "✓ topics: all 2 exist",
        f"✓ hindsight: {HINDSIGHT_URL} answers and accepts our key; version 1.1.0",
        (
            f"✓ paperclip: {PAPERCLIP_URL} answers and accepts our key; release {TESTED[-1]}; "
            "the key is a board member's; companies: 2"
        ),
    ]
    assert passed(probes)


async def test_probes_authenticate_beside_health() -> None:
    hindsight, paperclip = Service(), Service()
    await probed(hindsight, paperclip)
    assert hindsight.asked == ["health", "authenticate", "version"]
    assert paperclip.asked[:2] == ["health", "authenticate"]


ERRORS = [
    (lambda up: UpstreamDown("answered 401", upstream=up, kind=DownKind.REFUSED), "set {name}_api_key"),
    (lambda up: UpstreamDown("refused", upstream=up, kind=DownKind.UNREACHABLE), "start it there, or correct {name}"),
    (lambda up: Transient("answered 503", upstream=up), "look at its log"),
    (
        lambda up: Permanent("answered 307", upstream=up, reason=DeadLetterReason.REJECTED),
        "another server seems to answer",
    ),
]


@pytest.mark.parametrize("call", ["health", "authenticate"])
@pytest.mark.parametrize(("error", "fix"), ERRORS)
@pytest.mark.parametrize("name", ["hindsight", "paperclip"])
async def test_failed_probe_names_the_error_and_a_fix(
    name: str, error: Callable[[Upstream], Exception], fix: str, call: str
) -> None:
    raised = error(Upstream(name))
    failing = Service(TESTED[-1], errors={call: raised})
    probes = await (probed(failing) if name == "hindsight" else probed(paperclip=failing))
    probe = probes.pop(name)
    assert (probe.mark, probe.text) == (Mark.FAILED, str(raised))
    assert fix.format(name=name) in probe.fix
    assert all(other.mark is Mark.OK for other in probes.values())


@pytest.mark.parametrize("name", ["hindsight", "paperclip"])
async def test_a_refusal_without_a_key_says_that_none_is_set(name: str) -> None:
    refusal = UpstreamDown("refuses our key with 401", upstream=Upstream(name), kind=DownKind.REFUSED)
    failing = Service(errors={"authenticate": refusal})
    without_key: dict[str, Any] = {f"{name}_api_key": None}
    probes = await (probed(failing, **without_key) if name == "hindsight" else probed(paperclip=failing, **without_key))
    assert probes[name].mark is Mark.FAILED
    assert probes[name].text == "requires a key, and none is set"
    assert probes[name].fix.startswith(f"set {name}_api_key (PAPERCLIP_MEMORY_{name.upper()}_API_KEY)")


async def test_key_that_may_not_read_the_probe_bank_is_a_warning() -> None:
    service: Any = Service()
    service.authenticate = AsyncMock(return_value=False)
    probe = (await probed(service))["hindsight"]
    assert probe.mark is Mark.WARNED
    assert "may not read the bank" in probe.text
    assert "wrong" not in probe.fix


@pytest.mark.parametrize("version", ["0.8.5", "0.8", "0.7.12", "unknown"])
async def test_old_hindsight_is_a_warning(version: str) -> None:
    probe = (await probed(Service(version=version)))["hindsight"]
    assert probe.mark is Mark.WARNED
    assert f"version {version}: before 0.8.6 Hindsight processes a repeated comment again" in probe.text
    assert "0.8.6" in probe.fix


@pytest.mark.parametrize("version", ["0.8.6", "0.8.6rc1", "0.10.0", "1.0", "v2.1.0"])
async def test_newer_hindsight_is_not_a_warning(version: str) -> None:
    assert (await probed(Service(version=version)))["hindsight"].mark is Mark.OK


async def test_a_hindsight_without_a_version_counts_as_old() -> None:
    service = Service(errors={"version": Transient("answered 404", upstream=Upstream.HINDSIGHT)})
    assert "version unknown" in (await probed(service))["hindsight"].text


async def test_probe_says_that_no_key_is_needed() -> None:
    probes = await probed(hindsight_api_key=None, paperclip_api_key=None)
    assert "answers and needs no key" in probes["hindsight"].text
    assert "answers and needs no key" in probes["paperclip"].text


async def test_missing_paperclip_names_what_is_lost() -> None:
    probes = await probe_all(settings(paperclip_api_url=None, paperclip_api_key=None), Service(), None, FINE)
    probe = probes[-1]
    assert probe.mark is Mark.ABSENT
    assert probe.line.startswith("\N{EN DASH} paperclip: not configured: ")
    assert "first 120 characters" in probe.text
    assert "paperclip_api_url (PAPERCLIP_MEMORY_PAPERCLIP_API_URL)" in probe.fix
    assert passed(probes)


@pytest.mark.parametrize(
    ("identity", "mark", "text"),
    [
        (Identity(KeyKind.AGENT, ("c-1",), "a-1"), Mark.OK, "the key is an agent's; companies: 1"),
        (Identity(KeyKind.BOARD, ()), Mark.WARNED, "shows no company"),
    ],
)
async def test_probe_names_the_owner_of_the_key(identity: Identity, mark: Mark, text: str) -> None:
    probe = (await probed(paperclip=Service(TESTED[-1], identity)))["paperclip"]
    assert probe.mark is mark
    assert text in probe.text


async def test_a_paperclip_client_can_be_probed() -> None:
    async def send(request: Request) -> Response:
        return Response(200, {}, b'{"status":"ok"}' if request.url.endswith("/health") else b"[]")

    paperclip = PaperclipClient(send, PAPERCLIP_URL, key="sesame", user_agent="paperclip-memory/test")
    assert (await probed(paperclip=paperclip))["paperclip"].mark is Mark.WARNED


async def test_unreachable_kafka_fails_with_one_line() -> None:
    down = UpstreamDown("Kafka at a:1: refused", upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE)
    probes = await probed(survey=kafka_that_raises(down))
    assert probes["kafka"].mark is Mark.FAILED
    assert probes["kafka"].text == "Kafka at a:1: refused"
    assert "kafka_bootstrap_servers (PAPERCLIP_MEMORY_KAFKA_BOOTSTRAP_SERVERS)" in probes["kafka"].fix
    assert "topics" not in probes


async def test_missing_and_different_topics_have_a_line_each() -> None:
    probes = await probed(
        survey=kafka_with(
            TopicReport("runs", TopicState.MISSING),
            TopicReport(
                "comments", TopicState.DIFFERS, ("2 partitions, not 8", "cleanup.policy is compact, not delete")
            ),
            TopicReport("recalls", TopicState.EXISTS, ("the broker does not report its configuration",)),
        )
    )
    assert (
        probes["topic runs"].line
        == "✗ topic runs: does not exist. To do: run `paperclip-memory topics`; `up` does so by itself"
    )
    assert probes["topic comments"].mark is Mark.WARNED
    assert probes["topic comments"].text == "2 partitions, not 8; cleanup.policy is compact, not delete"
    assert probes["kafka"].mark is Mark.OK
    assert not {"topic recalls", "topics"} & set(probes)


PROBES = [
    Probe("settings", Mark.OK, "complete"),
    Probe("kafka", Mark.FAILED, "no connection", "start it"),
    Probe("topic runs", Mark.WARNED, "2 partitions, not 8", "alter it"),
    Probe("paperclip", Mark.ABSENT, "not configured"),
]


def test_text_output_has_a_line_for_each_probe() -> None:
    assert to_text(PROBES).splitlines() == [
        "✓ settings: complete",
        "✗ kafka: no connection. To do: start it",
        "! topic runs: 2 partitions, not 8. To do: alter it",
        "\N{EN DASH} paperclip: not configured",
    ]


def test_json_output_has_all_probes() -> None:
    assert json.loads(to_json(PROBES)) == {
        "ok": False,
        "probes": [
            {"name": "settings", "mark": "ok", "text": "complete", "fix": ""},
            {"name": "kafka", "mark": "failed", "text": "no connection", "fix": "start it"},
            {"name": "topic runs", "mark": "warned", "text": "2 partitions, not 8", "fix": "alter it"},
            {"name": "paperclip", "mark": "absent", "text": "not configured", "fix": ""},
        ],
    }


@pytest.mark.parametrize(
    ("mark", "ok"), [(Mark.OK, True), (Mark.WARNED, True), (Mark.ABSENT, True), (Mark.FAILED, False)]
)
def test_warnings_do_not_fail_the_check(mark: Mark, ok: bool) -> None:
    assert passed([Probe("settings", Mark.OK, "complete"), Probe("x", mark, "")]) is ok


def test_probes_are_logged_at_their_level() -> None:
    with structlog.testing.capture_logs() as logs:
        log_probes(structlog.get_logger(), PROBES)
    assert logs == [
        {"log_level": "info", "event": "probe", "probe": "settings", "mark": "ok", "result": "complete"},
        {
            "log_level": "error",
            "event": "probe",
            "probe": "kafka",
            "mark": "failed",
            "result": "no connection",
            "fix": "start it",
        },
        {
            "log_level": "warning",
            "event": "probe",
            "probe": "topic runs",
            "mark": "warned",
            "result": "2 partitions, not 8",
            "fix": "alter it",
        },
        {"log_level": "warning", "event": "probe", "probe": "paperclip", "mark": "absent", "result": "not configured"},
    ]


async def test_audit_feed_that_the_key_may_not_read_is_a_warning() -> None:
    paperclip = Service()
    paperclip.unauditable = {"c-1"}
    probe = (await probed(paperclip=paperclip))["audit feed"]
    assert probe.mark is Mark.WARNED
    assert "1 of 2 companies" in probe.text


@pytest.mark.parametrize(("status", "warned"), [("ready", True), ("disabled", False)])
async def test_enabled_plugin_is_a_warning(status: str, warned: bool) -> None:
    paperclip = Service()
    paperclip.installed = [{"packageName": PACKAGE, "status": status}]
    assert ("plugin" in await probed(paperclip=paperclip)) is warned


@pytest.mark.parametrize("version", TESTED)
async def test_a_tested_release_of_paperclip_is_named_without_a_warning(version: str) -> None:
    probes = await probed(paperclip=Service(version))
    assert f"release {version}" in probes["paperclip"].text
    assert "release" not in probes


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2026.817.0", "2026.817.0 is older than every tested release"),
        ("2026.831.1", "2026.831.1 was not tested"),
        ("2027.101.0", "2027.101.0 is newer than every tested release"),
    ],
)
async def test_another_release_of_paperclip_is_a_warning_that_names_the_tested_ones(version: str, words: str) -> None:
    probe = (await probed(paperclip=Service(version)))["release"]
    assert probe.mark is Mark.WARNED
    assert probe.text == f"{words} (tested: 2026.824.1, 2026.916.1)"
    assert "docs/upgrading.md" in probe.fix


@pytest.mark.parametrize(
    ("days", "mark", "words"),
    [(29.6, Mark.OK, "expires in 30 days, on "), (6.9, Mark.WARNED, "expires in 7 days, on ")],
)
async def test_the_end_of_the_key_is_said_and_warned_of_in_its_last_week(days: float, mark: Mark, words: str) -> None:
    paperclip = Service(TESTED[-1])
    paperclip.key_end = time.time() + days * 86_400
    probe = (await probed(paperclip=paperclip))["paperclip key"]
    assert probe.mark is mark
    assert probe.text.startswith(words)
    assert ("paperclip_api_key (PAPERCLIP_MEMORY_PAPERCLIP_API_KEY)" in probe.fix) is (mark is Mark.WARNED)


async def test_a_key_without_an_end_has_no_line() -> None:
    assert "paperclip key" not in await probed()


async def test_a_detail_that_paperclip_does_not_answer_leaves_the_others() -> None:
    paperclip = Service(TESTED[-1], errors={"key": Transient("answered 500", upstream=Upstream.PAPERCLIP)})
    paperclip.unauditable = {"c-1"}
    probes = await probed(paperclip=paperclip)
    assert "audit feed" in probes
    assert "paperclip key" not in probes


CONNECTION = {"name": "paperclip-memory", "status": "active", "enabled": True, "healthStatus": "ok"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"healthStatus": "error", "healthMessage": "HTTP 401"}, "in state 'error': HTTP 401"),
        ({"healthStatus": "missing_secret", "healthMessage": "no secret"}, "in state 'missing_secret': no secret"),
        ({"enabled": False}, "turned off in Paperclip (status active)"),
        ({"status": "draft"}, "turned off in Paperclip (status draft)"),
    ],
)
async def test_a_connection_that_agents_cannot_use_is_a_warning(changes: dict[str, Any], words: str) -> None:
    paperclip = Service(TESTED[-1])
    paperclip.connections = [CONNECTION | changes, {"name": "another", "healthStatus": "error"}]
    probe = (await probed(paperclip=paperclip))["tools of company c-1"]
    assert probe.mark is Mark.WARNED
    assert words in probe.text
    assert "run `paperclip-memory connect --company c-1`" in probe.fix


@pytest.mark.parametrize("health", ["ok", "healthy", "unknown", None])
async def test_a_usable_connection_has_no_line(health: str | None) -> None:
    paperclip = Service(TESTED[-1])
    paperclip.connections = [CONNECTION | {"healthStatus": health}]
    assert "tools of company c-1" not in await probed(paperclip=paperclip)


async def test_status_reads_release_end_of_the_key_and_connections() -> None:
    paperclip = Service(TESTED[-1])
    paperclip.key_end = 1_798_723_938.0
    paperclip.connections = [CONNECTION | {"enabled": False}]
    state = await read_paperclip(paperclip)
    assert (state.release, state.key_expires) == (TESTED[-1], 1_798_723_938.0)
    assert state.tool_problems == {"c-1": "the connection is turned off in Paperclip (status active)"}
