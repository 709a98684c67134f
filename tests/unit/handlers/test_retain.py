"""`issue.comment.created`."""

from collections.abc import Mapping
from typing import Any

import pytest

from consumer.errors import DeadLetterReason, HandlingError, Permanent, Transient, Upstream
from consumer.handlers.context import DeliveryInfo
from consumer.handlers.results import Done, HandlerResult, Skipped, SkipReason
from consumer.handlers.retain import retain
from consumer.memory.documents import Memory
from consumer.memory.markers import fence
from consumer.memory.operation_ids import operation_id
from consumer.memory.policy import BankPart, MemoryPolicy, UserSource
from tests.support.fakes import NOW, HandlerFixture, unreachable
from tests.unit.handlers.samples import (
    ADA,
    AGENT_COMMENT,
    BEN,
    CID,
    COMMENTS,
    COMPANY,
    EVENTS,
    FRESH,
    OTHER_COMPANY,
    REPLAYED,
    UNKNOWN,
    USER_COMMENT,
    bank,
    created,
)

WITH_USER = (BankPart.COMPANY, BankPart.AGENT, BankPart.USER)
BY_CREATOR = frozenset({UserSource.CREATED_BY_USER_ID})
ISSUE = COMMENTS[AGENT_COMMENT]["issueId"]
USER_ISSUE = COMMENTS[USER_COMMENT]["issueId"]


def stored(fixture: HandlerFixture) -> tuple[str, Memory, str]:
    """The one retain that was asked for."""
    (call,) = fixture.hindsight.called("retain")
    return call[0], call[1], call[2]


def put(fixture: HandlerFixture, comment_id: str = AGENT_COMMENT, **changes: Any) -> None:
    """Change a comment in Paperclip."""
    fixture.paperclip.comments[comment_id] = {**COMMENTS[comment_id], **changes}


async def do(
    fixture: HandlerFixture, comment_id: str = AGENT_COMMENT, delivery: DeliveryInfo = FRESH, **payload: Any
) -> HandlerResult:
    return await retain(created(comment_id, **payload), delivery, fixture.context)


async def test_an_agents_comment_goes_to_its_own_bank_whole() -> None:
    fixture = HandlerFixture()
    assert await do(fixture) == Done(bank=bank(ADA))
    comment = COMMENTS[AGENT_COMMENT]
    metadata = {
        "agentId": ADA,
        "companyId": COMPANY,
        "issueId": ISSUE,
        "commentId": AGENT_COMMENT,
        "runId": comment["createdByRunId"],
        "authorType": "agent",
    }
    memory = Memory(AGENT_COMMENT, comment["body"], comment["createdAt"], metadata)
    assert stored(fixture) == (bank(ADA), memory, operation_id(bank(ADA), AGENT_COMMENT, comment["body"], ""))
    assert fixture.paperclip.calls == [("comment", ISSUE, AGENT_COMMENT)]


async def test_a_users_comment_goes_to_the_assignees_bank() -> None:
    fixture = HandlerFixture()
    assert await do(fixture, USER_COMMENT) == Done(bank=bank(ADA))
    metadata = stored(fixture)[1].metadata
    assert metadata["authorType"] == "user"
    assert "runId" not in metadata
    assert fixture.paperclip.calls == [("comment", USER_ISSUE, USER_COMMENT), ("issue", USER_ISSUE)]


async def test_what_the_event_carries_is_not_fetched() -> None:
    fixture = HandlerFixture()
    issue = {"id": USER_ISSUE, "assigneeAgentId": CID}
    assert await do(fixture, USER_COMMENT, comment=COMMENTS[USER_COMMENT], issue=issue) == Done(bank=bank(CID))
    assert fixture.paperclip.calls == []


async def test_the_same_event_twice_is_one_operation_and_a_repair_is_another() -> None:
    fixture = HandlerFixture()
    for delivery in (FRESH, FRESH, REPLAYED):
        await do(fixture, delivery=delivery)
    assert len(fixture.hindsight.children) == 1
    for _ in range(2):
        await do(fixture, delivery=DeliveryInfo(NOW, repair="audit-1", replayed=True))
    assert len(fixture.hindsight.children) == 2
    fixture.hindsight.run_workers()
    assert fixture.hindsight.documents == {AGENT_COMMENT: bank(ADA)}


async def test_auto_retain_off() -> None:
    fixture = HandlerFixture(MemoryPolicy(auto_retain=False))
    assert await do(fixture) == Skipped(SkipReason.AUTO_RETAIN_OFF)
    assert (fixture.paperclip.calls, fixture.hindsight.calls) == ([], [])


async def test_no_comment_id() -> None:
    fixture = HandlerFixture()
    assert await do(fixture, commentId=None) == Skipped(SkipReason.NO_COMMENT_ID)
    assert (fixture.paperclip.calls, fixture.hindsight.calls) == ([], [])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"authorType": "system"}, SkipReason.SYSTEM_COMMENT),
        ({"presentation": {"kind": "system_notice"}}, SkipReason.SYSTEM_COMMENT),
        ({"sourceTrust": {"disposition": "quarantined"}}, SkipReason.QUARANTINED),
        ({"authorType": "system", "sourceTrust": {"disposition": "quarantined"}}, SkipReason.SYSTEM_COMMENT),
        ({"body": ""}, SkipReason.BLANK_COMMENT),
        ({"body": None}, SkipReason.BLANK_COMMENT),
        ({"body": "\u200b \0"}, SkipReason.BLANK_COMMENT),
        ({"body": fence("recalled")}, SkipReason.BLANK_COMMENT),
        ({"body": "\ud83c"}, SkipReason.BLANK_COMMENT),
    ],
)
async def test_what_is_not_retained(changes: dict[str, Any], reason: SkipReason) -> None:
    fixture = HandlerFixture()
    put(fixture, **changes)
    assert await do(fixture) == Skipped(reason)
    assert fixture.hindsight.calls == []


@pytest.mark.parametrize(
    "changes",
    [
        {"presentation": {"kind": "message"}},
        {"sourceTrust": {"preset": "standard", "disposition": "trusted"}},
        {"authorType": "future"},
    ],
)
async def test_what_is_retained_all_the_same(changes: dict[str, Any]) -> None:
    fixture = HandlerFixture()
    put(fixture, **changes)
    assert await do(fixture) == Done(bank=bank(ADA))


async def test_system_comments_where_the_setting_asks_for_them() -> None:
    fixture = HandlerFixture(MemoryPolicy(retain_system_comments=True))
    put(fixture, authorType="system", authorAgentId=None, presentation={"kind": "system_notice"})
    assert await do(fixture, agentId=None) == Done(bank=bank(ADA))
    put(fixture, authorType="system", sourceTrust={"disposition": "quarantined"})
    assert await do(fixture) == Skipped(SkipReason.QUARANTINED)


async def test_served_memory_and_broken_characters_are_not_retained() -> None:
    fixture = HandlerFixture()
    put(fixture, body=f"I recalled\n{fence('secret')}\nand half \ud83c an emoji\0.")
    await do(fixture)
    assert stored(fixture)[1].content == "I recalled\n\n\nand half  an emoji."


@pytest.mark.parametrize(
    ("comment", "payload", "agent"),
    [
        ({"authorAgentId": BEN, "derivedAuthorAgentId": CID}, {"agentId": ADA}, BEN),
        ({"authorAgentId": None, "derivedAuthorAgentId": CID}, {"agentId": ADA}, CID),
        ({"authorAgentId": None}, {"agentId": BEN}, BEN),
        ({"authorAgentId": None}, {"agentId": None}, ADA),
    ],
)
async def test_whose_comment_it_is(comment: dict[str, Any], payload: dict[str, Any], agent: str) -> None:
    fixture = HandlerFixture()
    put(fixture, **comment)
    assert await do(fixture, **payload) == Done(bank=bank(agent))


async def test_no_author_and_no_assignee() -> None:
    fixture = HandlerFixture()
    fixture.paperclip.issues[USER_ISSUE]["assigneeAgentId"] = None
    assert await do(fixture, USER_COMMENT) == Skipped(SkipReason.NO_AGENT)
    del fixture.paperclip.issues[USER_ISSUE]
    assert await do(fixture, USER_COMMENT) == Skipped(SkipReason.NO_AGENT)
    assert fixture.hindsight.calls == []


async def test_an_agent_that_is_not_enabled() -> None:
    fixture = HandlerFixture(MemoryPolicy(enabled_agents=frozenset({BEN}), granularity=WITH_USER))
    assert await do(fixture) == Skipped(SkipReason.AGENT_NOT_ENABLED)
    assert await do(fixture, USER_COMMENT) == Skipped(SkipReason.AGENT_NOT_ENABLED)
    assert fixture.hindsight.calls == []
    assert fixture.paperclip.called("issue") == [(USER_ISSUE,)]


async def test_a_user_is_looked_up_where_banks_have_one() -> None:
    fixture = HandlerFixture(MemoryPolicy(granularity=WITH_USER, user_sources=BY_CREATOR))
    assert await do(fixture) == Done(bank=bank(ADA, "local-board"))
    assert stored(fixture)[1].metadata["userId"] == "local-board"
    await do(fixture, USER_COMMENT)
    assert fixture.paperclip.called("issue") == [(ISSUE,), (USER_ISSUE,)]


async def test_no_user_leaves_the_part_out_or_skips() -> None:
    for policy, outcome in [
        (MemoryPolicy(granularity=WITH_USER), Done(bank=bank(ADA))),
        (MemoryPolicy(granularity=WITH_USER, user_required=True), Skipped(SkipReason.NO_USER)),
        (MemoryPolicy(granularity=(BankPart.USER,)), Skipped(SkipReason.NO_USER)),
        (MemoryPolicy(user_required=True), Done(bank=bank(ADA))),
    ]:
        assert await do(HandlerFixture(policy)) == outcome


@pytest.mark.parametrize("gone", [None, {"body": "", "deletedAt": "2026-11-30T10:00:00Z"}, {"deletedAt": "2026"}])
async def test_a_comment_that_is_gone_is_forgotten(gone: Mapping[str, Any] | None) -> None:
    fixture = HandlerFixture()
    await do(fixture)
    fixture.hindsight.run_workers()
    if gone is None:
        del fixture.paperclip.comments[AGENT_COMMENT]
    else:
        put(fixture, **gone)
    assert await do(fixture) == Done()
    assert fixture.hindsight.documents == {}


async def test_a_deleted_comment_in_the_event_is_forgotten_too() -> None:
    fixture = HandlerFixture()
    await do(fixture)
    fixture.hindsight.run_workers()
    carried = {**COMMENTS[AGENT_COMMENT], "body": None, "deletedAt": "2026-11-30T10:00:00Z"}
    assert await do(fixture, comment=carried) == Done()
    assert fixture.hindsight.documents == {}


async def test_a_replayed_record_never_brings_a_deleted_comment_back() -> None:
    fixture = HandlerFixture()
    carried = COMMENTS[AGENT_COMMENT]
    del fixture.paperclip.comments[AGENT_COMMENT]
    assert await do(fixture, delivery=REPLAYED, comment=carried) == Done()
    assert fixture.hindsight.called("retain") == []


@pytest.mark.parametrize(
    "wrong",
    [{"id": UNKNOWN}, {"issueId": UNKNOWN}, {"companyId": OTHER_COMPANY}, {"body": None}],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_another_comment_in_the_event_is_not_believed(wrong: dict[str, Any]) -> None:
    carried = {**COMMENTS[AGENT_COMMENT], "body": "Not this.", **wrong}
    fixture = HandlerFixture()
    await do(fixture, comment=carried)
    assert stored(fixture)[1].content == COMMENTS[AGENT_COMMENT]["body"]
    with pytest.raises(Permanent) as raised:
        await do(HandlerFixture(has_paperclip=False), comment=carried)
    assert raised.value.reason is DeadLetterReason.INVALID


async def test_a_comment_of_another_company_is_never_stored() -> None:
    fixture = HandlerFixture()
    put(fixture, companyId=OTHER_COMPANY)
    with pytest.raises(Permanent) as raised:
        await do(fixture)
    assert raised.value.reason is DeadLetterReason.INVALID
    assert fixture.hindsight.calls == []


ERRORS: list[HandlingError] = [
    unreachable(Upstream.PAPERCLIP),
    Transient("answered 503", upstream=Upstream.PAPERCLIP),
    Permanent("answered 403", reason=DeadLetterReason.FORBIDDEN, upstream=Upstream.PAPERCLIP),
]


@pytest.mark.parametrize("error", ERRORS, ids=str)
async def test_no_comment_is_stored_as_its_snippet_because_paperclip_fails(error: HandlingError) -> None:
    fixture = HandlerFixture()
    fixture.paperclip.fail("comment", error)
    with pytest.raises(type(error)):
        await do(fixture)
    assert fixture.hindsight.calls == []


async def test_failures_of_hindsight_are_raised() -> None:
    fixture = HandlerFixture()
    fixture.hindsight.fail("retain", unreachable(Upstream.HINDSIGHT))
    with pytest.raises(HandlingError):
        await do(fixture)
    assert await do(fixture) == Done(bank=bank(ADA))


@pytest.mark.parametrize(
    ("snippet", "content", "truncated"),
    [
        ("x" * 119, "x" * 119, None),
        ("x" * 120, "x" * 120, "true"),
        ("🎉" * 60, "🎉" * 60, "true"),
        ("🎉" * 59 + "x", "🎉" * 59 + "x", None),
        ("x" * 119 + "\ud83c", "x" * 119, "true"),
        ("x" * 120 + "\ud83c", "x" * 120, "true"),
    ],
)
async def test_without_a_paperclip_api_the_snippet_must_do(snippet: str, content: str, truncated: str | None) -> None:
    fixture = HandlerFixture(has_paperclip=False)
    assert await do(fixture, bodySnippet=snippet) == Done(bank=bank(ADA))
    _, memory, _ = stored(fixture)
    assert (memory.content, memory.metadata.get("truncated")) == (content, truncated)
    assert memory.timestamp == EVENTS["issue.comment.created", AGENT_COMMENT]["occurredAt"]
    assert memory.metadata["runId"] == COMMENTS[AGENT_COMMENT]["createdByRunId"]
    assert memory.metadata["authorType"] == "agent"


async def test_without_a_paperclip_api_a_users_comment_needs_the_issue_in_the_event() -> None:
    fixture = HandlerFixture(has_paperclip=False)
    assert await do(fixture, USER_COMMENT) == Skipped(SkipReason.NO_AGENT)
    issue = {"id": USER_ISSUE, "assigneeAgentId": CID}
    assert await do(fixture, USER_COMMENT, issue=issue) == Done(bank=bank(CID))


async def test_without_a_paperclip_api_a_replayed_comment_is_believed_and_said_so() -> None:
    fixture = HandlerFixture(has_paperclip=False)
    assert await do(fixture, comment=COMMENTS[AGENT_COMMENT]) == Done(bank=bank(ADA))
    assert fixture.warnings == []
    assert await do(fixture, delivery=REPLAYED, comment=COMMENTS[AGENT_COMMENT]) == Done(bank=bank(ADA))
    assert len(fixture.warnings) == 1
    assert "truncated" not in fixture.hindsight.called("retain")[-1][1].metadata
