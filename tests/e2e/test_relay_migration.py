"""Moving from the plugin, on a real Paperclip: its configuration, and what `check` says while it is on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer.embedded.hindsight import Hindsight
from consumer.settings.plugin_import import PACKAGE
from tests.e2e.hindsight_plugin import HindsightPlugin
from tests.support.kafka import Broker
from tests.support.paperclip import Packages, Paperclip
from tests.support.paperclip_company import PaperclipCompany, eventually, paperclip_company
from tests.support.relay_installation import RelayInstallation, retain

pytestmark = [pytest.mark.e2e, pytest.mark.real_kafka, pytest.mark.timeout(300)]


@pytest.fixture
def acme(paperclip: Paperclip) -> Iterator[PaperclipCompany]:
    with paperclip_company(paperclip) as opened:
        yield opened


@pytest.fixture
def plugin(paperclip_packages: Packages, acme: PaperclipCompany) -> Iterator[HindsightPlugin]:
    installed = HindsightPlugin(acme, paperclip_packages)
    yield installed
    installed.remove()


def test_the_settings_form_of_the_plugin_becomes_our_environment_file(
    broker: Broker, hindsight: Hindsight, plugin: HindsightPlugin, acme: PaperclipCompany, tmp_path: Path
) -> None:
    installation = RelayInstallation(broker, hindsight, tmp_path, acme)
    agent = acme.agent("Ada")
    plugin.save(hindsightApiUrl=hindsight.url, recallBudget="low", enabledAgentIds=[agent])
    output = tmp_path / "memory.env"
    installation.command("import-plugin", "--company", acme.id, "--output", str(output))
    written = dict(line.split("=", 1) for line in output.read_text().splitlines() if not line.startswith("#"))
    assert written == {
        "PAPERCLIP_MEMORY_HINDSIGHT_API_URL": hindsight.url,
        "PAPERCLIP_MEMORY_DYNAMIC_BANK_ID": "true",
        "PAPERCLIP_MEMORY_BANK_GRANULARITY": "company,agent",
        "PAPERCLIP_MEMORY_RECALL_BUDGET": "low",
        "PAPERCLIP_MEMORY_AUTO_RETAIN": "true",
        "PAPERCLIP_MEMORY_ENABLED_AGENT_IDS": agent,
        "PAPERCLIP_MEMORY_PAPERCLIP_API_URL": acme.paperclip.url,
        "PAPERCLIP_MEMORY_RELAY_COMPANIES": acme.id,
    }
    assert f"! plugin: {PACKAGE} is enabled" in installation.command("check")
    plugin.disable()
    assert "plugin:" not in installation.command("check")


def test_a_comment_that_the_plugin_stored_is_stored_once(
    broker: Broker, hindsight: Hindsight, plugin: HindsightPlugin, acme: PaperclipCompany, tmp_path: Path
) -> None:
    """The plugin stores under the same bank and the comment's id, so ours is the same document."""
    installation = RelayInstallation(broker, hindsight, tmp_path, acme)
    plugin.save(hindsightApiUrl=hindsight.url)
    ada = acme.agent("Ada")
    acme.pause(ada)
    bank, text = acme.bank(ada), "Stored before we came."
    said = acme.say(acme.issue("Think", ada), text)
    if plugin.is_real:
        eventually("the plugin has stored it", lambda: said in installation.documents(bank))
    else:
        retain(installation, bank, said, text, agentId=ada, companyId=acme.id)
    eventually("it is judged, and stored", lambda: installation.audit()[acme.id]["stored"] == 1, every=2.0)
    with installation.relay(), installation.worker():
        eventually("it is published", lambda: ("issue.comment.created", said) in installation.published())
        installation.wait_digested([bank])
    assert list(installation.documents(bank)) == [said]
    assert installation.audit()[acme.id]["stored"] == 1


def test_a_key_that_may_not_see_plugins_is_told_so(
    broker: Broker, hindsight: Hindsight, acme: PaperclipCompany, tmp_path: Path
) -> None:
    installation = RelayInstallation(broker, hindsight, tmp_path, acme)
    key = acme.key(acme.agent("Ada"))
    installation.command("import-plugin", expect=1, PAPERCLIP_API_KEY=key)
    assert "! audit feed: the key may not read it in 1 of 1 companies" in installation.command(
        "check", PAPERCLIP_API_KEY=key
    )
