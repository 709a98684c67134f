"""`issue.comment.created`."""

from collections.abc import Mapping
from typing import Any

import pytest

from consumer.errors import DeadLetterReason, HandlingError, Permanent, Transient, Upstream
from consumer.handlers.context import Delivery, Memory
from consumer.handlers.results import Done, Outcome, Skipped, SkipReason
from consumer.handlers.retain import retain
from consumer.memory.markers import fence
from consumer.memory.operation_ids import operation_id
from consumer.memory.policy import BankPart, Rules, UserSource
from tests.support.fakes import NOW, FakePaperclip, World, unreachable
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


def paperclip_of(world: World) -> FakePaperclip:
    assert world.paperclip is not None
    return world.paperclip


def stored(world: World) -> tuple[str, Memory, str]:
    """The one retain that was asked for."""
    (call,) = world.hindsight.called("retain")
    return call[0], call[1], call[2]


def put(world: World, comment_id: str = AGENT_COMMENT, **changes: Any) -> None:
    """Change a comment in Paperclip."""
    paperclip_of(world).comments[comment_id] = {**COMMENTS[comment_id], **changes}


async def do(world: World, comment_id: str = AGENT_COMMENT, delivery: Delivery = FRESH, **payload: Any) -> Outcome:
    return await retain(created(comment_id, **payload), delivery, world.needs)


async def test_an_agents_comment_goes_to_its_own_bank_whole() -> None:
    world = World()
    assert await do(world) == Done(bank=bank(ADA))
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
    assert stored(world) == (bank(ADA), memory, operation_id(bank(ADA), AGENT_COMMENT, comment["body"], ""))
    assert paperclip_of(world).calls == [("comment", ISSUE, AGENT_COMMENT)]


async def test_a_users_comment_goes_to_the_assignees_bank() -> None:
    world = World()
    assert await do(world, USER_COMMENT) == Done(bank=bank(ADA))
    metadata = stored(world)[1].metadata
    assert metadata["authorType"] == "user"
    assert "runId" not in metadata
    assert paperclip_of(world).calls == [("comment", USER_ISSUE, USER_COMMENT), ("issue", USER_ISSUE)]


async def test_what_the_event_carries_is_not_fetched() -> None:
    world = World()
    issue = {"id": USER_ISSUE, "assigneeAgentId": CID}
    assert await do(world, USER_COMMENT, comment=COMMENTS[USER_COMMENT], issue=issue) == Done(bank=bank(CID))
    assert paperclip_of(world).calls == []


async def test_the_same_event_twice_is_one_operation_and_a_repair_is_another() -> None:
    world = World()
    for delivery in (FRESH, FRESH, REPLAYED):
        await do(world, delivery=delivery)
    assert len(world.hindsight.children) == 1
    for _ in range(2):
        await do(world, delivery=Delivery(NOW, repair="audit-1", replayed=True))
    assert len(world.hindsight.children) == 2
    world.hindsight.digest()
    assert world.hindsight.documents == {AGENT_COMMENT: bank(ADA)}


async def test_auto_retain_off() -> None:
    world = World(Rules(auto_retain=False))
    assert await do(world) == Skipped(SkipReason.AUTO_RETAIN_OFF)
    assert (paperclip_of(world).calls, world.hindsight.calls) == ([], [])


async def test_no_comment_id() -> None:
    world = World()
    assert await do(world, commentId=None) == Skipped(SkipReason.NO_COMMENT_ID)
    assert (paperclip_of(world).calls, world.hindsight.calls) == ([], [])


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
    world = World()
    put(world, **changes)
    assert await do(world) == Skipped(reason)
    assert world.hindsight.calls == []


@pytest.mark.parametrize(
    "changes",
    [
        {"presentation": {"kind": "message"}},
        {"sourceTrust": {"preset": "standard", "disposition": "trusted"}},
        {"authorType": "future"},
    ],
)
async def test_what_is_retained_all_the_same(changes: dict[str, Any]) -> None:
    world = World()
    put(world, **changes)
    assert await do(world) == Done(bank=bank(ADA))


async def test_system_comments_where_the_setting_asks_for_them() -> None:
    world = World(Rules(retain_system_comments=True))
    put(world, authorType="system", authorAgentId=None, presentation={"kind": "system_notice"})
    assert await do(world, agentId=None) == Done(bank=bank(ADA))
    put(world, authorType="system", sourceTrust={"disposition": "quarantined"})
    assert await do(world) == Skipped(SkipReason.QUARANTINED)


async def test_served_memory_and_broken_characters_are_not_retained() -> None:
    world = World()
    put(world, body=f"I recalled\n{fence('secret')}\nand half \ud83c an emoji\0.")
    await do(world)
    assert stored(world)[1].content == "I recalled\n\n\nand half  an emoji."


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
    world = World()
    put(world, **comment)
    assert await do(world, **payload) == Done(bank=bank(agent))


async def test_no_author_and_no_assignee() -> None:
    world = World()
    paperclip_of(world).issues[USER_ISSUE]["assigneeAgentId"] = None
    assert await do(world, USER_COMMENT) == Skipped(SkipReason.NO_AGENT)
    del paperclip_of(world).issues[USER_ISSUE]
    assert await do(world, USER_COMMENT) == Skipped(SkipReason.NO_AGENT)
    assert world.hindsight.calls == []


async def test_an_agent_that_is_not_enabled() -> None:
    world = World(Rules(enabled_agents=frozenset({BEN}), granularity=WITH_USER))
    assert await do(world) == Skipped(SkipReason.AGENT_NOT_ENABLED)
    assert await do(world, USER_COMMENT) == Skipped(SkipReason.AGENT_NOT_ENABLED)
    assert world.hindsight.calls == []
    assert paperclip_of(world).called("issue") == [(USER_ISSUE,)]


async def test_a_user_is_looked_up_where_banks_have_one() -> None:
    world = World(Rules(granularity=WITH_USER, user_sources=BY_CREATOR))
    assert await do(world) == Done(bank=bank(ADA, "local-board"))
    assert stored(world)[1].metadata["userId"] == "local-board"
    await do(world, USER_COMMENT)
    assert paperclip_of(world).called("issue") == [(ISSUE,), (USER_ISSUE,)]


async def test_no_user_leaves_the_part_out_or_skips() -> None:
    for rules, outcome in [
        (Rules(granularity=WITH_USER), Done(bank=bank(ADA))),
        (Rules(granularity=WITH_USER, user_required=True), Skipped(SkipReason.NO_USER)),
        (Rules(granularity=(BankPart.USER,)), Skipped(SkipReason.NO_USER)),
        (Rules(user_required=True), Done(bank=bank(ADA))),
    ]:
        assert await do(World(rules)) == outcome


@pytest.mark.parametrize("gone", [None, {"body": "", "deletedAt": "2026-11-30T10:00:00Z"}, {"deletedAt": "2026"}])
async def test_a_comment_that_is_gone_is_forgotten(gone: Mapping[str, Any] | None) -> None:
    world = World()
    await do(world)
    world.hindsight.digest()
    if gone is None:
        del paperclip_of(world).comments[AGENT_COMMENT]
    else:
        put(world, **gone)
    assert await do(world) == Done()
    assert world.hindsight.documents == {}


async def test_a_deleted_comment_in_the_event_is_forgotten_too() -> None:
    world = World()
    await do(world)
    world.hindsight.digest()
    carried = {**COMMENTS[AGENT_COMMENT], "body": None, "deletedAt": "2026-11-30T10:00:00Z"}
    assert await do(world, comment=carried) == Done()
    assert world.hindsight.documents == {}


async def test_a_replayed_record_never_brings_a_deleted_comment_back() -> None:
    world = World()
    carried = COMMENTS[AGENT_COMMENT]
    del paperclip_of(world).comments[AGENT_COMMENT]
    assert await do(world, delivery=REPLAYED, comment=carried) == Done()
    assert world.hindsight.called("retain") == []


@pytest.mark.parametrize(
    "wrong",
    [{"id": UNKNOWN}, {"issueId": UNKNOWN}, {"companyId": OTHER_COMPANY}, {"body": None}],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_another_comment_in_the_event_is_not_believed(wrong: dict[str, Any]) -> None:
    carried = {**COMMENTS[AGENT_COMMENT], "body": "Not this.", **wrong}
    world = World()
    await do(world, comment=carried)
    assert stored(world)[1].content == COMMENTS[AGENT_COMMENT]["body"]
    with pytest.raises(Permanent) as raised:
        await do(World(paperclip=None), comment=carried)
    assert raised.value.reason is DeadLetterReason.INVALID


async def test_a_comment_of_another_company_is_never_stored() -> None:
    world = World()
    put(world, companyId=OTHER_COMPANY)
    with pytest.raises(Permanent) as raised:
        await do(world)
    assert raised.value.reason is DeadLetterReason.INVALID
    assert world.hindsight.calls == []


ERRORS: list[HandlingError] = [
    unreachable(Upstream.PAPERCLIP),
    Transient("answered 503", upstream=Upstream.PAPERCLIP),
    Permanent("answered 403", reason=DeadLetterReason.FORBIDDEN, upstream=Upstream.PAPERCLIP),
]


@pytest.mark.parametrize("error", ERRORS, ids=str)
async def test_no_comment_is_stored_as_its_snippet_because_paperclip_fails(error: HandlingError) -> None:
    world = World()
    paperclip_of(world).fail("comment", error)
    with pytest.raises(type(error)):
        await do(world)
    assert world.hindsight.calls == []


async def test_failures_of_hindsight_are_raised() -> None:
    world = World()
    world.hindsight.fail("retain", unreachable(Upstream.HINDSIGHT))
    with pytest.raises(HandlingError):
        await do(world)
    assert await do(world) == Done(bank=bank(ADA))


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
    world = World(paperclip=None)
    assert await do(world, bodySnippet=snippet) == Done(bank=bank(ADA))
    _, memory, _ = stored(world)
    assert (memory.content, memory.metadata.get("truncated")) == (content, truncated)
    assert memory.timestamp == EVENTS["issue.comment.created", AGENT_COMMENT]["occurredAt"]
    assert memory.metadata["runId"] == COMMENTS[AGENT_COMMENT]["createdByRunId"]
    assert memory.metadata["authorType"] == "agent"


async def test_without_a_paperclip_api_a_users_comment_needs_the_issue_in_the_event() -> None:
    world = World(paperclip=None)
    assert await do(world, USER_COMMENT) == Skipped(SkipReason.NO_AGENT)
    issue = {"id": USER_ISSUE, "assigneeAgentId": CID}
    assert await do(world, USER_COMMENT, issue=issue) == Done(bank=bank(CID))


async def test_without_a_paperclip_api_a_replayed_comment_is_believed_and_said_so() -> None:
    world = World(paperclip=None)
    assert await do(world, comment=COMMENTS[AGENT_COMMENT]) == Done(bank=bank(ADA))
    assert world.warnings == []
    assert await do(world, delivery=REPLAYED, comment=COMMENTS[AGENT_COMMENT]) == Done(bank=bank(ADA))
    assert len(world.warnings) == 1
    assert "truncated" not in world.hindsight.called("retain")[-1][1].metadata
