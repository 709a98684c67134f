import asyncio

import pytest
from structlog import get_logger
from structlog.testing import capture_logs

from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.exporter.poller import SourcePoller
from consumer.exporter.snapshot import LastPoll, Source


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class ScriptedSource:
    """A source with scripted answers."""

    def __init__(self, clock: Clock, *answers: str | Exception) -> None:
        self.clock = clock
        self.answers = list(answers)

    async def read(self) -> str:
        self.clock.time += 2
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def down(text: str = "refused") -> UpstreamDown:
    return UpstreamDown(text, upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE)


def make_poller(*answers: str | Exception) -> SourcePoller[str]:
    clock = Clock()
    return SourcePoller(Source.KAFKA, ScriptedSource(clock, *answers).read, get_logger(), clock)


async def test_a_successful_poll_keeps_snapshot_time_and_duration() -> None:
    poller = make_poller("snapshot")
    assert (poller.last, poller.polled) == (LastPoll(), False)
    await poller.poll()
    assert (poller.last, poller.polled) == (LastPoll("snapshot", 1002.0, 2.0), True)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(down("Kafka at x: refused"), "Kafka at x: refused"), (KeyError("bug"), "KeyError('bug')")],
)
async def test_a_failed_poll_keeps_only_the_time_of_the_last_success(error: Exception, reason: str) -> None:
    poller = make_poller("snapshot", error)
    await poller.poll()
    await poller.poll()
    assert poller.last == LastPoll(None, 1002.0, 2.0, reason)


async def test_a_failed_first_poll_counts_as_polled() -> None:
    poller = make_poller(down())
    await poller.poll()
    assert poller.polled
    assert poller.last.at == 0


async def test_an_outage_is_logged_at_its_start_and_at_its_end() -> None:
    poller = make_poller(down(), down(), down("another"), "snapshot", "snapshot")
    with capture_logs() as lines:
        for _ in range(5):
            await poller.poll()
    assert [(line["log_level"], line.get("error")) for line in lines] == [
        ("warning", "refused"),
        ("warning", "another"),
        ("info", None),
    ]


async def test_polling_continues_after_a_failure() -> None:
    answered = asyncio.Event()

    async def read() -> None:
        reads.append(len(reads))
        if len(reads) == 1:
            raise down()
        if len(reads) == 3:
            answered.set()

    reads: list[int] = []
    running = asyncio.create_task(SourcePoller(Source.KAFKA, read, get_logger()).run(interval=0.001))
    await asyncio.wait_for(answered.wait(), 10)
    running.cancel()
    await asyncio.wait([running])
