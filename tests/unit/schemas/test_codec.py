"""Decoding, parsing and encoding: what is taken, what is refused, and that nothing is lost on the way."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from demo import recording
from schemas.codec import MAX_LEVELS, decode, encode, loads, parse
from schemas.events import EVENT_TYPES, AgentRunStarted, Envelope, IssueCommentCreated
from schemas.recalls import RecallRecord, RecallStatus

ID = "d5add4c6-9a97-4ddd-9a15-33dcc8c6607c"
text = st.text(st.characters(exclude_categories=()))  # lone surrogates too
floats = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)
objects = st.dictionaries(text, values, max_size=6)


def paired(value: Any) -> Any:
    """The value with every two surrogates that make a character made one: JSON cannot tell them apart."""
    return json.loads(json.dumps(value))


def started(**fields: Any) -> dict[str, Any]:
    payload = {"runId": ID, "agentId": ID}
    return {"eventId": ID, "eventType": "agent.run.started", "companyId": ID, "payload": payload} | fields


@given(objects)
def test_any_json_object_round_trips(value: dict[str, JsonValue]) -> None:
    data = encode(value)
    assert data.isascii()
    assert decode(data) == paired(value)
    assert encode(decode(data)) == encode(paired(value))


@given(st.dictionaries(st.text(), values, max_size=6), text)
def test_an_event_keeps_every_field_and_text(extra: dict[str, JsonValue], snippet: str) -> None:
    value = extra | {
        "eventId": ID,
        "eventType": "issue.comment.created",
        "companyId": ID,
        "entityId": ID,
        "payload": {"commentId": ID, "bodySnippet": snippet, "unknown": extra},
    }
    for name in ("event_id", "event_type", "company_id", "entity_id", "occurredAt", "actorId", "actorType"):
        value.pop(name, None)
    event = parse(value)
    assert isinstance(event, IssueCommentCreated)
    assert event.payload.body_snippet == snippet
    assert decode(encode(event)) == paired(value)


@pytest.mark.parametrize("event", recording.events(), ids=lambda event: f"{event['eventType']}:{event['eventId'][:8]}")
def test_captured_events_round_trip(event: dict[str, Any]) -> None:
    parsed = parse(decode(encode(event)))
    assert type(parsed) is EVENT_TYPES[event["eventType"]]
    assert decode(encode(parsed)) == event


@pytest.mark.parametrize("name", ["event-half-emoji-snippet", "event-relay-stop"])
def test_made_events_round_trip(name: str) -> None:
    event = recording.made(name).value
    parsed = parse(decode(encode(event)))
    assert isinstance(parsed, IssueCommentCreated)
    assert decode(encode(parsed)) == event


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "no value"),
        (b"", "not JSON: Expecting value at character 0"),
        (b"{", "not JSON: "),
        (b'{"a":"secret" "b"}', "not JSON: Expecting ',' delimiter at character 14"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b'{"a":"\xed\xa0\xbd"}', "not UTF-8 at byte 6"),  # a surrogate in bytes, not as an escape
        (b"\xef\xbb\xbf{}", "not JSON: Expecting value"),
        (b'"text"', "JSON string, not an object"),
        (b"[1]", "JSON list, not an object"),
        (b"null", "JSON null, not an object"),
        (b"true", "JSON boolean, not an object"),
        (b"1.5", "JSON number, not an object"),
        (b"[" * 200_000, "JSON nested too deeply"),
        (b'{"a":' * 200_000, "JSON nested too deeply"),
        (b'{"a":NaN}', "not JSON: NaN"),
        (b'{"a":-Infinity}', "not JSON: -Infinity"),
        (b'{"a":' + b"9" * 5000 + b"}", "JSON integer of more than 4300 digits"),
    ],
)
def test_undecodable_value_is_a_value_error(value: bytes | None, says: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        decode(value)
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_a_value_error(value: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(decode(value), dict)


def test_lone_surrogates_round_trip_as_escapes() -> None:
    assert decode(b'{"a":"x\\ud83c"}') == {"a": "x\ud83c"}
    assert encode({"a": "x\ud83c"}) == b'{"a":"x\\ud83c"}'


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_unencodable_value_is_a_value_error(number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        encode({"a": number})


def test_an_unknown_type_is_an_envelope() -> None:
    event = parse(started(eventType="agent.hired"))
    assert type(event) is Envelope
    assert event.payload == {"runId": ID, "agentId": ID}


def test_ids_are_lower_cased() -> None:
    event = parse(started(eventId=ID.upper()))
    assert isinstance(event, AgentRunStarted)
    assert event.event_id == ID


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (started(eventId="local-board"), "eventId is a string: must be a UUID"),
        (started(eventId=f"{ID}\n"), "eventId is a string: must be a UUID"),
        (started(eventId="\ud83c"), "eventId is a string: "),
        (started(companyId=None), "companyId is a null: "),
        (started(payload={}), "payload.runId is missing"),
        (started(payload=[]), "payload is a list: "),
        (started(payload={"runId": "secret"}), "payload.runId is a string: must be a UUID"),
        (started(payload={"runId": ID, "issueId": 7}), "payload.issueId is a number: "),
        (started(eventType=["secret"]), "eventType is a list: "),
        (started(eventType=""), "eventType is a string: "),
        ({"eventType": "issue.comment.deleted"}, "eventId is missing; entityId is missing; "),
        (started(**{"x\ud83c": 1}), "a field's name is a string: "),
        ({}, "eventId is missing; eventType is missing; companyId is missing"),
        (
            started(
                eventType="issue.comment.created", entityId=ID, payload={"comment": {"id": ID, "body": ["secret"]}}
            ),
            "payload.comment.body is a list: ",
        ),
    ],
)
def test_parse_names_the_field_and_no_value(value: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse(value)
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)


def test_actor_and_entity_of_a_run_are_free_text() -> None:
    event = parse(started(actorId="local-board", entityId="anything"))
    assert (event.actor_id, event.entity_id) == ("local-board", "anything")


@given(st.lists(text, max_size=3), text)
def test_recall_record_round_trips(memories: list[str], query: str) -> None:
    record = RecallRecord(
        run_id=ID,
        company_id=ID,
        agent_id=ID,
        issue_id=ID,
        bank_id=None,
        user_id=None,
        query=query,
        status=RecallStatus.EMPTY,
        memories=memories,
        recalled_at="2026-11-30T09:52:12.659Z",
    )
    found = decode(encode(record))
    assert found["status"] == "empty"
    assert found["memories"] == paired(memories)
    assert RecallRecord.model_validate(found).query == paired(query)


def nested(levels: int, *, kind: str = "[]") -> str:
    return kind[0] * levels + kind[1] * levels if kind == "[]" else '{"a":' * levels + "1" + "}" * levels


def depth(value: Any) -> int:
    levels, layer = 0, [value]
    while layer := [each for each in layer if isinstance(each, list | dict)]:
        levels += 1
        layer = [child for each in layer for child in (each.values() if isinstance(each, dict) else each)]
    return levels


@pytest.mark.parametrize("kind", ["[]", "{}"])
@pytest.mark.parametrize("levels", [1_100, 5_000, 200_000])
def test_json_of_any_depth_is_decoded_with_null_for_what_is_too_deep(levels: int, kind: str) -> None:
    body = f'{{"id": "a ] \\" [ b", "deep": {nested(levels, kind=kind)}, "last": [1, "\\ud83c"]}}'
    value, too_deep = loads(body.encode())
    assert (value["id"], value["last"], too_deep) == ('a ] " [ b', [1, "\ud83c"], True)
    assert depth(value) == MAX_LEVELS
    assert json.loads(encode(value)) == value


def test_json_that_is_not_too_deep_is_decoded_as_it_is() -> None:
    wide = [{"row": number, "tags": [[], {}]} for number in range(1_000)]
    assert loads(json.dumps(wide).encode()) == (wide, False)
    assert loads(nested(MAX_LEVELS).encode())[1] is False
    assert loads(b'"half \\ud83c"') == ("half \ud83c", False)


@pytest.mark.parametrize("body", [b"", b"nope", b"[" * 100_000, b"]" * 100_000, b'{"a":' * 1_000, b'["' + b"[" * 1_000])
def test_what_is_not_json_is_not_decoded_however_deep(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the parser's own
        loads(body)


@given(values)
def test_loads_agrees_with_the_standard_library(value: Any) -> None:
    assert loads(json.dumps(value).encode()) == (paired(value), False)
