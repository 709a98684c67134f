"""The relay: where it starts, and which companies it follows."""

from collections.abc import Callable

import pytest

from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.relay import relay as module
from consumer.relay.checkpoints import Checkpoint
from consumer.relay.hooks import Notice, RelayState, Source
from consumer.relay.relay import Relay
from tests.support.fake_feed import COMPANY, NOON, new_id
from tests.unit.relay.harness import RelayHarness, eventually, running


@pytest.fixture(autouse=True)
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DISCOVERY_INTERVAL", 0.001)
    monkeypatch.setattr("consumer.stream.retry.RetryPolicy.delay", lambda *_: 0.0)


@pytest.fixture
def harness() -> RelayHarness:
    return RelayHarness()


async def run(relay: Relay, until: Callable[[], bool]) -> None:
    async with running(relay.run()) as task:
        await eventually(until, task)


@pytest.mark.parametrize(
    ("start", "date", "expected"),
    [
        ("now", "Mon, 30 Nov 2026 12:00:00 GMT", NOON),
        ("now", None, NOON + 500),
        ("now", "soon", NOON + 500),
        ("beginning", None, 0.0),
        ("2026-11-30T12:00:30+00:00", None, NOON + 30),
    ],
)
async def test_first_start_is_by_paperclips_clock(
    harness: RelayHarness, start: str, date: str | None, expected: float
) -> None:
    harness.server.date = date
    relay = harness.relay(start)
    await run(relay, lambda: relay.ready)
    assert harness.notices == ["following Paperclip", "following a company"]
    assert harness.checkpoints.start == expected
    assert harness.followers[COMPANY].checkpoint == Checkpoint.fresh(COMPANY, expected)


async def test_known_company_goes_on_at_its_checkpoint_and_a_new_one_at_the_first_start(harness: RelayHarness) -> None:
    new = new_id()
    harness.server.companies = (COMPANY, new)
    harness.checkpoints.start = NOON - 1_000
    known = harness.checkpoints.companies[COMPANY] = Checkpoint.fresh(COMPANY, NOON - 500)
    await run(harness.relay("beginning"), lambda: len(harness.followers) == 2)
    assert harness.followers[COMPANY].checkpoint == known
    assert harness.followers[new].checkpoint == Checkpoint.fresh(new, NOON - 1_000)


async def test_new_company_is_followed_and_a_gone_one_is_not_without_a_restart(harness: RelayHarness) -> None:
    gone, new = new_id(), new_id()
    harness.server.companies = (gone,)

    def changed() -> bool:
        if gone in harness.followers and new not in harness.followers:
            harness.server.companies = (new,)
        return new in harness.followers and harness.followers[gone].stopped

    await run(harness.relay(), changed)
    assert harness.followers[new].stopped  # with the relay itself
    assert harness.notices.count("the key can no longer see a company: not following it") == 1


async def test_only_configured_companies_are_followed_and_an_invisible_one_is_a_notice(harness: RelayHarness) -> None:
    other, configured, invisible = new_id(), new_id(), new_id()
    harness.server.companies = (other, configured)
    relay = harness.relay(companies=(configured, invisible))
    await run(relay, lambda: relay.ready)
    assert harness.followers.keys() == {configured}
    assert Notice("the key cannot see a configured company", {"company": invisible}) in harness.reported


async def test_relay_waits_for_kafka_and_for_a_good_key(harness: RelayHarness) -> None:
    harness.checkpoints.failures = [UpstreamDown("no broker", upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE)]
    harness.server.failures = [UpstreamDown("401", upstream=Upstream.PAPERCLIP, kind=DownKind.REFUSED)]
    relay = harness.relay()
    states: list[RelayState] = []
    caught_up_at: list[float] = []

    def ready() -> bool:
        states.extend(relay.states())
        caught_up_at.append(relay.caught_up_at(Source.RUNS))
        return relay.ready

    await run(relay, ready)
    assert list(dict.fromkeys(states)) == [RelayState.BLOCKED, RelayState.REFUSED, RelayState.FOLLOWING]
    assert (caught_up_at[0], caught_up_at[-1]) == (NOON + 500, NOON)  # nothing was read before it started


async def test_follower_that_fails_by_a_bug_ends_the_relay(harness: RelayHarness) -> None:
    def fail() -> bool:
        if COMPANY in harness.followers:
            harness.followers[COMPANY].error = RuntimeError("a bug")
        return False

    with pytest.raises(RuntimeError, match="a bug"):
        await run(harness.relay(), fail)
