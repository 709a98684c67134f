"""Bank ids. The plugin's own cases are in `test_plugin_vectors.py`."""

import hashlib
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.memory.banks import MAX_BYTES, company_bank_ids, derive_bank_id
from consumer.memory.policy import BankPart, MemoryPolicy

COMPANY = "f7b2ffb0-dc3a-437e-9f75-94ccd64bb80d"
AGENT = "d5add4c6-9a97-4ddd-9a15-33dcc8c6607c"
OTHER = "f87a0021-4348-4659-b078-31a32e351677"
C, A, U = BankPart.COMPANY, BankPart.AGENT, BankPart.USER
text = st.text(st.characters(exclude_categories=()), max_size=300)


def sha256(user: str) -> str:
    return hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()


@pytest.mark.parametrize(
    ("user", "part"),
    [
        ("ada@example.com", "ada@example.com"),
        ("ada+x@例え.jp", "ada+x@例え.jp"),
        ("a/b@example.com", sha256("a/b@example.com")),
        ("a\x00b", sha256("a\x00b")),
        ("a\x7f", sha256("a\x7f")),
        ("a\x85", sha256("a\x85")),
        ("half \ud83c", sha256("half \ud83c")),
        ("x" * 99, "x" * 99),
        ("x" * 100, sha256("x" * 100)),
        ("例" * 33, "例" * 33),
        ("例" * 34, sha256("例" * 34)),
    ],
)
def test_a_user_is_hashed_if_hindsight_rejects_it_in_a_bank_id(user: str, part: str) -> None:
    bank = derive_bank_id(MemoryPolicy(granularity=(C, A, U)), company=COMPANY, agent=AGENT, user=user)
    assert bank == f"paperclip::{COMPANY}::{AGENT}::user::{part}"


def test_only_the_user_part_is_hashed_and_stays_in_its_place() -> None:
    bank = derive_bank_id(MemoryPolicy(granularity=(U, A)), company=COMPANY, agent=AGENT, user="a/b")
    assert bank == f"paperclip::user::{sha256('a/b')}::{AGENT}"


@pytest.mark.parametrize("user", [None, "a/b", "x" * 500])
def test_a_user_has_no_effect_where_banks_have_none(user: str | None) -> None:
    assert derive_bank_id(MemoryPolicy(), company=COMPANY, agent=AGENT, user=user) == f"paperclip::{COMPANY}::{AGENT}"
    assert derive_bank_id(MemoryPolicy(static_bank=" shared "), company=COMPANY, agent=AGENT, user=user) == "shared"


@pytest.mark.parametrize("user", [None, ""])
def test_a_bank_id_of_a_user_alone_needs_a_user(user: str | None) -> None:
    assert derive_bank_id(MemoryPolicy(granularity=(U,)), company=COMPANY, agent=AGENT, user=user) is None


@given(text.filter(bool), st.permutations([C, A, U]))
def test_hindsight_accepts_every_derived_bank_id(user: str, order: list[BankPart]) -> None:
    bank = derive_bank_id(MemoryPolicy(granularity=tuple(order)), company=COMPANY, agent=AGENT, user=user)
    assert bank is not None
    assert len(bank.encode()) <= MAX_BYTES
    assert "/" not in bank
    assert not bank.startswith("_")
    assert not any(unicodedata.category(char) == "Cc" for char in bank)


@given(text.filter(bool), text.filter(bool))
def test_two_users_never_share_a_bank(one: str, other: str) -> None:
    policy = MemoryPolicy(granularity=(C, A, U))
    first = derive_bank_id(policy, company=COMPANY, agent=AGENT, user=one)
    second = derive_bank_id(policy, company=COMPANY, agent=AGENT, user=other)
    assert (first == second) == (one == other)


@pytest.mark.parametrize(
    ("policy", "user", "banks"),
    [
        (MemoryPolicy(static_bank="shared", granularity=(C, A, U)), "ada", ["shared"]),
        (MemoryPolicy(), "ada", [f"paperclip::{COMPANY}::{AGENT}", f"paperclip::{COMPANY}::{OTHER}"]),
        (MemoryPolicy(granularity=(C,)), "ada", [f"paperclip::{COMPANY}"]),
        (MemoryPolicy(granularity=(U,)), "ada", ["paperclip::user::ada"]),
        (MemoryPolicy(granularity=(U,)), None, []),
        (MemoryPolicy(granularity=(C, U)), "ada", [f"paperclip::{COMPANY}::user::ada", f"paperclip::{COMPANY}"]),
        (MemoryPolicy(granularity=(A, U)), None, [f"paperclip::{AGENT}", f"paperclip::{OTHER}"]),
        (
            MemoryPolicy(granularity=(A, U)),
            "ada",
            [
                f"paperclip::{AGENT}::user::ada",
                f"paperclip::{AGENT}",
                f"paperclip::{OTHER}::user::ada",
                f"paperclip::{OTHER}",
            ],
        ),
    ],
)
def test_company_bank_ids(policy: MemoryPolicy, user: str | None, banks: list[str]) -> None:
    assert company_bank_ids(policy, company=COMPANY, agents=[AGENT, OTHER, AGENT], user=user) == banks


def test_company_bank_ids_without_agents_are_empty() -> None:
    assert company_bank_ids(MemoryPolicy(), company=COMPANY, agents=[], user=None) == []


@given(
    st.lists(st.sampled_from([C, A, U]), min_size=1, unique=True),
    st.none() | text,
    st.sampled_from([AGENT, OTHER]),
    st.booleans(),
)
def test_company_bank_ids_contain_every_bank_that_a_retain_can_use(
    parts: list[BankPart], user: str | None, agent: str, user_known: bool
) -> None:
    policy = MemoryPolicy(granularity=tuple(parts))
    used = derive_bank_id(policy, company=COMPANY, agent=agent, user=user if user_known else None)
    banks = company_bank_ids(policy, company=COMPANY, agents=[AGENT, OTHER], user=user)
    assert used is None or used in banks
    assert len(banks) == len(set(banks))
    assert all(re.match("paperclip::", bank) for bank in banks)
