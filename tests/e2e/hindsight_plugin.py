"""The plugin that this project replaces, installed in a real Paperclip and configured as its settings form does it."""

import os
from pathlib import Path
from typing import Any

from consumer.settings.plugin_import import PACKAGE
from tests.support.paperclip import Packages
from tests.support.paperclip_company import ListenerPlugin, PaperclipCompany

BUILT = "PAPERCLIP_MEMORY_TEST_PLUGIN"
"""Environment variable: the directory of the plugin, built from its public source.

Without it a plugin stands in that has its package's name and its settings, and does nothing.
"""
SETTINGS: dict[str, Any] = {
    "hindsightApiUrl": {"type": "string", "default": "https://api.hindsight.vectorize.io"},
    "hindsightApiKeyRef": {"type": "string"},
    "dynamicBankId": {"type": "boolean", "default": True},
    "bankId": {"type": "string"},
    "bankGranularity": {"type": "array", "items": {"type": "string"}, "default": ["company", "agent"]},
    "recallBudget": {"type": "string", "enum": ["low", "mid", "high"], "default": "mid"},
    "autoRetain": {"type": "boolean", "default": True},
    "enabledAgentIds": {"type": "array", "items": {"type": "string"}},
}


class HindsightPlugin:
    """The plugin in one Paperclip.

    Attributes:
        is_real: whether it is the plugin itself, which stores comments.
    """

    def __init__(self, company: PaperclipCompany, packages: Packages) -> None:
        self._company = company
        built = os.environ.get(BUILT)
        self.is_real = built is not None
        self._stand_in = None if built else ListenerPlugin(company, packages, PACKAGE, SETTINGS)
        if built:
            self._plugin = company.post("/api/plugins/install", packageName=str(Path(built)), isLocalPath=True)
        elif self._stand_in:
            self._plugin = self._stand_in.plugin
        assert self._plugin["packageName"] == PACKAGE
        self._path = f"/api/plugins/{self._plugin['id']}"

    def save(self, **values: Any) -> None:
        """Save the settings form: the manifest's defaults, and these values."""
        fields = self._plugin["manifestJson"]["instanceConfigSchema"]["properties"]
        form = {name: field["default"] for name, field in fields.items() if "default" in field}
        self._company.post(f"{self._path}/config", companyId=self._company.id, configJson=form | values)

    def disable(self) -> None:
        self._company.post(f"{self._path}/disable")

    def remove(self) -> None:
        if self._stand_in:
            self._stand_in.remove(self._company)
        else:
            self._company.delete_plugin(self._plugin["id"])
