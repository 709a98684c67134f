"""Moving from the plugin, on a real Paperclip: its configuration, and what `check` says while it is on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer.embedded.hindsight import Hindsight
from consumer.settings.plugin_import import PACKAGE
from tests.e2e.paperclip_company import ListenerPlugin, PaperclipCompany, paperclip_company
from tests.e2e.relay_installation import RelayInstallation
from tests.support.kafka import Broker
from tests.support.paperclip import Packages, Paperclip

pytestmark = [pytest.mark.e2e, pytest.mark.real_kafka, pytest.mark.timeout(300)]


@pytest.fixture
def acme(paperclip: Paperclip) -> Iterator[PaperclipCompany]:
    with paperclip_company(paperclip) as opened:
        yield opened


def test_its_configuration_becomes_ours(
    broker: Broker, hindsight: Hindsight, paperclip_packages: Packages, acme: PaperclipCompany, tmp_path: Path
) -> None:
    """A plugin of that package stands for it, as Paperclip keeps it."""
    installation = RelayInstallation(broker, hindsight, tmp_path, acme)
    agent = acme.agent("Ada")
    plugin = ListenerPlugin(acme, paperclip_packages, PACKAGE)
    path = f"/api/plugins/{plugin.plugin['id']}"
    try:
        config = {
            "hindsightApiUrl": hindsight.url,
            "bankGranularity": ["company", "agent"],
            "recallBudget": "low",
            "enabledAgentIds": [agent],
        }
        acme.post(f"{path}/config", companyId=acme.id, configJson=config)
        output = tmp_path / "memory.env"
        installation.command("import-plugin", "--company", acme.id, "--output", str(output))
        written = dict(line.split("=", 1) for line in output.read_text().splitlines() if not line.startswith("#"))
        assert written == {
            "PAPERCLIP_MEMORY_HINDSIGHT_API_URL": hindsight.url,
            "PAPERCLIP_MEMORY_BANK_GRANULARITY": "company,agent",
            "PAPERCLIP_MEMORY_RECALL_BUDGET": "low",
            "PAPERCLIP_MEMORY_ENABLED_AGENT_IDS": agent,
            "PAPERCLIP_MEMORY_PAPERCLIP_API_URL": acme.paperclip.url,
            "PAPERCLIP_MEMORY_RELAY_COMPANIES": acme.id,
        }
        assert f"! plugin: {PACKAGE} is enabled" in installation.command("check")
        acme.post(f"{path}/disable")
        assert "plugin:" not in installation.command("check")
    finally:
        plugin.remove(acme)


def test_a_key_that_may_not_see_plugins_is_told_so(
    broker: Broker, hindsight: Hindsight, acme: PaperclipCompany, tmp_path: Path
) -> None:
    installation = RelayInstallation(broker, hindsight, tmp_path, acme)
    key = acme.key(acme.agent("Ada"))
    installation.command("import-plugin", expect=1, PAPERCLIP_API_KEY=key)
    assert "! audit feed: the key may not read it in 1 of 1 companies" in installation.command(
        "check", PAPERCLIP_API_KEY=key
    )
