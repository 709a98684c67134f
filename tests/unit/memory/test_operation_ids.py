"""Operation ids are pinned: a change would retain every comment again."""

import json
import uuid

from hypothesis import given
from hypothesis import strategies as st

from consumer.memory.operation_ids import NAMESPACE, operation_id

any_text = st.text(st.characters(exclude_categories=()))
four = st.tuples(any_text, any_text, any_text, any_text)


def test_the_namespace_and_the_ids_never_change() -> None:
    comment = "24bbb026-156a-48f2-a5a0-29ed55232d44"
    assert str(NAMESPACE) == "5f0f0d5c-6d63-5f6e-9c38-0d1f6cbb7a51"
    assert operation_id("paperclip::co::ag", comment, "Use 24h.", "") == "a36602f0-d365-5d44-acb6-06c60ae7ea67"
    assert operation_id("paperclip::co::ag", comment, "Use 24h. 🎉", "r1") == "ae6a1efb-3a8f-559d-9ab4-c98b11452c4a"


@given(four)
def test_an_operation_id_is_the_uuid5_of_compact_ascii_json(parts: tuple[str, str, str, str]) -> None:
    text = json.dumps(list(parts), separators=(",", ":"), ensure_ascii=True)
    assert operation_id(*parts) == str(uuid.uuid5(NAMESPACE, text))


@given(four, four)
def test_equal_ids_mean_equal_parts(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    same = json.dumps(one) == json.dumps(other)
    assert (operation_id(*one) == operation_id(*other)) == same
