"""Writes the tables in `docs/settings.md` and `docs/metrics.md`: `python -m scripts.reference_tables`."""

from pathlib import Path

from consumer.observability.metrics import METRICS, Metric, label_values
from consumer.settings.model import PLUGIN_NAMES, Settings
from consumer.settings.reference import SECRETS_DIR_MEANING, default_text
from consumer.settings.types import variable
from consumer.settings.validation import SECRETS_DIR

DOCS = Path(__file__).parents[1] / "docs"


def settings_table() -> str:
    """All settings: name, variable, the plugin's name, default, meaning."""
    rows = ["| setting | variable | the plugin's | default | meaning |", "|---|---|---|---|---|"]
    for name, field in Settings.model_fields.items():
        codes = (name, variable(name), PLUGIN_NAMES.get(name, ""), default_text(name))
        cells = [f"`{code}`" if code else "" for code in codes]
        rows.append(f"| {' | '.join(cells)} | {field.description} |")
    rows.append(f"| | `{SECRETS_DIR}` | | | {SECRETS_DIR_MEANING} |")
    return "\n".join(rows) + "\n"


def metrics_table() -> str:
    """All metrics: name, type, meaning, labels with their values."""
    rows = ["| name | type | meaning | labels |", "|---|---|---|---|"]
    rows += [f"| `{metric.full_name}` | {metric.kind} | {metric.help} | {_labels(metric)} |" for metric in METRICS]
    return "\n".join(rows) + "\n"


def _labels(metric: Metric) -> str:
    return "<br>".join(f"`{label}`: {', '.join(label_values(metric, label))}" for label in metric.labels) or "none"


def replace_table(page: str, table: str) -> str:
    """The page with its first table replaced."""
    head, _, rest = page.partition("\n| ")
    _, _, tail = rest.partition("\n\n")
    return f"{head}\n{table}" + (f"\n{tail}" if tail else "")


if __name__ == "__main__":
    for name, table in (("settings.md", settings_table()), ("metrics.md", metrics_table())):
        path = DOCS / name
        path.write_text(replace_table(path.read_text(encoding="utf-8"), table), encoding="utf-8")
