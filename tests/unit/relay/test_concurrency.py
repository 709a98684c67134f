"""Working through many items."""

import asyncio

import pytest

from consumer.relay.concurrency import CONCURRENT_ITEMS, Pace, map_concurrently


async def test_results_come_in_order_of_the_items_a_few_at_a_time() -> None:
    running = most = 0
    progress: list[tuple[int, int]] = []

    async def double(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (number % 3))
        running -= 1
        return 2 * number

    results = await map_concurrently(double, range(50), lambda done, total: progress.append((done, total)))
    assert results == list(range(0, 100, 2))
    assert most == CONCURRENT_ITEMS
    assert progress == [(done, 50) for done in range(1, 51)]


async def test_first_error_is_raised_as_itself_and_cancels_the_rest() -> None:
    begun: list[int] = []

    async def fail(number: int) -> None:
        begun.append(number)
        if number == 3:
            raise ValueError("odd")
        await asyncio.sleep(60)

    with pytest.raises(ValueError, match="odd"):
        await map_concurrently(fail, range(50))
    assert len(begun) <= CONCURRENT_ITEMS + 1


async def test_pace_lets_requests_through_at_its_rate_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    monkeypatch.setattr("consumer.relay.concurrency.asyncio.sleep", sleep)
    now = 100.0
    pace = Pace(10.0, lambda: now)
    for _ in range(3):
        await pace.wait(2)
    now = 200.0
    await pace.wait(2)
    assert delays == pytest.approx([0.2, 0.4])
