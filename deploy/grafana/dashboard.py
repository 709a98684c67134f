"""Generates the dashboard: `python -m deploy.grafana.dashboard` writes `dashboards/paperclip-memory.json`."""

import sys
from itertools import count
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueGraphMode, LegendDisplayMode, LegendPlacement, StackingMode
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, Threshold, ThresholdsMode

from deploy.grafana import around, lanes
from deploy.grafana.panels import Look, Panel

OUTPUT = Path(__file__).parent / "dashboards" / "paperclip-memory.json"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")


def build() -> str:
    """The dashboard's JSON."""
    board = (
        dashboard.Dashboard("Paperclip memory")
        .uid("paperclip-memory")
        .description("How far the workers are behind Paperclip's events, and what Hindsight still has to process.")
        .tags(["paperclip-memory"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    ids = count(1)
    for row in (*lanes.ROWS, *around.ROWS):
        board.with_row(dashboard.Row(row.title).id(next(ids)))
        for panel in row.panels:
            made = _number(panel) if panel.look is Look.NUMBER else _lines(panel)
            board.with_panel(made.id(next(ids)))
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


def _number(panel: Panel) -> Any:
    steps = [Threshold(color="green")]
    for value, color in ((panel.warn, "orange"), (panel.alarm, "red")):
        if value is not None:
            steps.append(Threshold(value=value, color=color))
    thresholds = dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
    made = stat.Panel().graph_mode(BigValueGraphMode.AREA).thresholds(thresholds)
    return _common(made.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])), panel, height=5)


def _lines(panel: Panel) -> Any:
    legend = common.VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.LIST)
    made = timeseries.Panel().legend(legend.placement(LegendPlacement.BOTTOM))
    if panel.look is Look.STACKED:
        made.fill_opacity(30).stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    return _common(made, panel, height=8)


def _common(made: Any, panel: Panel, height: int) -> Any:
    made.title(panel.title).description(panel.description).unit(panel.unit)
    made.datasource(SOURCE).height(height).span(panel.width)
    for number, (legend, expression) in enumerate(panel.queries.items()):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + number))
        made.with_target(query.range().datasource(SOURCE))
    return made


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(OUTPUT.read_text() != build())
    OUTPUT.write_text(build())
