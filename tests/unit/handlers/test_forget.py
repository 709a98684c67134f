"""`issue.comment.deleted` and `.cancelled`."""

from typing import Any

import pytest

from consumer.errors import HandlingError, NotYet, Upstream
from consumer.handlers.context import Memory
from consumer.handlers.forget import SETTLED_AFTER, forget
from consumer.handlers.results import Done, Outcome, Skipped, SkipReason
from consumer.handlers.retain import retain
from consumer.memory.policy import BankPart, Rules, UserSource
from tests.support.fakes import FakePaperclip, World, unreachable
from tests.unit.handlers.samples import (
    ADA,
    AGENT_COMMENT,
    BEN,
    CID,
    COMMENTS,
    COMPANY,
    FRESH,
    UNKNOWN,
    bank,
    created,
    deleted,
)

WITH_USER = (BankPart.COMPANY, BankPart.AGENT, BankPart.USER)
BY_CREATOR = frozenset({UserSource.CREATED_BY_USER_ID})
ISSUE = COMMENTS[AGENT_COMMENT]["issueId"]


def paperclip_of(world: World) -> FakePaperclip:
    assert world.paperclip is not None
    return world.paperclip


async def do(world: World, **payload: Any) -> Outcome:
    return await forget(deleted(**payload), FRESH, world.needs)


async def do_until_done(world: World) -> Outcome:
    """The first look finds something unfinished; the second comes when what it cancelled has settled."""
    with pytest.raises(NotYet):
        await do(world)
    world.now += SETTLED_AFTER + 1
    return await do(world)


async def retained(world: World) -> None:
    await retain(created(), FRESH, world.needs)
    world.hindsight.calls.clear()


def banks_of(world: World, method: str) -> list[str]:
    return [call[0] for call in world.hindsight.called(method)]


async def test_a_stored_comment_is_gone() -> None:
    world = World()
    await retained(world)
    world.hindsight.digest()
    assert world.hindsight.documents == {AGENT_COMMENT: bank(ADA)}
    assert await do(world) == Done()
    assert world.hindsight.documents == {}


async def test_it_is_looked_for_in_every_agents_bank_with_three_calls_each() -> None:
    world = World()
    await retained(world)
    world.hindsight.digest()
    document = world.hindsight.banks[bank(ADA)].pop(AGENT_COMMENT)
    world.hindsight.banks[bank(CID)] = {AGENT_COMMENT: document}  # attribution was another once
    assert await do(world) == Done()
    assert world.hindsight.documents == {}
    assert sorted(banks_of(world, "unfinished_retains")) == sorted([bank(ADA), bank(BEN), bank(CID)])
    assert sorted(banks_of(world, "delete_document")) == sorted([bank(ADA), bank(BEN), bank(CID)])
    assert len(world.hindsight.calls) == 9


async def test_twice_is_as_once_and_nothing_to_forget_is_fine() -> None:
    world = World()
    await retained(world)
    world.hindsight.digest()
    assert [await do(world) for _ in range(2)] == [Done(), Done()]


async def test_a_queued_retain_is_cancelled_and_never_brings_it_back() -> None:
    world = World()
    await retained(world)
    assert await do_until_done(world) == Done()
    assert len(world.hindsight.called("cancel")) == 1
    world.hindsight.digest()
    assert world.hindsight.documents == {}


async def test_a_queued_retain_that_is_taken_up_just_before_its_cancel_never_brings_it_back() -> None:
    """Hindsight calls it cancelled, and stores its document all the same."""
    world = World()
    await retained(world)
    cancel = world.hindsight.cancel

    async def taken_up(bank: str, operation_id: str) -> bool:
        world.hindsight.begin()
        return await cancel(bank, operation_id)

    world.hindsight.cancel = taken_up  # type: ignore[method-assign]
    with pytest.raises(NotYet):
        await do(world)
    world.hindsight.digest()
    assert world.hindsight.documents == {AGENT_COMMENT: bank(ADA)}
    world.now += SETTLED_AFTER + 1
    assert await do(world) == Done()
    assert world.hindsight.documents == {}


@pytest.mark.parametrize(
    ("updated_at", "settled"),
    [
        ("2026-11-30T10:19:30+00:00", False),  # 30 s before the clock of the tests
        ("2026-11-30T10:19:29+00:00", True),
        ("2026-11-30T10:20:05+00:00", False),  # its clock is ahead
        (None, True),
    ],
)
async def test_how_long_a_cancelled_retain_is_looked_after(updated_at: str | None, settled: bool) -> None:
    world = World()
    await retained(world)
    (child,) = world.hindsight.children
    child.status, child.updated_at = "cancelled", updated_at
    if settled:
        assert await do(world) == Done()
    else:
        with pytest.raises(NotYet):
            await do(world)


async def test_a_retain_under_way_is_waited_for() -> None:
    """Cancelled, it would count as finished, and its worker would store the document after the delete."""
    world = World()
    await retained(world)
    world.hindsight.begin()
    with pytest.raises(NotYet) as raised:
        await do(world)
    assert raised.value.upstream is Upstream.HINDSIGHT
    assert world.hindsight.called("cancel") == []
    world.hindsight.digest()
    assert await do(world) == Done()
    assert world.hindsight.documents == {}


@pytest.mark.parametrize(
    ("created_at", "abandoned"),
    [
        ("2026-11-30T09:20:00+00:00", False),  # an hour before the clock of the tests
        ("2026-11-30T09:19:59+00:00", True),
        ("2026-11-30T10:19:59+01:00", True),
        ("2026-11-30T09:19:59", True),
        (None, False),
    ],
)
async def test_a_retain_whose_worker_is_dead_is_cancelled(created_at: str | None, abandoned: bool) -> None:
    world = World()
    await retained(world)
    (child,) = world.hindsight.children
    child.status, child.created_at = "processing", created_at
    if abandoned:
        assert await do_until_done(world) == Done()
        world.hindsight.digest()
        assert world.hindsight.documents == {}
    else:
        with pytest.raises(NotYet):
            await do(world)


async def test_a_refused_cancel_means_that_it_ended_just_now() -> None:
    world = World()
    await retained(world)

    async def too_late(bank: str, operation_id: str) -> bool:
        world.hindsight.digest()
        return False

    world.hindsight.cancel = too_late  # type: ignore[method-assign]
    assert await do_until_done(world) == Done()
    assert world.hindsight.documents == {}


async def test_a_refused_cancel_of_what_goes_on_is_waited_for() -> None:
    world = World()
    await retained(world)

    async def taken_up(bank: str, operation_id: str) -> bool:
        world.hindsight.begin()
        return False

    world.hindsight.cancel = taken_up  # type: ignore[method-assign]
    with pytest.raises(NotYet):
        await do(world)


async def test_one_bank_that_waits_holds_up_no_other() -> None:
    world = World()
    await retained(world)
    world.hindsight.begin()
    world.hindsight.banks[bank(CID)] = {AGENT_COMMENT: Memory(AGENT_COMMENT, "old", None, {})}
    with pytest.raises(NotYet):
        await do(world)
    assert world.hindsight.banks[bank(CID)] == {}


async def test_retains_of_other_comments_are_left_alone() -> None:
    world = World()
    await retained(world)
    world.hindsight.children[0].memory = Memory(UNKNOWN, "another", None, {})
    assert await do(world) == Done()
    assert world.hindsight.called("cancel") == []


async def test_an_agent_that_is_deleted_is_known_from_the_event() -> None:
    world = World()
    paperclip_of(world).agent_ids = [CID]
    comment = {**COMMENTS[AGENT_COMMENT], "authorAgentId": ADA, "derivedAuthorAgentId": BEN}
    await do(world, agentId=ADA)
    await do(world, comment=comment)
    await do(world, issue={"id": ISSUE, "assigneeAgentId": BEN})
    looked = banks_of(world, "delete_document")
    assert looked == [bank(ADA), bank(CID), bank(ADA), bank(BEN), bank(CID), bank(BEN), bank(CID)]


async def test_no_comment_id() -> None:
    world = World()
    assert await do(world, commentId=None) == Skipped(SkipReason.NO_COMMENT_ID)
    assert world.hindsight.calls == []


@pytest.mark.parametrize(
    ("rules", "only"),
    [
        (Rules(static_bank="shared", granularity=WITH_USER), "shared"),
        (Rules(granularity=(BankPart.COMPANY,)), f"paperclip::{COMPANY}"),
    ],
)
async def test_banks_that_agents_share_need_no_list_of_agents(rules: Rules, only: str) -> None:
    for world in (World(rules), World(rules, paperclip=None)):
        assert await do(world) == Done(bank=only)
        assert banks_of(world, "delete_document") == [only]
        assert world.paperclip is None or world.paperclip.calls == []
        assert world.warnings == []


async def test_the_gates_of_today_do_not_keep_what_was_stored() -> None:
    world = World()
    await retained(world)
    world.hindsight.digest()
    world.rules = Rules(auto_retain=False, enabled_agents=frozenset({BEN}))
    assert await do(world) == Done()
    assert world.hindsight.documents == {}


async def test_banks_with_a_user_and_without() -> None:
    world = World(Rules(granularity=WITH_USER, user_sources=BY_CREATOR))
    paperclip_of(world).agent_ids = [ADA]
    assert await do(world) == Done()
    assert banks_of(world, "delete_document") == [bank(ADA, "local-board"), bank(ADA)]
    assert world.warnings == []


async def test_an_issue_that_is_gone_is_said_and_banks_without_a_user_are_done() -> None:
    world = World(Rules(granularity=WITH_USER, user_sources=BY_CREATOR))
    del paperclip_of(world).issues[ISSUE]
    paperclip_of(world).agent_ids = [ADA]
    assert await do(world) == Done(bank=bank(ADA))
    assert len(world.warnings) == 1


async def test_no_user_and_no_other_part() -> None:
    world = World(Rules(granularity=(BankPart.USER,)))
    assert await do(world) == Skipped(SkipReason.NO_USER)


async def test_without_a_paperclip_api_only_the_events_own_agent_is_known() -> None:
    world = World(paperclip=None)
    assert await do(world, agentId=ADA) == Done(bank=bank(ADA))
    assert len(world.warnings) == 1
    assert await do(world) == Skipped(SkipReason.NO_AGENT)


@pytest.mark.parametrize("method", ["unfinished_retains", "cancel", "delete_document"])
async def test_a_failure_on_the_way_is_raised_and_the_next_try_ends_it(method: str) -> None:
    world = World()
    await retained(world)
    world.hindsight.fail(method, unreachable(Upstream.HINDSIGHT))
    with pytest.raises(HandlingError):
        await do(world)
    assert world.hindsight.failures[method] == []
    assert await do_until_done(world) == Done()
    world.hindsight.digest()
    assert world.hindsight.documents == {}
