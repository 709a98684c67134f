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


def retained(fixture: HandlerFixture) -> tuple[str, Memory, str]:
    """Bank, memory and operation id of the only retain."""
    (call,) = fixture.hindsight.called("retain")
    return call[0], call[1], call[2]


def change_comment(fixture: HandlerFixture, comment_id: str = AGENT_COMMENT, **changes: Any) -> None:
    """Change a comment in Paperclip."""
    fixture.paperclip.comments[comment_id] = {**COMMENTS[comment_id], **changes}


async def handle(
    fixture: HandlerFixture, comment_id: str = AGENT_COMMENT, delivery: DeliveryInfo = FRESH, **payload: Any
) -> HandlerResult:
    return await retain(created(comment_id, **payload), delivery, fixture.context)


async def test_a_comment_of_an_agent_is_retained_in_full_in_its_own_bank() -> None:
    fixture = HandlerFixture()
    assert await handle(fixture) == Done(bank=bank(ADA))
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
    assert retained(fixture) == (bank(ADA), memory, operation_id(bank(ADA), AGENT_COMMENT, comment["body"], ""))
    assert fixture.paperclip.calls == [("comment", ISSUE, AGENT_COMMENT)]


async def test_a_comment_of_a_user_is_retained_in_the_bank_of_the_assignee() -> None:
    fixture = HandlerFixture()
    assert await handle(fixture, USER_COMMENT) == Done(bank=bank(ADA))
    metadata = retained(fixture)[1].metadata
    assert metadata["authorType"] == "user"
    assert "runId" not in metadata
    assert fixture.paperclip.calls == [("comment", USER_ISSUE, USER_COMMENT), ("issue", USER_ISSUE)]


async def test_an_embedded_comment_and_issue_are_not_fetched() -> None:
    fixture = HandlerFixture()
    issue = {"id": USER_ISSUE, "assigneeAgentId": CID}
    assert await handle(fixture, USER_COMMENT, comment=COMMENTS[USER_COMMENT], issue=issue) == Done(bank=bank(CID))
    assert fixture.paperclip.calls == []


async def test_a_repeated_event_is_one_operation_and_a_repair_a_second() -> None:
    fixture = HandlerFixture()
    for delivery in (FRESH, FRESH, REPLAYED):
        await handle(fixture, delivery=delivery)
    assert len(fixture.hindsight.children) == 1
    for _ in range(2):
        await handle(fixture, delivery=DeliveryInfo(NOW, repair="audit-1", replayed=True))
    assert len(fixture.hindsight.children) == 2
    fixture.hindsight.run_workers()
    assert fixture.hindsight.documents == {AGENT_COMMENT: bank(ADA)}


async def test_auto_retain_off_skips_without_any_call() -> None:
    fixture = HandlerFixture(MemoryPolicy(auto_retain=False))
    assert await handle(fixture) == Skipped(SkipReason.AUTO_RETAIN_OFF)
    assert (fixture.paperclip.calls, fixture.hindsight.calls) == ([], [])


async def test_an_event_without_a_comment_id_is_skipped() -> None:
    fixture = HandlerFixture()
    assert await handle(fixture, commentId=None) == Skipped(SkipReason.NO_COMMENT_ID)
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
async def test_system_quarantined_and_blank_comments_are_skipped(changes: dict[str, Any], reason: SkipReason) -> None:
    fixture = HandlerFixture()
    change_comment(fixture, **changes)
    assert await handle(fixture) == Skipped(reason)
    assert fixture.hindsight.calls == []


@pytest.mark.parametrize(
    "changes",
    [
        {"presentation": {"kind": "message"}},
        {"sourceTrust": {"preset": "standard", "disposition": "trusted"}},
        {"authorType": "future"},
    ],
)
async def test_other_presentation_trust_and_author_types_are_retained(changes: dict[str, Any]) -> None:
    fixture = HandlerFixture()
    change_comment(fixture, **changes)
    assert await handle(fixture) == Done(bank=bank(ADA))


async def test_system_comments_are_retained_if_the_policy_says_so() -> None:
    fixture = HandlerFixture(MemoryPolicy(retain_system_comments=True))
    change_comment(fixture, authorType="system", authorAgentId=None, presentation={"kind": "system_notice"})
    assert await handle(fixture, agentId=None) == Done(bank=bank(ADA))
    change_comment(fixture, authorType="system", sourceTrust={"disposition": "quarantined"})
    assert await handle(fixture) == Skipped(SkipReason.QUARANTINED)


async def test_fenced_memories_and_unencodable_characters_are_stripped() -> None:
    fixture = HandlerFixture()
    change_comment(fixture, body=f"I recalled\n{fence('secret')}\nand half \ud83c an emoji\0.")
    await handle(fixture)
    assert retained(fixture)[1].content == "I recalled\n\n\nand half  an emoji."


@pytest.mark.parametrize(
    ("comment", "payload", "agent"),
    [
        ({"authorAgentId": BEN, "derivedAuthorAgentId": CID}, {"agentId": ADA}, BEN),
        ({"authorAgentId": None, "derivedAuthorAgentId": CID}, {"agentId": ADA}, CID),
        ({"authorAgentId": None}, {"agentId": BEN}, BEN),
        ({"authorAgentId": None}, {"agentId": None}, ADA),
    ],
)
async def test_the_author_is_the_author_agent_else_derived_else_event_else_assignee(
    comment: dict[str, Any], payload: dict[str, Any], agent: str
) -> None:
    fixture = HandlerFixture()
    change_comment(fixture, **comment)
    assert await handle(fixture, **payload) == Done(bank=bank(agent))


async def test_a_comment_without_author_agent_and_assignee_is_skipped() -> None:
    fixture = HandlerFixture()
    fixture.paperclip.issues[USER_ISSUE]["assigneeAgentId"] = None
    assert await handle(fixture, USER_COMMENT) == Skipped(SkipReason.NO_AGENT)
    del fixture.paperclip.issues[USER_ISSUE]
    assert await handle(fixture, USER_COMMENT) == Skipped(SkipReason.NO_AGENT)
    assert fixture.hindsight.calls == []


async def test_a_comment_of_an_agent_that_is_not_enabled_is_skipped() -> None:
    fixture = HandlerFixture(MemoryPolicy(enabled_agents=frozenset({BEN}), granularity=WITH_USER))
    assert await handle(fixture) == Skipped(SkipReason.AGENT_NOT_ENABLED)
    assert await handle(fixture, USER_COMMENT) == Skipped(SkipReason.AGENT_NOT_ENABLED)
    assert fixture.hindsight.calls == []
    assert fixture.paperclip.called("issue") == [(USER_ISSUE,)]


async def test_the_user_is_looked_up_if_bank_ids_have_a_user_part() -> None:
    fixture = HandlerFixture(MemoryPolicy(granularity=WITH_USER, user_sources=BY_CREATOR))
    assert await handle(fixture) == Done(bank=bank(ADA, "local-board"))
    assert retained(fixture)[1].metadata["userId"] == "local-board"
    await handle(fixture, USER_COMMENT)
    assert fixture.paperclip.called("issue") == [(ISSUE,), (USER_ISSUE,)]


async def test_without_a_user_the_part_is_left_out_or_the_retain_skipped() -> None:
    for policy, outcome in [
        (MemoryPolicy(granularity=WITH_USER), Done(bank=bank(ADA))),
        (MemoryPolicy(granularity=WITH_USER, user_required=True), Skipped(SkipReason.NO_USER)),
        (MemoryPolicy(granularity=(BankPart.USER,)), Skipped(SkipReason.NO_USER)),
        (MemoryPolicy(user_required=True), Done(bank=bank(ADA))),
    ]:
        assert await handle(HandlerFixture(policy)) == outcome


@pytest.mark.parametrize("gone", [None, {"body": "", "deletedAt": "2026-11-30T10:00:00Z"}, {"deletedAt": "2026"}])
async def test_a_deleted_comment_is_forgotten(gone: Mapping[str, Any] | None) -> None:
    fixture = HandlerFixture()
    await handle(fixture)
    fixture.hindsight.run_workers()
    if gone is None:
        del fixture.paperclip.comments[AGENT_COMMENT]
    else:
        change_comment(fixture, **gone)
    assert await handle(fixture) == Done()
    assert fixture.hindsight.documents == {}


async def test_an_embedded_deleted_comment_is_forgotten() -> None:
    fixture = HandlerFixture()
    await handle(fixture)
    fixture.hindsight.run_workers()
    carried = {**COMMENTS[AGENT_COMMENT], "body": None, "deletedAt": "2026-11-30T10:00:00Z"}
    assert await handle(fixture, comment=carried) == Done()
    assert fixture.hindsight.documents == {}


async def test_a_replayed_record_of_a_deleted_comment_is_not_retained() -> None:
    fixture = HandlerFixture()
    carried = COMMENTS[AGENT_COMMENT]
    del fixture.paperclip.comments[AGENT_COMMENT]
    assert await handle(fixture, delivery=REPLAYED, comment=carried) == Done()
    assert fixture.hindsight.called("retain") == []


@pytest.mark.parametrize(
    "wrong",
    [{"id": UNKNOWN}, {"issueId": UNKNOWN}, {"companyId": OTHER_COMPANY}, {"body": None}],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_an_embedded_comment_that_does_not_match_its_event_is_ignored(wrong: dict[str, Any]) -> None:
    carried = {**COMMENTS[AGENT_COMMENT], "body": "Not this.", **wrong}
    fixture = HandlerFixture()
    await handle(fixture, comment=carried)
    assert retained(fixture)[1].content == COMMENTS[AGENT_COMMENT]["body"]
    with pytest.raises(Permanent) as raised:
        await handle(HandlerFixture(has_paperclip=False), comment=carried)
    assert raised.value.reason is DeadLetterReason.INVALID


async def test_a_comment_of_another_company_is_invalid() -> None:
    fixture = HandlerFixture()
    change_comment(fixture, companyId=OTHER_COMPANY)
    with pytest.raises(Permanent) as raised:
        await handle(fixture)
    assert raised.value.reason is DeadLetterReason.INVALID
    assert fixture.hindsight.calls == []


ERRORS: list[HandlingError] = [
    unreachable(Upstream.PAPERCLIP),
    Transient("answered 503", upstream=Upstream.PAPERCLIP),
    Permanent("answered 403", reason=DeadLetterReason.FORBIDDEN, upstream=Upstream.PAPERCLIP),
]


@pytest.mark.parametrize("error", ERRORS, ids=str)
async def test_a_failure_of_paperclip_is_raised_and_no_snippet_is_retained(error: HandlingError) -> None:
    fixture = HandlerFixture()
    fixture.paperclip.fail("comment", error)
    with pytest.raises(type(error)):
        await handle(fixture)
    assert fixture.hindsight.calls == []


async def test_a_failure_of_hindsight_is_raised() -> None:
    fixture = HandlerFixture()
    fixture.hindsight.fail("retain", unreachable(Upstream.HINDSIGHT))
    with pytest.raises(HandlingError):
        await handle(fixture)
    assert await handle(fixture) == Done(bank=bank(ADA))


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
async def test_without_a_paperclip_api_the_snippet_is_retained(
    snippet: str, content: str, truncated: str | None
) -> None:
    fixture = HandlerFixture(has_paperclip=False)
    assert await handle(fixture, bodySnippet=snippet) == Done(bank=bank(ADA))
    _, memory, _ = retained(fixture)
    assert (memory.content, memory.metadata.get("truncated")) == (content, truncated)
    assert memory.timestamp == EVENTS["issue.comment.created", AGENT_COMMENT]["occurredAt"]
    assert memory.metadata["runId"] == COMMENTS[AGENT_COMMENT]["createdByRunId"]
    assert memory.metadata["authorType"] == "agent"


async def test_without_a_paperclip_api_a_comment_of_a_user_needs_an_embedded_issue() -> None:
    fixture = HandlerFixture(has_paperclip=False)
    assert await handle(fixture, USER_COMMENT) == Skipped(SkipReason.NO_AGENT)
    issue = {"id": USER_ISSUE, "assigneeAgentId": CID}
    assert await handle(fixture, USER_COMMENT, issue=issue) == Done(bank=bank(CID))


async def test_without_a_paperclip_api_a_replayed_comment_is_retained_with_a_warning() -> None:
    fixture = HandlerFixture(has_paperclip=False)
    assert await handle(fixture, comment=COMMENTS[AGENT_COMMENT]) == Done(bank=bank(ADA))
    assert fixture.warnings == []
    assert await handle(fixture, delivery=REPLAYED, comment=COMMENTS[AGENT_COMMENT]) == Done(bank=bank(ADA))
    assert len(fixture.warnings) == 1
    assert "truncated" not in fixture.hindsight.called("retain")[-1][1].metadata
