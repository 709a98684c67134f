"""A company's follower: its pace, what it does about trouble, and what it keeps."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from consumer.errors import DeadLetterReason, DownKind, Permanent, Transient, Upstream, UpstreamDown
from consumer.http.transport import RequestTimeout
from consumer.relay.checkpoints import Checkpoint, CommentPosition, RunPosition
from consumer.relay.comment_poller import Looked
from consumer.relay.company_follower import Company
from consumer.relay.signals import Moved, RelaySignal, RelayState, Source, state_of
from tests.unit.relay.paper import COMPANY, FORBIDDEN, NOON


class Comments:
    """In the place of a `CommentFeed`: notes how it was asked, and does what it is told."""

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.do: Callable[[], Awaitable[Looked]] | None = None

    async def look(self, at: CommentPosition, *, thorough: bool) -> Looked:
        self.asked.append(thorough)
        if self.do is not None:
            return await self.do()
        return Looked(at, more=False, settled=True)


class Runs:
    def __init__(self) -> None:
        self.asked: list[tuple[bool, tuple[str, ...]]] = []

    async def look(self, at: RunPosition, *, thorough: bool, hinted: tuple[str, ...]) -> RunPosition:
        self.asked.append((thorough, hinted))
        return RunPosition(created=at.created + 1)


class Kept:
    def __init__(self) -> None:
        self.written: list[Checkpoint] = []

    async def write(self, checkpoint: Checkpoint) -> None:
        self.written.append(checkpoint)


class Desk:
    def __init__(self, poll: float = 0.001, sweep: float = 10.0) -> None:
        self.now = NOON
        self.comments, self.runs, self.kept, self.heard = Comments(), Runs(), Kept(), list[RelaySignal]()
        self.company = Company(
            Checkpoint.fresh(COMPANY, NOON),
            self.comments,  # type: ignore[arg-type]
            self.runs,  # type: ignore[arg-type]
            self.kept,  # type: ignore[arg-type]
            self.heard.append,
            poll=poll,
            sweep=sweep,
            now=lambda: self.now,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.company.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 - whatever the follower does is a turn of the loop
                await asyncio.sleep(0)

    @property
    def moves(self) -> list[RelayState]:
        return [each.state for each in self.heard if isinstance(each, Moved)]


async def test_it_looks_thoroughly_at_first_and_then_now_and_then() -> None:
    desk = Desk()
    async with desk.running():
        await desk.until(lambda: len(desk.comments.asked) == 3)
        desk.now += 10
        await desk.until(lambda: len(desk.comments.asked) >= 5)
    assert desk.comments.asked[:3] == [True, False, False]
    assert desk.comments.asked.count(True) == 2


async def test_a_thorough_look_that_settled_not_all_is_repeated_at_the_next() -> None:
    desk = Desk()

    async def unsettled() -> Looked:
        return Looked(CommentPosition(activity=NOON, issues=NOON), more=False, settled=len(desk.comments.asked) > 2)

    desk.comments.do = unsettled
    async with desk.running():
        await desk.until(lambda: len(desk.comments.asked) == 5)
    assert desk.comments.asked[:5] == [True, True, True, False, False]


async def test_what_was_read_is_kept_with_both_sources_in_it() -> None:
    desk = Desk()
    later = CommentPosition(activity=NOON + 5, issues=NOON + 5)

    async def look() -> Looked:
        return Looked(later, more=False, settled=True)

    desk.comments.do = look
    async with desk.running():
        await desk.until(lambda: len(desk.kept.written) >= 3)
    last = desk.kept.written[-1]
    assert last.comments == later
    assert last.runs.created > NOON


async def test_a_hint_ends_the_wait() -> None:
    desk = Desk(poll=1_000)
    async with desk.running():
        await desk.until(lambda: len(desk.runs.asked) == 1)
        desk.company.wakes[Source.RUNS].set(runs=["run-1"])
        await desk.until(lambda: len(desk.runs.asked) == 2)
    assert desk.runs.asked[1] == (False, ("run-1",))


async def test_a_hint_that_came_to_nothing_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.stream.retry.RetryPolicy.delay", lambda *_: 0.0)
    desk = Desk(poll=1_000)
    asked: list[tuple[str, ...]] = []

    async def look(at: RunPosition, *, thorough: bool, hinted: tuple[str, ...]) -> RunPosition:
        asked.append(hinted)
        if len(asked) == 2:
            raise Transient("500", upstream=Upstream.PAPERCLIP)
        return at

    desk.runs.look = look  # type: ignore[method-assign]
    async with desk.running():
        await desk.until(lambda: len(asked) == 1)
        desk.company.wakes[Source.RUNS].set(runs=["run-1"])
        await desk.until(lambda: len(asked) == 3)
    assert asked == [(), ("run-1",), ("run-1",)]


async def test_trouble_with_comments_does_not_hold_up_runs_and_is_told_once_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("consumer.stream.retry.RetryPolicy.delay", lambda *_: 0.0)
    desk = Desk()
    failures = [UpstreamDown("401", upstream=Upstream.PAPERCLIP, kind=DownKind.REFUSED), KeyError("items")]

    async def look() -> Looked:
        if failures:
            raise failures.pop(0)
        return Looked(CommentPosition(activity=NOON, issues=NOON), more=False, settled=True)

    desk.comments.do = look
    read_at = desk.company.read_at[Source.COMMENTS]
    async with desk.running():
        await desk.until(lambda: RelayState.FOLLOWING in desk.moves)
        await desk.until(lambda: len(desk.runs.asked) > 2)
    assert desk.moves == [RelayState.REFUSED, RelayState.FAILING, RelayState.FOLLOWING]
    assert desk.company.state is RelayState.FOLLOWING
    assert desk.company.read_at[Source.COMMENTS] >= read_at


def timed_out() -> Transient:
    error = Transient("timed out", upstream=Upstream.PAPERCLIP)
    error.__cause__ = RequestTimeout()
    return error


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (UpstreamDown("401", upstream=Upstream.PAPERCLIP, kind=DownKind.REFUSED), RelayState.REFUSED),
        (UpstreamDown("refused", upstream=Upstream.PAPERCLIP, kind=DownKind.UNREACHABLE), RelayState.UNREACHABLE),
        (UpstreamDown("no broker", upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE), RelayState.BLOCKED),
        (FORBIDDEN, RelayState.FORBIDDEN),
        (Permanent("404", reason=DeadLetterReason.REJECTED, upstream=Upstream.PAPERCLIP), RelayState.FAILING),
        (Transient("500", upstream=Upstream.PAPERCLIP), RelayState.FAILING),
        (timed_out(), RelayState.SLOW),
    ],
)
def test_kinds_of_trouble_are_told_apart(error: Permanent, state: RelayState) -> None:
    assert state_of(error) is state
