"""The committed dashboard is up to date, complete, and queries existing series."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.unit.deploy.promql import ROOT, selected, series

GRAFANA = ROOT / "deploy" / "grafana"
BOARD = json.loads((GRAFANA / "dashboards" / "paperclip-memory.json").read_text())
ROWS = [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"]
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
OF_EVERY_PROCESS = {"process_resident_memory_bytes"}
"""Added by `prometheus_client`."""


def test_the_dashboard_is_what_its_script_generates() -> None:
    checked = subprocess.run([sys.executable, "-m", "deploy.grafana.dashboard", "--check"], cwd=ROOT, check=False)
    assert checked.returncode == 0, "python -m deploy.grafana.dashboard writes it"


def test_the_dashboard_has_its_rows_in_order() -> None:
    assert ROWS == [
        "Overview",
        "Traffic",
        "Latency",
        "Saturation",
        "Partitions",
        "Hindsight",
        "Tools",
        "Relay",
        "Dead letters",
        "Exporter health",
    ]


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    cells = [
        (x, y)
        for grid in (panel["gridPos"] for panel in BOARD["panels"])
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23


def test_the_datasource_is_a_variable() -> None:
    (variable,) = BOARD["templating"]["list"]
    assert (variable["name"], variable["type"], variable["query"]) == ("datasource", "datasource", "prometheus")


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_has_a_description_and_queries_existing_series(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert len(panel["description"]) > 20
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["targets"]
    labels_by_series = series()
    for target in panel["targets"]:
        assert target["datasource"]["uid"] == "${datasource}"
        queries = selected(target["expr"].replace("$__rate_interval", "1m"))
        assert queries
        for query in queries:
            assert query.metric in labels_by_series or query.metric in OF_EVERY_PROCESS
            assert query.labels <= labels_by_series.get(query.metric, {"job"})
        legend_labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        labels = {label for query in queries for label in labels_by_series.get(query.metric, {"instance"})}
        assert legend_labels <= labels


def test_provisioning_finds_the_dashboard_and_the_datasource() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    mounts = dict(
        volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"] if volume.startswith("./")
    )
    assert mounts["./deploy/grafana/provisioning"] == "/etc/grafana/provisioning"
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/paperclip-memory.yml").read_text())["providers"]
    assert mounts["./deploy/grafana/dashboards"] == provider["options"]["path"]
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    assert source["url"].split("//")[1].split(":")[0] in compose["services"]
