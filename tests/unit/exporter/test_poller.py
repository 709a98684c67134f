import asyncio

import pytest
from structlog import get_logger
from structlog.testing import capture_logs

from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.exporter.poller import Lookout
from consumer.exporter.snapshot import Outcome, Source


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class Script:
    """A source that answers in turn."""

    def __init__(self, clock: Clock, *answers: str | Exception) -> None:
        self.clock = clock
        self.answers = list(answers)

    async def look(self) -> str:
        self.clock.time += 2
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def down(text: str = "refused") -> UpstreamDown:
    return UpstreamDown(text, upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE)


def lookout(*answers: str | Exception) -> Lookout[str]:
    clock = Clock()
    return Lookout(Source.KAFKA, Script(clock, *answers).look, get_logger(), clock)


async def test_an_answer_is_kept_with_when_it_came_and_how_long_it_took() -> None:
    watch = lookout("seen")
    assert (watch.outcome, watch.looked) == (Outcome(), False)
    await watch.once()
    assert (watch.outcome, watch.looked) == (Outcome("seen", 1002.0, 2.0), True)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(down("Kafka at x: refused"), "Kafka at x: refused"), (KeyError("bug"), "KeyError('bug')")],
)
async def test_a_failure_leaves_nothing_to_be_seen_but_when_it_last_was(error: Exception, reason: str) -> None:
    watch = lookout("seen", error)
    await watch.once()
    await watch.once()
    assert watch.outcome == Outcome(None, 1002.0, 2.0, reason)


async def test_a_first_failure_counts_as_a_look() -> None:
    watch = lookout(down())
    await watch.once()
    assert watch.looked
    assert watch.outcome.at == 0


async def test_an_outage_is_told_once_and_its_end_too() -> None:
    watch = lookout(down(), down(), down("another"), "seen", "seen")
    with capture_logs() as lines:
        for _ in range(5):
            await watch.once()
    assert [(line["log_level"], line.get("error")) for line in lines] == [
        ("warning", "refused"),
        ("warning", "another"),
        ("info", None),
    ]


async def test_it_goes_on_after_a_failure() -> None:
    answered = asyncio.Event()

    async def look() -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            raise down()
        if len(looks) == 3:
            answered.set()

    looks: list[int] = []
    running = asyncio.create_task(Lookout(Source.KAFKA, look, get_logger()).run(interval=0.001))
    await asyncio.wait_for(answered.wait(), 10)
    running.cancel()
    await asyncio.wait([running])
