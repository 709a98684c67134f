"""From bytes to results: the job of each event, and the whole recording through the handlers."""

import contextlib
import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.dispatcher import COMMENT_HANDLERS, RUN_HANDLERS, Dispatcher, fallback_key
from consumer.errors import DeadLetterReason, NotYet, Permanent, Upstream
from consumer.handlers.forget import CANCEL_SETTLES_AFTER
from consumer.handlers.results import Degraded, Done, HandlerResult, Skipped, SkipReason
from consumer.memory.operation_ids import operation_id
from consumer.stream.executor import Job
from consumer.stream.records import Record
from demo import recording
from schemas.events import EVENT_TYPES
from tests.support.fakes import NOW, HandlerFixture, unreachable
from tests.unit.handlers.samples import ADA, AGENT_COMMENT, COMMENTS, EVENTS, RUN, USER_COMMENT, bank

ALL = {**RUN_HANDLERS, **COMMENT_HANDLERS}
RUN_STARTED = EVENTS["agent.run.started", RUN]
CREATED = EVENTS["issue.comment.created", AGENT_COMMENT]


def record(value: Any, *headers: tuple[str, bytes | None], at: float = NOW) -> Record:
    raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return Record("topic", 0, 0, int(at * 1000), b"key", raw, headers)


def resolve(value: Any, *headers: tuple[str, bytes | None], fixture: HandlerFixture | None = None) -> Job:
    return Dispatcher((fixture or HandlerFixture()).context, ALL).resolve(record(value, *headers))


async def run_job(job: Job) -> HandlerResult:
    assert job.run is not None
    return await job.run()


def test_every_event_type_has_its_handler() -> None:
    assert {event_type: handler.name for event_type, handler in ALL.items()} == {
        "agent.run.started": "recall",
        "agent.run.finished": "run_end",
        "agent.run.failed": "run_end",
        "agent.run.cancelled": "run_end",
        "issue.comment.created": "retain",
        "issue.comment.deleted": "forget",
        "issue.comment.cancelled": "forget",
    }
    assert set(ALL) == set(EVENT_TYPES)


@pytest.mark.parametrize("event_type", COMMENT_HANDLERS)
def test_a_lane_ignores_the_events_of_the_other(event_type: str) -> None:
    job = Dispatcher(HandlerFixture().context, RUN_HANDLERS).resolve(record({**CREATED, "eventType": event_type}))
    assert (job.handler, job.run, job.facts) == ("ignored", None, {})


@pytest.mark.parametrize("event", [{"eventType": "issue.created"}, {"eventType": ""}, {"eventType": "x", "eventId": 7}])
def test_unknown_event_types_are_ignored(event: dict[str, Any]) -> None:
    assert resolve(event).handler == "ignored"


@pytest.mark.parametrize("value", [None, b"", b"nope", b"\xff", b"[]", b"7", b'{"eventType":', b"[" * 100_000])
def test_a_value_that_is_not_a_json_object_is_undecodable(value: bytes | None) -> None:
    with pytest.raises(Permanent) as raised:
        resolve(value)
    assert raised.value.reason is DeadLetterReason.UNDECODABLE


@pytest.mark.parametrize(
    ("event", "names"),
    [
        ({}, "eventType"),
        ({"eventType": 7}, "eventType"),
        ({**CREATED, "eventId": "secret"}, "eventId"),
        ({**CREATED, "companyId": None}, "companyId"),
        ({**CREATED, "entityId": "secret"}, "entityId"),
        ({**CREATED, "payload": {"commentId": "secret"}}, "payload.commentId"),
        ({**RUN_STARTED, "payload": {"agentId": None}}, "payload.runId"),
        ({**RUN_STARTED, "payload": []}, "payload"),
        ({**RUN_STARTED, "payload": None}, "payload"),
    ],
)
def test_invalid_events_name_the_field_and_quote_nothing(event: dict[str, Any], names: str) -> None:
    with pytest.raises(Permanent) as raised:
        resolve(event)
    assert raised.value.reason is DeadLetterReason.INVALID
    assert names in str(raised.value)
    assert "secret" not in str(raised.value)


json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists)


@given(st.binary() | json_values.map(json.dumps).map(str.encode))
def test_any_bytes_are_ignored_or_permanent(value: bytes) -> None:
    with contextlib.suppress(Permanent):
        assert resolve(value).handler == "ignored"


@given(st.sampled_from(recording.events()), st.data())
async def test_an_event_with_a_field_of_any_kind_is_handled_or_permanent(
    event: dict[str, Any], data: st.DataObject
) -> None:
    changed = copy.deepcopy(event)
    target = changed["payload"] if data.draw(st.booleans()) else changed
    target[data.draw(st.sampled_from(sorted([*target, "comment", "issue", "run"])))] = data.draw(json_values)
    with contextlib.suppress(Permanent):
        job = resolve(changed)
        assert job.run is None or isinstance(await job.run(), Done | Skipped)


def test_a_job_has_facts_for_the_log() -> None:
    assert resolve(CREATED).facts == {
        "event_id": CREATED["eventId"],
        "event_type": "issue.comment.created",
        "comment_id": AGENT_COMMENT,
    }
    assert resolve(RUN_STARTED).facts["run_id"] == RUN
    assert "comment_id" not in resolve({**CREATED, "payload": {}}).facts


async def test_bank_and_error_of_the_result_are_added_to_the_facts() -> None:
    job = resolve(CREATED)
    assert await run_job(job) == Done(bank=bank(ADA))
    assert job.facts["bank"] == bank(ADA)

    fixture = HandlerFixture()
    fixture.hindsight.fail("recall", unreachable(Upstream.HINDSIGHT))
    job = resolve(RUN_STARTED, fixture=fixture)
    outcome = await run_job(job)
    assert isinstance(outcome, Degraded)
    assert outcome.upstream is Upstream.HINDSIGHT
    assert job.facts["error"] == "connection refused"

    job = resolve({**CREATED, "payload": {}})
    assert await run_job(job) == Skipped(SkipReason.NO_COMMENT_ID)
    assert job.facts.keys() == {"event_id", "event_type"}


@pytest.mark.parametrize("reference", ["PAP-12", "", "daily-digest"])
@pytest.mark.parametrize("event_type", ["agent.run.finished", "agent.run.failed", "agent.run.cancelled"])
async def test_the_end_of_a_run_is_a_tombstone_whatever_its_issue_is_called(event_type: str, reference: str) -> None:
    fixture = HandlerFixture()
    payload = {**RUN_STARTED["payload"], "issueId": reference}
    event = {**RUN_STARTED, "eventType": event_type, "payload": payload}
    assert await run_job(resolve(event, fixture=fixture)) == Done()
    assert fixture.recalls.log == [(RUN, None)]


async def test_a_job_can_run_again_after_a_failure() -> None:
    fixture = HandlerFixture()
    fixture.hindsight.fail("retain", unreachable(Upstream.HINDSIGHT))
    job = resolve(CREATED, fixture=fixture)
    with pytest.raises(Exception, match="refused"):
        await run_job(job)
    assert await run_job(job) == Done(bank=bank(ADA))


@pytest.mark.parametrize(
    ("headers", "repair", "fetched"),
    [
        ((), "", False),
        ((("other", b"x"),), "", False),
        ((("replay", b"backfill"),), "", True),
        ((("replay", b""),), "", True),
        ((("replay", None),), "", True),
        ((("repair", b""),), "", False),
        ((("repair", b"audit-7"),), "audit-7", True),
        ((("repair", b"first"), ("repair", b"last")), "last", True),
    ],
)
async def test_the_headers_repair_and_replay_reach_the_handler(
    headers: tuple[tuple[str, bytes | None], ...], repair: str, fetched: bool
) -> None:
    fixture = HandlerFixture()
    comment = COMMENTS[AGENT_COMMENT]
    event = {**CREATED, "payload": {**CREATED["payload"], "comment": comment}}
    await run_job(resolve(event, *headers, fixture=fixture))
    assert fixture.hindsight.called("retain")[0][2] == operation_id(bank(ADA), AGENT_COMMENT, comment["body"], repair)
    assert (fixture.paperclip.called("comment") != []) is fetched


async def test_the_timestamp_of_a_record_is_in_milliseconds() -> None:
    fixture = HandlerFixture()
    late = Dispatcher(fixture.context, ALL).resolve(record(RUN_STARTED, at=NOW - 61))
    assert await run_job(late) == Skipped(SkipReason.TOO_LATE)
    fresh = Dispatcher(fixture.context, ALL).resolve(record(RUN_STARTED, at=NOW - 59))
    assert await run_job(fresh) == Done(bank=bank(str(RUN_STARTED["payload"]["agentId"])))


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (CREATED, AGENT_COMMENT.encode()),
        (RUN_STARTED, RUN.encode()),
        ({"payload": {"commentId": AGENT_COMMENT.upper(), "runId": RUN}}, AGENT_COMMENT.encode()),
        ({"payload": {"commentId": None, "runId": RUN}}, RUN.encode()),
        ({"payload": {"commentId": "", "runId": 7}}, None),
        ({"payload": {"commentId": "half \ud83c"}}, b"half ?"),
        ({"payload": []}, None),
        ({}, None),
        (b"not JSON", None),
        (None, None),
    ],
)
def test_the_fallback_key_is_the_comment_id_or_the_run_id(value: Any, key: bytes | None) -> None:
    assert fallback_key(record(value)) == key


def expected_documents() -> dict[str, str]:
    """The living comments that have an event, with the bank of their author agent or of the assignee."""
    assignees = {issue["id"]: issue["assigneeAgentId"] for issue in recording.issues()}
    return {
        comment["id"]: bank(comment["authorAgentId"] or assignees[comment["issueId"]])
        for comment in recording.comments()
        if ("issue.comment.created", comment["id"]) in EVENTS and comment["deletedAt"] is None
    }


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("whole", [False, True], ids=["bare", "enriched"])
async def test_the_recording_played_twice_in_any_order_stores_each_comment_once(seed: int, whole: bool) -> None:
    """Each of the 17 living comments with an event is one document with its own timestamp."""
    shuffle = random.Random(seed)  # noqa: S311 - no secret
    events = recording.events() * 2
    shuffle.shuffle(events)
    fixture = HandlerFixture()
    dispatcher = Dispatcher(fixture.context, ALL)
    for event in events:
        comment_id = event["payload"].get("commentId")
        if whole and comment_id is not None:
            event["payload"]["comment"] = COMMENTS[comment_id]
        await run_job(dispatcher.resolve(record(event)))
        if shuffle.random() < 0.2:
            fixture.hindsight.run_workers()
    fixture.hindsight.run_workers()
    assert fixture.hindsight.documents == expected_documents()
    assert len(fixture.hindsight.documents) == 17
    assert len(fixture.hindsight.children) == 17
    for documents in fixture.hindsight.banks.values():
        for memory in documents.values():
            assert memory.timestamp == COMMENTS[memory.document_id]["createdAt"]
            assert memory.content == COMMENTS[memory.document_id]["body"]
    assert fixture.warnings == []


@pytest.mark.parametrize("times", [1, 2])
async def test_the_recording_in_order_leaves_no_recall(times: int) -> None:
    fixture = HandlerFixture()
    dispatcher = Dispatcher(fixture.context, ALL)
    for event in recording.events():
        for _ in range(times):
            await run_job(dispatcher.resolve(record(event)))
    assert len({run for run, record in fixture.recalls.log if record}) == 23
    assert fixture.recalls.compacted == {}


async def test_a_deletion_or_cancellation_after_the_retain_leaves_no_document() -> None:
    fixture = HandlerFixture()
    dispatcher = Dispatcher(fixture.context, ALL)
    created = EVENTS["issue.comment.created", USER_COMMENT]
    bare = {"commentId": USER_COMMENT, "agentId": None}
    for event_type in ("issue.comment.deleted", "issue.comment.cancelled"):
        await run_job(dispatcher.resolve(record(created)))
        gone = record({**created, "eventType": event_type, "payload": bare})
        with contextlib.suppress(NotYet):  # the queued retain is cancelled, which takes time to settle
            await run_job(dispatcher.resolve(gone))
        fixture.now += CANCEL_SETTLES_AFTER + 1
        assert await run_job(dispatcher.resolve(gone)) == Done()
        fixture.hindsight.run_workers()
        assert fixture.hindsight.documents == {}
