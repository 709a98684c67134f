"""The plugin's configuration as our environment file."""

import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from consumer.commands.import_plugin import from_file
from consumer.errors import SettingsError
from consumer.memory.banks import derive_bank_id
from consumer.settings.model import PLUGIN_NAMES
from consumer.settings.plugin_import import Imported, differences, env_file, is_hindsight_plugin, translate
from consumer.settings.types import variable
from consumer.settings.validation import load_settings

URL = "http://localhost:8888"
COMPANY, AGENT = "f7b2ffb0-dc3a-437e-9f75-94ccd64bb80d", "d5add4c6-9a97-4ddd-9a15-33dcc8c6607c"


def loaded(config: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The settings that the written file gives, read by a shell."""
    file = tmp_path / "memory.env"
    file.write_text(env_file(translate(config), "a test", {}))
    shown = subprocess.run(
        ["/bin/sh", "-c", f"set -a; . {file}; env"], capture_output=True, text=True, check=True, env={}
    ).stdout
    for line in shown.splitlines():
        name, _, value = line.partition("=")
        if name.startswith("PAPERCLIP_MEMORY_"):
            monkeypatch.setenv(name, value)
    return load_settings()


@pytest.mark.parametrize(
    ("config", "bank"),
    [
        ({}, f"paperclip::{COMPANY}::{AGENT}"),
        ({"bankGranularity": ["agent"]}, f"paperclip::{AGENT}"),
        ({"bankGranularity": ["agent", "company"]}, f"paperclip::{AGENT}::{COMPANY}"),
        ({"bankGranularity": ["company", "agent", "user"]}, f"paperclip::{COMPANY}::{AGENT}::user::ada@example.com"),
        ({"bankId": "spool farm"}, "spool farm"),
        ({"bankId": "the team's"}, "the team's"),
        ({"bankId": "spool-farm", "dynamicBankId": True}, f"paperclip::{COMPANY}::{AGENT}"),
        ({"bankId": "spool-farm", "dynamicBankId": False}, "spool-farm"),
        ({"bankId": "", "dynamicBankId": None}, f"paperclip::{COMPANY}::{AGENT}"),
    ],
)
def test_imported_settings_keep_every_bank_id(
    config: dict[str, Any], bank: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    policy = loaded({"hindsightApiUrl": URL, **config}, monkeypatch, tmp_path).memory_policy()
    assert derive_bank_id(policy, company=COMPANY, agent=AGENT, user="ada@example.com") == bank


def test_every_field_of_the_plugin_is_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = {
        "hindsightApiUrl": "https://hindsight.example.com/base/",
        "dynamicBankId": True,
        "bankId": "farm",
        "bankGranularity": ["company"],
        "recallBudget": "high",
        "autoRetain": False,
        "enabledAgentIds": [AGENT],
    }
    assert config.keys() == set(PLUGIN_NAMES.values()) - {"hindsightApiKeyRef"}
    settings = loaded(config, monkeypatch, tmp_path)
    assert settings.hindsight_api_url == "https://hindsight.example.com/base"
    assert (settings.recall_budget, settings.auto_retain, settings.enabled_agent_ids) == ("high", False, (AGENT,))


def test_fields_that_cannot_be_imported_are_named() -> None:
    config = {"hindsightApiUrl": URL, "hindsightApiKeyRef": {"type": "secret_ref", "secretId": "s-1"}, "theme": "dark"}
    imported = translate(config)
    assert variable("hindsight_api_key") not in imported.values
    assert len(imported.not_imported) == 2
    assert "PAPERCLIP_MEMORY_HINDSIGHT_API_KEY" in imported.not_imported[0]
    assert imported.not_imported[1].startswith("theme")
    text = env_file(imported, "a test", {"PAPERCLIP_MEMORY_RELAY_COMPANIES": COMPANY})
    assert f"PAPERCLIP_MEMORY_RELAY_COMPANIES={COMPANY}" in text
    assert "s-1" not in text


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "hindsight_api_url"),
        ({"hindsightApiUrl": URL, "recallBudget": "huge"}, "recall_budget"),
        ({"hindsightApiUrl": URL, "bankGranularity": ["planet"]}, "bank_granularity"),
        ({"hindsightApiUrl": URL, "dynamicBankId": False}, "bank_id"),
    ],
)
def test_invalid_value_is_refused_with_its_setting(config: dict[str, Any], field: str) -> None:
    with pytest.raises(SettingsError, match=field):
        translate(config)


def test_different_configurations_of_companies_are_named() -> None:
    one = {"hindsightApiUrl": URL, "bankId": "a", "hindsightApiKeyRef": "s-1"}
    assert differences({"c1": one, "c2": dict(one)}) == []
    found = differences({"c1": one, "c2": one | {"bankId": "b", "hindsightApiKeyRef": "s-2"}, "c3": one})
    assert found == [
        'bankId: "a" in c1, c3; "b" in c2',
        "hindsightApiKeyRef: a secret in c1, c3; a secret in c2",
    ]


def test_plugin_is_recognized_by_its_package() -> None:
    assert is_hindsight_plugin({"packageName": "@vectorize-io/hindsight-paperclip", "pluginKey": "whatever"})
    assert not is_hindsight_plugin({"packageName": "another", "pluginKey": "hindsight"})


@pytest.mark.parametrize("wrapped", [True, False])
def test_import_from_a_file(wrapped: bool, tmp_path: Path) -> None:
    source, output = tmp_path / "plugin.json", tmp_path / "memory.env"
    config = f'{{"hindsightApiUrl": "{URL}"}}'
    source.write_text(f'{{"companyId": "c", "configJson": {config}}}' if wrapped else config)
    assert from_file(source, output) == 0
    assert output.read_text() == (
        f"# Made by `paperclip-memory import-plugin` from plugin.json.\nPAPERCLIP_MEMORY_HINDSIGHT_API_URL={URL}\n"
    )
    assert stat.S_IMODE(output.stat().st_mode) == 0o600  # keys are put into it


def test_import_does_not_overwrite_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "plugin.json", tmp_path / "memory.env"
    source.write_text(f'{{"hindsightApiUrl": "{URL}"}}')
    output.write_text("mine")
    assert from_file(source, output) == 1
    assert output.read_text() == "mine"
    assert "is not overwritten" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_file_without_a_configuration_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "plugin.json"
    source.write_text(text)
    assert from_file(source, None) == 1
    assert str(source) in capsys.readouterr().err


def test_empty_configuration_gives_an_empty_file() -> None:
    assert env_file(Imported(), "a test", {}).count("\n") == 1
