"""Compose file and image name only what exists in this repository. Neither is run: there may be no Docker."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from consumer.cli import app
from consumer.settings.model import Settings
from consumer.settings.types import PREFIX, variable
from consumer.settings.validation import SECRETS_DIR, is_secret
from tests.unit.deploy.promql import ROOT

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
PORTS = {
    "worker": Settings.model_fields["worker_port"].default,
    "tools": Settings.model_fields["tools_metrics_port"].default,
    "relay": Settings.model_fields["relay_metrics_port"].default,
    "exporter": Settings.model_fields["exporter_port"].default,
}
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
ENV_EXAMPLE = (ROOT / ".env.example").read_text()
BIN = Path(sys.executable).parent


def interpolated(text: str) -> str:
    """A text with every variable replaced by its default."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", r"\2", text)


def test_docker_compose_yml_matches_the_compose_schema() -> None:
    command = [
        str(BIN / "check-jsonschema"),
        "--builtin-schema",
        "vendor.compose-spec",
        str(ROOT / "docker-compose.yml"),
    ]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_our_services_are_every_long_running_command() -> None:
    assert set(OURS) == {"topics", "worker", "tools", "relay", "exporter"}


@pytest.mark.parametrize("name", OURS)
def test_our_services_use_existing_commands_and_settings(name: str) -> None:
    service = OURS[name]
    commands = {command.callback.__name__ for command in app.registered_commands if command.callback}
    assert service["command"] == [name]
    assert name in commands
    setting_names = {variable(field) for field in Settings.model_fields} | {SECRETS_DIR}
    assert set(service["environment"]) <= setting_names


@pytest.mark.parametrize("name", OURS)
def test_our_services_are_hardened(name: str) -> None:
    service = OURS[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "container_name" not in service, "so that it can be scaled"
    grace = float(service["stop_grace_period"].removesuffix("s"))
    assert grace > Settings.model_fields["shutdown_timeout"].default


@pytest.mark.parametrize("name", OURS)
def test_the_settings_of_our_services_are_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for field, text in OURS[name]["environment"].items():
        if field != SECRETS_DIR:
            monkeypatch.setenv(field, interpolated(text))
    settings = Settings()
    assert (settings.kafka_bootstrap_servers, settings.hindsight_api_url) == ("kafka:9092", "http://hindsight:8888")
    assert settings.paperclip_api_url == "http://paperclip:3100"


def test_health_checks_use_the_metrics_ports() -> None:
    for name in ("tools", "relay", "exporter"):
        assert f"http://127.0.0.1:{PORTS[name]}/" in OURS[name]["healthcheck"]["test"][-1]
    assert f"http://127.0.0.1:{PORTS['worker']}/livez" in DOCKERFILE
    served = r"/(livez|readyz)'"
    for text in [OURS[name]["healthcheck"]["test"][-1] for name in ("tools", "relay", "exporter")] + [DOCKERFILE]:
        assert re.search(served, text)
    assert OURS["tools"]["ports"] == [f"127.0.0.1:{(port := Settings.model_fields['tools_port'].default)}:{port}"]
    assert OURS["tools"]["environment"][variable("tools_url")] == f"http://tools:{port}"


def test_prometheus_scrapes_every_process_at_its_port() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    assert {target["names"][0]: target["port"] for target in job["dns_sd_configs"]} == PORTS
    (manager,) = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    assert manager.split(":")[0] in SERVICES


@pytest.mark.parametrize("name", SERVICES)
def test_a_dependency_has_the_health_check_that_its_condition_needs(name: str) -> None:
    for other, wait in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        if wait["condition"] == "service_healthy":
            assert SERVICES[other]["healthcheck"]["test"]
        if "profiles" in SERVICES[other] and "profiles" not in SERVICES[name]:
            assert wait["required"] is False, f"{name} must start where {other} runs elsewhere"


def test_profiles_keep_paperclip_and_monitoring_optional() -> None:
    profiles = {name: set(service.get("profiles", ())) for name, service in SERVICES.items()}
    assert {name for name, required in profiles.items() if not required} == set(OURS), "without a profile, only ours"
    assert {name for name, required in profiles.items() if required == {"paperclip"}} == {"paperclip"}
    assert set().union(*profiles.values()) == {"services", "paperclip"}


def test_mounted_files_exist_and_volumes_are_declared() -> None:
    for service in SERVICES.values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if source.startswith("./"):
                assert (ROOT / source).exists(), source
                assert mount.endswith(":ro")
            else:
                assert source in COMPOSE["volumes"]


def test_secrets_are_documented_files_that_git_ignores() -> None:
    for name, secret in COMPOSE["secrets"].items():
        assert secret == {"file": f"./secrets/{name}"}
        assert name in ENV_EXAMPLE
        if name.upper().startswith(PREFIX):
            assert is_secret(name.upper().removeprefix(PREFIX).lower())
    files = {path for service in SERVICES.values() for path in service.get("env_file", ())}
    assert all(Path(path).name in ENV_EXAMPLE for path in files)
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {"secrets/", ".env"} <= set(ignored)
    text = (ROOT / "docker-compose.yml").read_text()
    assert not re.search(r"(KEY|SECRET|PASSWORD|TOKEN)\w*: *[^\s/{]", text)


def test_env_example_has_exactly_the_variables_of_the_compose_file() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    used = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", text))
    assert len(re.findall(r"\$\{", text)) == len(re.findall(r"\$\{\w+:-", text)), "each has a default"
    described = dict(re.findall(r"^(?:# )?([A-Z_]+)=(\S*)$", ENV_EXAMPLE, re.MULTILINE))
    assert described == used | {"COMPOSE_PROFILES": "paperclip"}


def test_every_image_and_tag_is_listed_with_its_documentation() -> None:
    images = {interpolated(service["image"]) for name, service in SERVICES.items() if name not in OURS}
    images |= set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))
    table = re.findall(r"^\| `(\S+)` \| (\S+) \| (.*) \|$", (ROOT / "deploy/images.md").read_text(), re.MULTILINE)
    assert {f"{image}:{tag}" for image, tag, _ in table} == images
    assert all("https://" in source for *_, source in table)


# The image.


def test_hadolint_accepts_the_dockerfile() -> None:
    checked = subprocess.run([str(BIN / "hadolint"), str(ROOT / "deploy/Dockerfile")], capture_output=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, b"")


def test_the_image_copies_existing_files_only() -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignore if line.startswith("!")}
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    }
    assert copied == kept
    assert all((ROOT / path).exists() for path in copied)
    assert "*" in ignore, "what is not named stays out: secrets, .env, .git"


def test_the_image_runs_unprivileged_with_requirements_pinned_by_hash() -> None:
    stages = DOCKERFILE.split("\nFROM ")
    assert len(stages) == 3
    uid = re.search(r"^USER (\d+):\d+$", stages[-1], re.MULTILINE)
    assert uid
    assert int(uid[1]) > 0
    installs = re.findall(r"install (.*)", DOCKERFILE)
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    assert not re.search(r"^(ARG|ENV).*(KEY|SECRET|PASSWORD|TOKEN)", DOCKERFILE, re.MULTILINE)
    setting_names = {variable(field) for field in Settings.model_fields}
    assert set(re.findall(r"PAPERCLIP_MEMORY_\w+", DOCKERFILE)) <= setting_names
    entry = re.search(r'^ENTRYPOINT \["(.+)"\]$', stages[-1], re.MULTILINE)
    assert entry
    assert f'{entry[1]} = "consumer.cli:main"' in (ROOT / "pyproject.toml").read_text()
