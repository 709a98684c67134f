"""Embeddings of hashed words."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.embedded.embedder import DIMENSIONS, embed


def nearness(one: str, other: str) -> float:
    return sum(a * b for a, b in zip(embed(one), embed(other), strict=True))


@given(st.text())
def test_a_vector_has_the_length_one(text: str) -> None:
    vector = embed(text)
    assert len(vector) == DIMENSIONS
    assert math.isclose(math.hypot(*vector), 1.0)


def test_the_same_words_are_the_same_whatever_their_case_and_punctuation() -> None:
    assert nearness("Tokens expire after 24h.", "tokens, expire: AFTER 24h") == pytest.approx(1.0)


def test_texts_that_share_words_are_nearer_than_others() -> None:
    query = "when do tokens expire"
    assert nearness(query, "Decision: tokens expire after 24h") > nearness(
        query, "The release notes go out on Thursday"
    )
