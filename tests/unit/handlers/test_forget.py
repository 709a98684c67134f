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


async def handle(fixture: HandlerFixture, **payload: Any) -> HandlerResult:
    return await forget(deleted(**payload), FRESH, fixture.context)


async def handle_until_done(fixture: HandlerFixture) -> HandlerResult:
    """The first attempt cancels a retain; the second comes after the cancel has settled."""
    with pytest.raises(NotYet):
        await handle(fixture)
    fixture.now += CANCEL_SETTLES_AFTER + 1
    return await handle(fixture)


async def retain_comment(fixture: HandlerFixture) -> None:
    await retain(created(), FRESH, fixture.context)
    fixture.hindsight.calls.clear()


def banks_called(fixture: HandlerFixture, method: str) -> list[str]:
    return [call[0] for call in fixture.hindsight.called(method)]


async def test_forget_deletes_a_stored_comment() -> None:
    fixture = HandlerFixture()
    await retain_comment(fixture)
    fixture.hindsight.run_workers()
    assert fixture.hindsight.documents == {AGENT_COMMENT: bank(ADA)}
    assert await handle(fixture) == Done()
    assert fixture.hindsight.documents == {}


async def test_forget_makes_three_calls_in_the_bank_of_each_agent() -> None:
    fixture = HandlerFixture()
    await retain_comment(fixture)
    fixture.hindsight.run_workers()
    document = fixture.hindsight.banks[bank(ADA)].pop(AGENT_COMMENT)
    fixture.hindsight.banks[bank(CID)] = {AGENT_COMMENT: document}  # attribution was another once
    assert await handle(fixture) == Done()
    assert fixture.hindsight.documents == {}
    assert sorted(banks_called(fixture, "unfinished_retains")) == sorted([bank(ADA), bank(BEN), bank(CID)])
    assert sorted(banks_called(fixture, "delete_document")) == sorted([bank(ADA), bank(BEN), bank(CID)])
    assert len(fixture.hindsight.calls) == 9


async def test_forgetting_twice_is_done_twice() -> None:
    fixture = HandlerFixture()
    await retain_comment(fixture)
    fixture.hindsight.run_workers()
    assert [await handle(fixture) for _ in range(2)] == [Done(), Done()]


async def test_a_queued_retain_is_cancelled_and_stores_nothing() -> None:
    fixture = HandlerFixture()
    await retain_comment(fixture)
    assert await handle_until_done(fixture) == Done()
    assert len(fixture.hindsight.called("cancel")) == 1
    fixture.hindsight.run_workers()
    assert fixture.hindsight.documents == {}


async def test_a_retain_that_starts_just_before_its_cancel_leaves_no_document() -> None:
    """Hindsight marks it cancelled, and still stores its document."""
    fixture = HandlerFixture()
    await retain_comment(fixture)
    cancel = fixture.hindsight.cancel

    async def taken_up(bank: str, operation_id: str) -> bool:
        fixture.hindsight.start_workers()
        return await cancel(bank, operation_id)

    fixture.hindsight.cancel = taken_up  # type: ignore[method-assign]
    with pytest.raises(NotYet):
        await handle(fixture)
    fixture.hindsight.run_workers()
    assert fixture.hindsight.documents == {AGENT_COMMENT: bank(ADA)}
    fixture.now += CANCEL_SETTLES_AFTER + 1
    assert await handle(fixture) == Done()
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
async def test_a_cancelled_retain_is_not_settled_for_30_seconds(updated_at: str | None, settled: bool) -> None:
    fixture = HandlerFixture()
    await retain_comment(fixture)
    (child,) = fixture.hindsight.children
    child.status, child.updated_at = "cancelled", updated_at
    if settled:
        assert await handle(fixture) == Done()
    else:
        with pytest.raises(NotYet):
            await handle(fixture)


async def test_a_processing_retain_is_not_cancelled_and_raises_not_yet() -> None:
    """A cancel would mark it finished, and its worker would still store the document after the delete."""
    fixture = HandlerFixture()
    await retain_comment(fixture)
    fixture.hindsight.start_workers()
    with pytest.raises(NotYet) as raised:
        await handle(fixture)
    assert raised.value.upstream is Upstream.HINDSIGHT
    assert fixture.hindsight.called("cancel") == []
    fixture.hindsight.run_workers()
    assert await handle(fixture) == Done()
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
async def test_a_retain_that_is_processing_for_over_an_hour_is_cancelled(
    created_at: str | None, abandoned: bool
) -> None:
    fixture = HandlerFixture()
    await retain_comment(fixture)
    (child,) = fixture.hindsight.children
    child.status, child.created_at = "processing", created_at
    if abandoned:
        assert await handle_until_done(fixture) == Done()
        fixture.hindsight.run_workers()
        assert fixture.hindsight.documents == {}
    else:
        with pytest.raises(NotYet):
            await handle(fixture)


async def test_a_retain_that_finishes_before_its_cancel_leaves_no_document() -> None:
    fixture = HandlerFixture()
    await retain_comment(fixture)

    async def too_late(bank: str, operation_id: str) -> bool:
        fixture.hindsight.run_workers()
        return False

    fixture.hindsight.cancel = too_late  # type: ignore[method-assign]
    assert await handle_until_done(fixture) == Done()
    assert fixture.hindsight.documents == {}


async def test_a_refused_cancel_of_a_processing_retain_raises_not_yet() -> None:
    fixture = HandlerFixture()
    await retain_comment(fixture)

    async def taken_up(bank: str, operation_id: str) -> bool:
        fixture.hindsight.start_workers()
        return False

    fixture.hindsight.cancel = taken_up  # type: ignore[method-assign]
    with pytest.raises(NotYet):
        await handle(fixture)


async def test_an_unfinished_retain_in_one_bank_does_not_delay_the_delete_in_another() -> None:
    fixture = HandlerFixture()
    await retain_comment(fixture)
    fixture.hindsight.start_workers()
    fixture.hindsight.banks[bank(CID)] = {AGENT_COMMENT: Memory(AGENT_COMMENT, "old", None, {})}
    with pytest.raises(NotYet):
        await handle(fixture)
    assert fixture.hindsight.banks[bank(CID)] == {}


async def test_retains_of_other_comments_are_not_cancelled() -> None:
    fixture = HandlerFixture()
    await retain_comment(fixture)
    fixture.hindsight.children[0].memory = Memory(UNKNOWN, "another", None, {})
    assert await handle(fixture) == Done()
    assert fixture.hindsight.called("cancel") == []


async def test_banks_of_deleted_agents_are_found_through_the_event() -> None:
    fixture = HandlerFixture()
    fixture.paperclip.agent_ids = [CID]
    comment = {**COMMENTS[AGENT_COMMENT], "authorAgentId": ADA, "derivedAuthorAgentId": BEN}
    await handle(fixture, agentId=ADA)
    await handle(fixture, comment=comment)
    await handle(fixture, issue={"id": ISSUE, "assigneeAgentId": BEN})
    deleted_in = banks_called(fixture, "delete_document")
    assert deleted_in == [bank(ADA), bank(CID), bank(ADA), bank(BEN), bank(CID), bank(BEN), bank(CID)]


async def test_an_event_without_a_comment_id_is_skipped() -> None:
    fixture = HandlerFixture()
    assert await handle(fixture, commentId=None) == Skipped(SkipReason.NO_COMMENT_ID)
    assert fixture.hindsight.calls == []


@pytest.mark.parametrize(
    ("policy", "shared_bank"),
    [
        (MemoryPolicy(static_bank="shared", granularity=WITH_USER), "shared"),
        (MemoryPolicy(granularity=(BankPart.COMPANY,)), f"paperclip::{COMPANY}"),
    ],
)
async def test_a_bank_shared_by_all_agents_needs_no_list_of_agents(policy: MemoryPolicy, shared_bank: str) -> None:
    for fixture in (HandlerFixture(policy), HandlerFixture(policy, has_paperclip=False)):
        assert await handle(fixture) == Done(bank=shared_bank)
        assert banks_called(fixture, "delete_document") == [shared_bank]
        assert fixture.paperclip.calls == []
        assert fixture.warnings == []


async def test_gates_do_not_prevent_a_forget() -> None:
    fixture = HandlerFixture()
    await retain_comment(fixture)
    fixture.hindsight.run_workers()
    fixture.policy = MemoryPolicy(auto_retain=False, enabled_agents=frozenset({BEN}))
    assert await handle(fixture) == Done()
    assert fixture.hindsight.documents == {}


async def test_forget_looks_into_banks_with_and_without_the_user() -> None:
    fixture = HandlerFixture(MemoryPolicy(granularity=WITH_USER, user_sources=BY_CREATOR))
    fixture.paperclip.agent_ids = [ADA]
    assert await handle(fixture) == Done()
    assert banks_called(fixture, "delete_document") == [bank(ADA, "local-board"), bank(ADA)]
    assert fixture.warnings == []


async def test_without_the_issue_only_banks_without_a_user_are_searched_and_the_operator_is_warned() -> None:
    fixture = HandlerFixture(MemoryPolicy(granularity=WITH_USER, user_sources=BY_CREATOR))
    del fixture.paperclip.issues[ISSUE]
    fixture.paperclip.agent_ids = [ADA]
    assert await handle(fixture) == Done(bank=bank(ADA))
    assert len(fixture.warnings) == 1


async def test_forget_without_a_user_is_skipped_if_banks_have_only_a_user() -> None:
    fixture = HandlerFixture(MemoryPolicy(granularity=(BankPart.USER,)))
    assert await handle(fixture) == Skipped(SkipReason.NO_USER)


async def test_without_a_paperclip_api_only_the_agent_of_the_event_is_searched() -> None:
    fixture = HandlerFixture(has_paperclip=False)
    assert await handle(fixture, agentId=ADA) == Done(bank=bank(ADA))
    assert len(fixture.warnings) == 1
    assert await handle(fixture) == Skipped(SkipReason.NO_AGENT)


@pytest.mark.parametrize("method", ["unfinished_retains", "cancel", "delete_document"])
async def test_a_failing_call_is_raised_and_the_next_attempt_completes(method: str) -> None:
    fixture = HandlerFixture()
    await retain_comment(fixture)
    fixture.hindsight.fail(method, unreachable(Upstream.HINDSIGHT))
    with pytest.raises(HandlingError):
        await handle(fixture)
    assert fixture.hindsight.failures[method] == []
    assert await handle_until_done(fixture) == Done()
    fixture.hindsight.run_workers()
    assert fixture.hindsight.documents == {}
