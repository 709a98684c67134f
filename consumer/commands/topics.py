"""`paperclip-memory topics`."""

from consumer.errors import ExitCode, UpstreamDown
from consumer.kafka.topics import TopicState, ensure_topics
from consumer.observability.logs import configure_logging
from consumer.settings.model import Settings
from consumer.settings.types import LogFormat, LogLevel


async def create_topics(settings: Settings) -> int:
    """Create missing topics and print the state of each; returns the exit code."""
    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)
    try:
        reports = await ensure_topics(settings)
    except UpstreamDown as error:
        print(f"✗ {error}")  # noqa: T201
        return ExitCode.FAILED
    for report in reports:
        details = f": {'; '.join(report.details)}" if report.details else ""
        print(f"{report.state.value} {report.name}{details}")  # noqa: T201
    return ExitCode.FAILED if any(report.state is TopicState.REFUSED for report in reports) else 0
