"""Following a company: the pace of polls, failures, and the checkpoint."""

import pytest

from consumer.errors import DeadLetterReason, DownKind, HandlingError, Permanent, Transient, Upstream, UpstreamDown
from consumer.http.transport import RequestTimeout
from consumer.relay.checkpoints import CommentPosition, RunPosition
from consumer.relay.hooks import RelayState, Source, state_from_error
from consumer.relay.protocols import PollResult
from tests.support.fake_feed import FORBIDDEN, NOON
from tests.unit.relay.harness import RelayHarness, ScriptedPoller, eventually, running


class Pollers:
    """Scripted pollers, and what follows with them."""

    def __init__(self) -> None:
        self.relay = RelayHarness()
        self.comments, self.runs = ScriptedPoller[CommentPosition](), ScriptedPoller[RunPosition]()


@pytest.fixture
def pollers() -> Pollers:
    return Pollers()


@pytest.fixture
def no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.stream.retry.RetryPolicy.delay", lambda *_: 0.0)


async def test_first_poll_and_one_after_the_sweep_interval_are_full_sweeps(pollers: Pollers) -> None:
    follower = pollers.relay.follower(pollers.comments, pollers.runs, sweep_interval=10)
    async with running(follower.run()) as task:
        await eventually(lambda: len(pollers.comments.sweeps) == 3, task)
        pollers.relay.feed.advance(10)
        await eventually(lambda: len(pollers.comments.sweeps) >= 5, task)
    assert pollers.comments.sweeps[:3] == [True, False, False]
    assert pollers.comments.sweeps.count(True) == 2


async def test_full_sweep_that_left_comments_unsettled_is_repeated_by_the_next_poll(pollers: Pollers) -> None:
    pollers.comments.answer = lambda position: PollResult(position, settled=len(pollers.comments.sweeps) > 2)
    follower = pollers.relay.follower(pollers.comments, pollers.runs)
    async with running(follower.run()) as task:
        await eventually(lambda: len(pollers.comments.sweeps) == 5, task)
    assert pollers.comments.sweeps[:5] == [True, True, True, False, False]


@pytest.mark.usefixtures("no_back_off")
async def test_answer_in_another_shape_is_a_failure_and_not_the_end(pollers: Pollers) -> None:
    def answer(position: CommentPosition) -> PollResult[CommentPosition]:
        if len(pollers.comments.sweeps) == 1:
            raise AttributeError("'str' object has no attribute 'get'")
        return PollResult(position)

    pollers.comments.answer = answer
    follower = pollers.relay.follower(pollers.comments, pollers.runs)
    async with running(follower.run()) as task:
        await eventually(lambda: RelayState.FOLLOWING in pollers.relay.states, task)
    assert pollers.relay.states == [RelayState.FAILING, RelayState.FOLLOWING]


async def test_checkpoint_holds_the_positions_of_both_sources(pollers: Pollers) -> None:
    later = CommentPosition(activity=NOON + 5, issues=NOON + 5)
    pollers.comments.answer = lambda _: PollResult(later)
    pollers.runs.answer = lambda position: PollResult(RunPosition(created=position.created + 1))
    follower = pollers.relay.follower(pollers.comments, pollers.runs)
    async with running(follower.run()) as task:
        await eventually(lambda: len(pollers.relay.checkpoints.written) >= 3, task)
    last = pollers.relay.checkpoints.written[-1]
    assert last.comments == later
    assert last.runs.created > NOON


async def test_trigger_ends_the_wait_and_names_the_changed_run(pollers: Pollers) -> None:
    follower = pollers.relay.follower(pollers.comments, pollers.runs, poll_interval=1_000)
    async with running(follower.run()) as task:
        await eventually(lambda: len(pollers.runs.changed) == 1, task)
        follower.triggers[Source.RUNS].set(runs=["run-1"])
        await eventually(lambda: len(pollers.runs.changed) == 2, task)
    assert (pollers.runs.sweeps[1], pollers.runs.changed[1]) == (False, ("run-1",))


@pytest.mark.usefixtures("no_back_off")
async def test_changed_run_of_a_failed_poll_is_polled_again(pollers: Pollers) -> None:
    def answer(position: RunPosition) -> PollResult[RunPosition]:
        if len(pollers.runs.changed) == 2:
            raise Transient("500", upstream=Upstream.PAPERCLIP)
        return PollResult(position)

    pollers.runs.answer = answer
    follower = pollers.relay.follower(pollers.comments, pollers.runs, poll_interval=1_000)
    async with running(follower.run()) as task:
        await eventually(lambda: len(pollers.runs.changed) == 1, task)
        follower.triggers[Source.RUNS].set(runs=["run-1"])
        await eventually(lambda: len(pollers.runs.changed) == 3, task)
    assert pollers.runs.changed == [(), ("run-1",), ("run-1",)]


@pytest.mark.usefixtures("no_back_off")
async def test_failures_of_comments_do_not_hold_up_runs_and_end_as_following(pollers: Pollers) -> None:
    failures = [UpstreamDown("401", upstream=Upstream.PAPERCLIP, kind=DownKind.REFUSED), KeyError("items")]

    def answer(position: CommentPosition) -> PollResult[CommentPosition]:
        if failures:
            raise failures.pop(0)
        return PollResult(position)

    pollers.comments.answer = answer
    follower = pollers.relay.follower(pollers.comments, pollers.runs)
    caught_up_at = follower.caught_up_at[Source.COMMENTS]
    async with running(follower.run()) as task:
        await eventually(lambda: RelayState.FOLLOWING in pollers.relay.states, task)
        await eventually(lambda: len(pollers.runs.sweeps) > 2, task)
    assert pollers.relay.states == [RelayState.REFUSED, RelayState.FAILING, RelayState.FOLLOWING]
    assert follower.state is RelayState.FOLLOWING
    assert follower.caught_up_at[Source.COMMENTS] >= caught_up_at


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
def test_state_from_error(error: HandlingError, state: RelayState) -> None:
    assert state_from_error(error) is state
