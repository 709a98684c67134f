"""The panel and row model of the dashboard, and queries that panels share."""

from dataclasses import dataclass
from enum import Enum

P = "paperclip_memory_"


class Look(Enum):
    """The kind of a panel."""

    NUMBER = "stat"
    LINES = "lines"
    STACKED = "stacked"


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        queries: PromQL by legend.
        width: in columns of 24.
        warn, alarm: values from which a number turns orange and red.
    """

    title: str
    description: str
    unit: str
    queries: dict[str, str]
    look: Look = Look.LINES
    width: int = 8
    warn: float | None = None
    alarm: float | None = None


@dataclass(frozen=True)
class Row:
    """A row of panels."""

    title: str
    panels: list[Panel]


def quantiles(histogram: str, by: str) -> dict[str, str]:
    """The median, p95 and p99 of a histogram, by one label."""
    buckets = f"sum by ({by}, le) (rate({P}{histogram}_bucket[$__rate_interval]))"
    return {f"{{{{{by}}}}} p{100 * q:.0f}": f"histogram_quantile({q}, {buckets})" for q in (0.5, 0.95, 0.99)}


def rate(counter: str, *by: str, where: str = "") -> str:
    """Rate of a counter per second, by these labels."""
    return f"sum by ({', '.join(by)}) (rate({P}{counter}{where}[$__rate_interval]))"
