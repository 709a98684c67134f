"""Embeddings of hashed words."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.embedded.embedder import DIMENSIONS, embed


def nearness(one: str, other: str) -> float:
    return sum(a * b for a, b in zip(embed(one), embed(other), strict=True))


@given(st.text())
def test_vector_has_length_one(text: str) -> None:
    vector = embed(text)
    assert len(vector) == DIMENSIONS
    assert math.isclose(math.hypot(*vector), 1.0)


def test_case_and_punctuation_do_not_change_the_vector() -> None:
    assert nearness("Tokens expire after 24h.", "tokens, expire: AFTER 24h") == pytest.approx(1.0)


def test_texts_that_share_words_are_more_similar() -> None:
    query = "when do tokens expire"
    assert nearness(query, "Decision: tokens expire after 24h") > nearness(
        query, "The release notes go out on Thursday"
    )
