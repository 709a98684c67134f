"""Metrics of the tools."""

from prometheus_client import CollectorRegistry

from consumer.observability.metrics import TOOL_CALL_DURATION, TOOL_CALLS
from consumer.observability.prometheus import counter, histogram
from consumer.tools.results import Tool, ToolOutcome


class ToolMetrics:
    """Counts and times tool calls; every series starts at zero."""

    def __init__(self, registry: CollectorRegistry) -> None:
        calls, times = counter(registry, TOOL_CALLS), histogram(registry, TOOL_CALL_DURATION)
        self._calls = {
            (tool, outcome): (calls.labels(tool, outcome), times.labels(tool, outcome))
            for tool in Tool
            for outcome in ToolOutcome
        }

    def observe(self, tool: Tool, outcome: ToolOutcome, seconds: float) -> None:
        """Count a call and its duration."""
        calls, times = self._calls[tool, outcome]
        calls.inc()
        times.observe(seconds)
