"""`issue.comment.deleted` and `.cancelled`."""

from typing import Any

import pytest

from consumer.errors import HandlingError, NotYet, Upstream
from consumer.handlers.forget import CANCEL_SETTLES_AFTER, forget
from consumer.handlers.results import Done, HandlerResult, Skipped, SkipReason
from consumer.handlers.retain import retain
from consumer.memory.documents import Memory
from consumer.memory.policy import BankPart, MemoryPolicy, UserSource
from tests.support.fakes import HandlerFixture, unreachable
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


async def do(fixture: HandlerFixture, **payload: Any) -> HandlerResult:
    return await forget(deleted(**payload), FRESH, fixture.context)


async def do_until_done(fixture: HandlerFixture) -> HandlerResult:
    """The first look finds something unfinished; the second comes when what it cancelled has settled."""
    with pytest.raises(NotYet):
        await do(fixture)
    fixture.now += CANCEL_SETTLES_AFTER + 1
    return await do(fixture)


async def retained(fixture: HandlerFixture) -> None:
    await retain(created(), FRESH, fixture.context)
    fixture.hindsight.calls.clear()


def banks_of(fixture: HandlerFixture, method: str) -> list[str]:
    return [call[0] for call in fixture.hindsight.called(method)]


async def test_a_stored_comment_is_gone() -> None:
    fixture = HandlerFixture()
    await retained(fixture)
    fixture.hindsight.run_workers()
    assert fixture.hindsight.documents == {AGENT_COMMENT: bank(ADA)}
    assert await do(fixture) == Done()
    assert fixture.hindsight.documents == {}


async def test_it_is_looked_for_in_every_agents_bank_with_three_calls_each() -> None:
    fixture = HandlerFixture()
    await retained(fixture)
    fixture.hindsight.run_workers()
    document = fixture.hindsight.banks[bank(ADA)].pop(AGENT_COMMENT)
    fixture.hindsight.banks[bank(CID)] = {AGENT_COMMENT: document}  # attribution was another once
    assert await do(fixture) == Done()
    assert fixture.hindsight.documents == {}
    assert sorted(banks_of(fixture, "unfinished_retains")) == sorted([bank(ADA), bank(BEN), bank(CID)])
    assert sorted(banks_of(fixture, "delete_document")) == sorted([bank(ADA), bank(BEN), bank(CID)])
    assert len(fixture.hindsight.calls) == 9


async def test_twice_is_as_once_and_nothing_to_forget_is_fine() -> None:
    fixture = HandlerFixture()
    await retained(fixture)
    fixture.hindsight.run_workers()
    assert [await do(fixture) for _ in range(2)] == [Done(), Done()]


async def test_a_queued_retain_is_cancelled_and_never_brings_it_back() -> None:
    fixture = HandlerFixture()
    await retained(fixture)
    assert await do_until_done(fixture) == Done()
    assert len(fixture.hindsight.called("cancel")) == 1
    fixture.hindsight.run_workers()
    assert fixture.hindsight.documents == {}


async def test_a_queued_retain_that_is_taken_up_just_before_its_cancel_never_brings_it_back() -> None:
    """Hindsight calls it cancelled, and stores its document all the same."""
    fixture = HandlerFixture()
    await retained(fixture)
    cancel = fixture.hindsight.cancel

    async def taken_up(bank: str, operation_id: str) -> bool:
        fixture.hindsight.start_workers()
        return await cancel(bank, operation_id)

    fixture.hindsight.cancel = taken_up  # type: ignore[method-assign]
    with pytest.raises(NotYet):
        await do(fixture)
    fixture.hindsight.run_workers()
    assert fixture.hindsight.documents == {AGENT_COMMENT: bank(ADA)}
    fixture.now += CANCEL_SETTLES_AFTER + 1
    assert await do(fixture) == Done()
    assert fixture.hindsight.documents == {}


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
    fixture = HandlerFixture()
    await retained(fixture)
    (child,) = fixture.hindsight.children
    child.status, child.updated_at = "cancelled", updated_at
    if settled:
        assert await do(fixture) == Done()
    else:
        with pytest.raises(NotYet):
            await do(fixture)


async def test_a_retain_under_way_is_waited_for() -> None:
    """Cancelled, it would count as finished, and its worker would store the document after the delete."""
    fixture = HandlerFixture()
    await retained(fixture)
    fixture.hindsight.start_workers()
    with pytest.raises(NotYet) as raised:
        await do(fixture)
    assert raised.value.upstream is Upstream.HINDSIGHT
    assert fixture.hindsight.called("cancel") == []
    fixture.hindsight.run_workers()
    assert await do(fixture) == Done()
    assert fixture.hindsight.documents == {}


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
    fixture = HandlerFixture()
    await retained(fixture)
    (child,) = fixture.hindsight.children
    child.status, child.created_at = "processing", created_at
    if abandoned:
        assert await do_until_done(fixture) == Done()
        fixture.hindsight.run_workers()
        assert fixture.hindsight.documents == {}
    else:
        with pytest.raises(NotYet):
            await do(fixture)


async def test_a_refused_cancel_means_that_it_ended_just_now() -> None:
    fixture = HandlerFixture()
    await retained(fixture)

    async def too_late(bank: str, operation_id: str) -> bool:
        fixture.hindsight.run_workers()
        return False

    fixture.hindsight.cancel = too_late  # type: ignore[method-assign]
    assert await do_until_done(fixture) == Done()
    assert fixture.hindsight.documents == {}


async def test_a_refused_cancel_of_what_goes_on_is_waited_for() -> None:
    fixture = HandlerFixture()
    await retained(fixture)

    async def taken_up(bank: str, operation_id: str) -> bool:
        fixture.hindsight.start_workers()
        return False

    fixture.hindsight.cancel = taken_up  # type: ignore[method-assign]
    with pytest.raises(NotYet):
        await do(fixture)


async def test_one_bank_that_waits_holds_up_no_other() -> None:
    fixture = HandlerFixture()
    await retained(fixture)
    fixture.hindsight.start_workers()
    fixture.hindsight.banks[bank(CID)] = {AGENT_COMMENT: Memory(AGENT_COMMENT, "old", None, {})}
    with pytest.raises(NotYet):
        await do(fixture)
    assert fixture.hindsight.banks[bank(CID)] == {}


async def test_retains_of_other_comments_are_left_alone() -> None:
    fixture = HandlerFixture()
    await retained(fixture)
    fixture.hindsight.children[0].memory = Memory(UNKNOWN, "another", None, {})
    assert await do(fixture) == Done()
    assert fixture.hindsight.called("cancel") == []


async def test_an_agent_that_is_deleted_is_known_from_the_event() -> None:
    fixture = HandlerFixture()
    fixture.paperclip.agent_ids = [CID]
    comment = {**COMMENTS[AGENT_COMMENT], "authorAgentId": ADA, "derivedAuthorAgentId": BEN}
    await do(fixture, agentId=ADA)
    await do(fixture, comment=comment)
    await do(fixture, issue={"id": ISSUE, "assigneeAgentId": BEN})
    looked = banks_of(fixture, "delete_document")
    assert looked == [bank(ADA), bank(CID), bank(ADA), bank(BEN), bank(CID), bank(BEN), bank(CID)]


async def test_no_comment_id() -> None:
    fixture = HandlerFixture()
    assert await do(fixture, commentId=None) == Skipped(SkipReason.NO_COMMENT_ID)
    assert fixture.hindsight.calls == []


@pytest.mark.parametrize(
    ("policy", "only"),
    [
        (MemoryPolicy(static_bank="shared", granularity=WITH_USER), "shared"),
        (MemoryPolicy(granularity=(BankPart.COMPANY,)), f"paperclip::{COMPANY}"),
    ],
)
async def test_banks_that_agents_share_need_no_list_of_agents(policy: MemoryPolicy, only: str) -> None:
    for fixture in (HandlerFixture(policy), HandlerFixture(policy, has_paperclip=False)):
        assert await do(fixture) == Done(bank=only)
        assert banks_of(fixture, "delete_document") == [only]
        assert fixture.paperclip.calls == []
        assert fixture.warnings == []


async def test_the_gates_of_today_do_not_keep_what_was_stored() -> None:
    fixture = HandlerFixture()
    await retained(fixture)
    fixture.hindsight.run_workers()
    fixture.policy = MemoryPolicy(auto_retain=False, enabled_agents=frozenset({BEN}))
    assert await do(fixture) == Done()
    assert fixture.hindsight.documents == {}


async def test_banks_with_a_user_and_without() -> None:
    fixture = HandlerFixture(MemoryPolicy(granularity=WITH_USER, user_sources=BY_CREATOR))
    fixture.paperclip.agent_ids = [ADA]
    assert await do(fixture) == Done()
    assert banks_of(fixture, "delete_document") == [bank(ADA, "local-board"), bank(ADA)]
    assert fixture.warnings == []


async def test_an_issue_that_is_gone_is_said_and_banks_without_a_user_are_done() -> None:
    fixture = HandlerFixture(MemoryPolicy(granularity=WITH_USER, user_sources=BY_CREATOR))
    del fixture.paperclip.issues[ISSUE]
    fixture.paperclip.agent_ids = [ADA]
    assert await do(fixture) == Done(bank=bank(ADA))
    assert len(fixture.warnings) == 1


async def test_no_user_and_no_other_part() -> None:
    fixture = HandlerFixture(MemoryPolicy(granularity=(BankPart.USER,)))
    assert await do(fixture) == Skipped(SkipReason.NO_USER)


async def test_without_a_paperclip_api_only_the_events_own_agent_is_known() -> None:
    fixture = HandlerFixture(has_paperclip=False)
    assert await do(fixture, agentId=ADA) == Done(bank=bank(ADA))
    assert len(fixture.warnings) == 1
    assert await do(fixture) == Skipped(SkipReason.NO_AGENT)


@pytest.mark.parametrize("method", ["unfinished_retains", "cancel", "delete_document"])
async def test_a_failure_on_the_way_is_raised_and_the_next_try_ends_it(method: str) -> None:
    fixture = HandlerFixture()
    await retained(fixture)
    fixture.hindsight.fail(method, unreachable(Upstream.HINDSIGHT))
    with pytest.raises(HandlingError):
        await do(fixture)
    assert fixture.hindsight.failures[method] == []
    assert await do_until_done(fixture) == Done()
    fixture.hindsight.run_workers()
    assert fixture.hindsight.documents == {}
