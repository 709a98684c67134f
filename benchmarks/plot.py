"""Draws `docs/benchmarks.svg` from `results.jsonl`: events/s, and CPU per event. Runs in the peers' environment.

python plot.py RESULTS SVG
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

import matplotlib as mpl
from matplotlib.axes import Axes

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "paperclip-memory"  # the same figures give the same file
import matplotlib.pyplot as plt  # noqa: E402

OURS, SENDER, PEER = "#2f6f4f", "#a9c9b8", "#9aa0a6"


def main(results: str, svg: str) -> None:
    runs: dict[tuple[str, str, int, int], list[dict[str, float]]] = defaultdict(list)
    for text in Path(results).read_text().splitlines():
        result = json.loads(text)
        runs[result["bench"], result["system"], result["in_flight"], result["workers"]].append(result)
    figure, axes = plt.subplots(2, 2, figsize=(13, 7), layout="constrained", width_ratios=(1, 1))
    for row, (bench, slots) in zip(axes, (("throughput", 64), ("density", 256)), strict=True):
        chosen = {key: results for key, results in runs.items() if key[0] == bench}
        rates = {_name(key): _median(results, "events_per_second") for key, results in chosen.items()}
        order = sorted(rates, key=lambda name: rates[name])
        _bars(row[0], order, rates, f"events/s, {slots} in flight, sink of 50 ms")
        row[0].axvline(slots / 0.05, color="black", linewidth=0.8, linestyle=":")
        cpu = {_name(key): _median(results, "cpu_us_per_event") for key, results in chosen.items()}
        _bars(row[1], order, cpu, "CPU µs/event (less is better)")
        row[1].set_yticklabels([])
    figure.savefig(svg, metadata={"Date": None})


def _bars(axes: Axes, order: list[str], values: dict[str, float], title: str) -> None:
    bars = axes.barh(order, [values[name] for name in order], color=[_color(name) for name in order])
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    axes.set_title(title, fontsize=10)
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)


def _name(key: tuple[str, str, int, int]) -> str:
    _, system, in_flight, workers = key
    return f"{system}, {workers} x {in_flight}" if workers > 1 else system


def _color(name: str) -> str:
    if name.startswith("paperclip-memory"):
        return OURS
    return SENDER if "alone" in name else PEER


def _median(results: list[dict[str, float]], field: str) -> float:
    return median(result[field] for result in results)


main(*sys.argv[1:])
