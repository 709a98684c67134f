"""Counts and times the calls of the tools."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from consumer.observability.metrics import TOOL_CALL_DURATION, TOOL_CALLS
from consumer.tools.results import Tool, ToolOutcome


class ToolCalls:
    """The tools' own metrics; all series stand at zero from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        calls = Counter(TOOL_CALLS.full_name, TOOL_CALLS.help, TOOL_CALLS.labels, registry=registry)
        times = Histogram(
            TOOL_CALL_DURATION.full_name,
            TOOL_CALL_DURATION.help,
            TOOL_CALL_DURATION.labels,
            registry=registry,
            buckets=TOOL_CALL_DURATION.buckets,
        )
        self._calls = {
            (tool, outcome): (calls.labels(tool, outcome), times.labels(tool, outcome))
            for tool in Tool
            for outcome in ToolOutcome
        }

    def observe(self, tool: Tool, outcome: ToolOutcome, seconds: float) -> None:
        """Count a call."""
        calls, times = self._calls[tool, outcome]
        calls.inc()
        times.observe(seconds)
