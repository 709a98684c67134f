"""`agent.run.started`."""

from typing import Any

import pytest

from consumer.errors import DeadLetterReason, HandlingError, Permanent, Transient, Upstream, UpstreamDown
from consumer.handlers.context import DeliveryInfo
from consumer.handlers.recall import recall
from consumer.handlers.results import Degraded, Done, HandlerResult, Skipped, SkipReason
from consumer.memory.documents import Memory
from consumer.memory.operation_ids import operation_id
from consumer.memory.policy import BankPart, MemoryPolicy, RecallBudget, UserSource
from demo import recording
from schemas.recalls import RecallStatus
from tests.support.fakes import NOW, HandlerFixture, rejected, unreachable
from tests.unit.handlers.samples import BEN, COMPANY, FRESH, MANUAL_RUN, RUN, UNKNOWN, WOKEN_RUN, bank, started

WITH_USER = (BankPart.COMPANY, BankPart.AGENT, BankPart.USER)
BY_CREATOR = frozenset({UserSource.CREATED_BY_USER_ID})
EVENT = started()
AGENT, ISSUE = str(EVENT.payload.agent_id), str(EVENT.payload.issue_id)
QUERY = "Measure login latency\np95 from the edge, per region."


async def handle(fixture: HandlerFixture, run_id: str = RUN, **payload: Any) -> HandlerResult:
    return await recall(started(run_id, **payload), FRESH, fixture.context)


def run_with_wake(run_id: str = RUN, **wake: Any) -> dict[str, Any]:
    """A recorded run with its wake changed."""
    whole = next(run for run in recording.runs() if run["id"] == run_id)
    whole["contextSnapshot"]["paperclipWake"] |= wake
    return whole


async def test_a_recall_takes_one_request_to_paperclip_and_one_to_hindsight() -> None:
    fixture = HandlerFixture()
    assert await handle(fixture) == Done(bank=bank(AGENT))
    assert fixture.paperclip.calls == [("run", RUN)]
    assert fixture.hindsight.calls == [("recall", bank(AGENT), QUERY, RecallBudget.MID, 1024)]
    assert fixture.recalls.last.model_dump() == {
        "run_id": RUN,
        "company_id": COMPANY,
        "agent_id": AGENT,
        "issue_id": ISSUE,
        "bank_id": bank(AGENT),
        "user_id": None,
        "query": QUERY,
        "status": RecallStatus.EMPTY,
        "memories": [],
        "recalled_at": "2026-11-30T10:20:00.000Z",
    }


async def test_memories_are_published_and_the_last_record_of_a_run_wins() -> None:
    fixture = HandlerFixture()
    await handle(fixture)
    memory = Memory(UNKNOWN, "Latency is measured at the edge.", None, {})
    await fixture.hindsight.retain(bank(AGENT), memory, operation_id(bank(AGENT), UNKNOWN, memory.content, ""))
    fixture.hindsight.run_workers()
    for _ in range(2):
        await handle(fixture)
    assert list(fixture.recalls.compacted) == [RUN]
    assert fixture.recalls.compacted[RUN].status is RecallStatus.RECALLED
    assert fixture.recalls.compacted[RUN].memories == [memory.content]


async def test_the_recall_budget_of_the_policy_is_sent() -> None:
    fixture = HandlerFixture(MemoryPolicy(recall_budget=RecallBudget.HIGH))
    await handle(fixture)
    assert fixture.hindsight.called("recall")[0][2:] == (RecallBudget.HIGH, 1024)


@pytest.mark.parametrize(
    ("policy", "payload", "reason"),
    [
        (MemoryPolicy(), {"agentId": None}, SkipReason.NO_AGENT),
        (MemoryPolicy(enabled_agents=frozenset({BEN})), {}, SkipReason.AGENT_NOT_ENABLED),
        (MemoryPolicy(), {"issueId": None}, SkipReason.NO_ISSUE),
    ],
)
async def test_a_closed_gate_skips_without_any_call(
    policy: MemoryPolicy, payload: dict[str, Any], reason: SkipReason
) -> None:
    fixture = HandlerFixture(policy)
    assert await handle(fixture, **payload) == Skipped(reason)
    assert (fixture.paperclip.calls, fixture.hindsight.calls, fixture.recalls.log) == ([], [], [])


async def test_a_manual_run_is_skipped_as_it_has_no_issue() -> None:
    assert await handle(HandlerFixture(), MANUAL_RUN) == Skipped(SkipReason.NO_ISSUE)


async def test_an_issue_identifier_is_resolved_to_its_id() -> None:
    fixture = HandlerFixture()
    assert await handle(fixture, issueId="ACM-3") == Done(bank=bank(AGENT))
    assert fixture.paperclip.calls == [("issue_by_identifier", "ACM-3"), ("run", RUN)]
    assert (fixture.recalls.last.issue_id, fixture.recalls.last.query) == (ISSUE, QUERY)


@pytest.mark.parametrize("reference", ["", "ACM-999", "daily-digest", "every morning / \ud83c", "../agents"])
async def test_an_issue_reference_that_names_no_issue_is_skipped(reference: str) -> None:
    fixture = HandlerFixture()
    assert await handle(fixture, issueId=reference) == Skipped(SkipReason.NO_ISSUE)
    assert await handle(HandlerFixture(has_paperclip=False), issueId=reference) == Skipped(SkipReason.NO_ISSUE)
    assert (fixture.hindsight.calls, fixture.recalls.log) == ([], [])


async def test_an_issue_identifier_of_another_company_is_skipped() -> None:
    fixture = HandlerFixture()
    fixture.paperclip.issues[ISSUE]["companyId"] = UNKNOWN
    assert await handle(fixture, issueId="ACM-3") == Skipped(SkipReason.NO_ISSUE)


async def test_an_issue_identifier_that_paperclip_fails_to_resolve_is_degraded_without_a_record() -> None:
    fixture = HandlerFixture()
    fixture.paperclip.fail("issue_by_identifier", unreachable(Upstream.PAPERCLIP))
    assert await handle(fixture, issueId="ACM-3") == Degraded(Upstream.PAPERCLIP, "connection refused", bank(AGENT))
    assert fixture.recalls.log == []


@pytest.mark.parametrize(("age", "late"), [(0, False), (60, False), (60.1, True), (-5, False)])
async def test_a_record_over_60_seconds_old_is_skipped(age: float, late: bool) -> None:
    fixture = HandlerFixture()
    outcome = await recall(EVENT, DeliveryInfo(timestamp=NOW - age), fixture.context)
    assert (outcome == Skipped(SkipReason.TOO_LATE)) is late
    assert (not fixture.recalls.log) is late


async def test_comments_that_woke_the_run_are_in_the_query() -> None:
    fixture = HandlerFixture()
    await handle(fixture, WOKEN_RUN)
    query = fixture.recalls.last.query
    assert query == "Write the release notes\nCollect what changed since 2.3.\nMention the token expiry."


async def test_quarantined_comments_are_not_in_the_query() -> None:
    fixture = HandlerFixture()
    quarantined = recording.made("comment-quarantined").value
    fixture.paperclip.runs[RUN] = run_with_wake(comments=[quarantined, {"id": UNKNOWN, "body": "Trusted."}])
    await handle(fixture)
    assert fixture.recalls.last.query == f"{QUERY}\nTrusted."


@pytest.mark.parametrize(
    ("title", "description", "comments", "reason"),
    [
        ("", None, [{"body": "A comment woke the run."}], SkipReason.BLANK_ISSUE),
        (" ", "\u200b", [], SkipReason.BLANK_ISSUE),
        ("🎉", "!?", [{"body": "…"}], SkipReason.BLANK_QUERY),
    ],
)
async def test_a_blank_issue_or_query_is_skipped_without_a_recall(
    title: str, description: str | None, comments: list[dict[str, str]], reason: SkipReason
) -> None:
    fixture = HandlerFixture()
    fixture.paperclip.runs[RUN] = run_with_wake(issue={"title": title, "description": description}, comments=comments)
    assert await handle(fixture) == Skipped(reason)
    assert (fixture.hindsight.calls, fixture.recalls.log) == ([], [])


async def test_an_embedded_run_or_issue_is_not_fetched() -> None:
    fixture = HandlerFixture()
    await handle(fixture, run=run_with_wake())
    await handle(fixture, run=run_with_wake(), issue={"id": ISSUE, "title": "Carried"})
    assert fixture.paperclip.calls == []
    assert [call[1] for call in fixture.hindsight.called("recall")] == [QUERY, "Carried"]


async def test_with_an_embedded_issue_the_run_is_fetched_for_its_comments() -> None:
    fixture = HandlerFixture()
    fixture.paperclip.runs[RUN] = run_with_wake(comments=[{"body": "Woken."}])
    await handle(fixture, issue={"id": ISSUE, "title": "Carried"})
    assert fixture.paperclip.calls == [("run", RUN)]
    assert fixture.recalls.last.query == "Carried\nWoken."


async def test_an_embedded_run_or_issue_with_another_id_is_ignored() -> None:
    fixture = HandlerFixture()
    await handle(fixture, run=run_with_wake(WOKEN_RUN), issue={"id": UNKNOWN, "title": "Another"})
    assert fixture.paperclip.calls == [("run", RUN)]
    assert fixture.recalls.last.query == QUERY


async def test_a_wake_for_another_issue_is_ignored() -> None:
    fixture = HandlerFixture(MemoryPolicy(granularity=WITH_USER))
    other = {"id": UNKNOWN, "title": "Another", "creatorEmail": "another@example.org"}
    wake = {"issue": other, "comments": [{"body": "Said there."}]}
    assert await handle(fixture, run={"id": RUN, "contextSnapshot": {"paperclipWake": wake}}) == Done(bank=bank(AGENT))
    assert fixture.recalls.last.query == QUERY
    del fixture.paperclip.issues[ISSUE]
    gone = await handle(fixture, run={"id": RUN, "contextSnapshot": {"paperclipWake": wake}})
    assert gone == Skipped(SkipReason.BLANK_ISSUE)


async def test_without_a_wake_the_issue_is_fetched() -> None:
    fixture = HandlerFixture()
    del fixture.paperclip.runs[RUN]
    await handle(fixture)
    await handle(fixture, run={"id": RUN, "contextSnapshot": {"wakeSource": "on_demand"}})
    await handle(fixture, run={"id": RUN})
    assert fixture.paperclip.calls == [("run", RUN), ("issue", ISSUE), ("issue", ISSUE), ("issue", ISSUE)]
    assert [record.query for _, record in fixture.recalls.log if record] == [QUERY] * 3


async def test_a_run_without_run_and_issue_in_paperclip_is_skipped() -> None:
    fixture = HandlerFixture()
    del fixture.paperclip.runs[RUN], fixture.paperclip.issues[ISSUE]
    assert await handle(fixture) == Skipped(SkipReason.BLANK_ISSUE)


async def test_the_user_is_looked_up_if_bank_ids_have_a_user_part() -> None:
    fixture = HandlerFixture(MemoryPolicy(granularity=WITH_USER, user_sources=BY_CREATOR))
    assert await handle(fixture) == Done(bank=bank(AGENT, "local-board"))
    assert fixture.paperclip.calls == [("run", RUN), ("issue", ISSUE)]
    assert fixture.recalls.last.user_id == "local-board"


async def test_without_a_user_the_part_is_left_out_or_the_recall_skipped() -> None:
    for policy, outcome in [
        (MemoryPolicy(granularity=WITH_USER), Done(bank=bank(AGENT))),
        (MemoryPolicy(granularity=WITH_USER, user_required=True), Skipped(SkipReason.NO_USER)),
        (MemoryPolicy(granularity=(BankPart.USER,)), Skipped(SkipReason.NO_USER)),
        (MemoryPolicy(user_required=True), Done(bank=bank(AGENT))),
    ]:
        assert await handle(HandlerFixture(policy)) == outcome


async def test_a_deleted_issue_gives_a_bank_without_a_user() -> None:
    fixture = HandlerFixture(MemoryPolicy(granularity=WITH_USER, user_sources=BY_CREATOR))
    del fixture.paperclip.issues[ISSUE]
    assert await handle(fixture) == Done(bank=bank(AGENT))


FAILURES: list[HandlingError] = [
    unreachable(Upstream.HINDSIGHT),
    Transient("answered 503", upstream=Upstream.HINDSIGHT, retry_after=5),
    Permanent("answered 413", reason=DeadLetterReason.TOO_LARGE, upstream=Upstream.HINDSIGHT),
]


@pytest.mark.parametrize("error", FAILURES, ids=str)
async def test_a_failure_of_hindsight_is_published_and_degraded(error: HandlingError) -> None:
    fixture = HandlerFixture(MemoryPolicy(granularity=WITH_USER, user_sources=BY_CREATOR))
    fixture.hindsight.fail("recall", error)
    outcome = await handle(fixture)
    assert outcome == Degraded(Upstream.HINDSIGHT, str(error), bank(AGENT, "local-board"))
    record = fixture.recalls.last
    assert (record.status, record.memories, record.query) == (RecallStatus.FAILED, [], QUERY)
    assert (record.bank_id, record.user_id) == (bank(AGENT, "local-board"), "local-board")
    assert len(fixture.hindsight.calls) == 1


@pytest.mark.parametrize(
    ("policy", "published_bank"), [(MemoryPolicy(), bank(AGENT)), (MemoryPolicy(granularity=WITH_USER), None)]
)
async def test_a_failure_of_paperclip_is_published_without_a_wider_bank(
    policy: MemoryPolicy, published_bank: str | None
) -> None:
    fixture = HandlerFixture(policy)
    fixture.paperclip.fail("run", unreachable(Upstream.PAPERCLIP))
    assert await handle(fixture) == Degraded(Upstream.PAPERCLIP, "connection refused", published_bank)
    record = fixture.recalls.last
    assert (record.status, record.bank_id, record.user_id) == (RecallStatus.FAILED, published_bank, None)
    assert fixture.hindsight.calls == []


async def test_a_rejected_query_is_halved_once() -> None:
    fixture = HandlerFixture()
    fixture.hindsight.fail("recall", rejected(400))
    assert await handle(fixture) == Done(bank=bank(AGENT))
    assert [call[1] for call in fixture.hindsight.called("recall")] == [QUERY, QUERY[: len(QUERY) // 2]]
    assert fixture.recalls.last.query == QUERY

    fixture.hindsight.fail("recall", rejected(400), rejected(400))
    assert await handle(fixture) == Degraded(Upstream.HINDSIGHT, "answered 400", bank(AGENT))
    assert len(fixture.hindsight.called("recall")) == 4


async def test_half_a_query_without_a_word_is_not_sent() -> None:
    fixture = HandlerFixture()
    fixture.hindsight.fail("recall", rejected(400))
    outcome = await handle(fixture, run=run_with_wake(issue={"title": "🎉🎉🎉 go"}))
    assert isinstance(outcome, Degraded)
    assert outcome.upstream is Upstream.HINDSIGHT
    assert len(fixture.hindsight.calls) == 1


async def test_an_unacknowledged_record_is_raised() -> None:
    fixture = HandlerFixture()
    fixture.recalls.down = True
    with pytest.raises(UpstreamDown) as raised:
        await handle(fixture)
    assert raised.value.upstream is Upstream.KAFKA


async def test_an_unexpected_exception_is_raised() -> None:
    fixture = HandlerFixture()
    fixture.hindsight.fail("recall", ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await handle(fixture)
    assert fixture.recalls.log == []


async def test_without_a_paperclip_api_the_event_must_embed_run_or_issue() -> None:
    fixture = HandlerFixture(has_paperclip=False)
    assert await handle(fixture, run=run_with_wake()) == Done(bank=bank(AGENT))
    assert await handle(fixture, issue={"id": ISSUE, "title": "Carried"}) == Done(bank=bank(AGENT))
    assert fixture.warnings == []
    assert await handle(fixture) == Skipped(SkipReason.BLANK_ISSUE)
    assert len(fixture.warnings) == 1


@pytest.mark.parametrize("run_id", [run["id"] for run in recording.runs()])
async def test_every_recorded_start_is_recalled_unless_it_has_no_issue(run_id: str) -> None:
    fixture = HandlerFixture()
    event = started(run_id)
    outcome = await recall(event, FRESH, fixture.context)
    if event.payload.issue_id is None:
        assert outcome == Skipped(SkipReason.NO_ISSUE)
    else:
        assert outcome == Done(bank=bank(str(event.payload.agent_id)))
