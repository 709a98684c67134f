"""Bank ids. They equal the plugin's ids to the letter, so that memories stored by the plugin stay reachable."""

import hashlib
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from consumer.memory.attribution import resolve_bank_user
from consumer.memory.policy import BankPart, MemoryPolicy
from schemas.paperclip import Issue

MAX_BYTES = 192
"""Longest bank id that Hindsight creates, in bytes of UTF-8 (`BANK_ID_MAX_BYTES` in its source)."""


class BankChoice(NamedTuple):
    """A bank, and the user in its id, if it has one."""

    bank: str
    user: str | None


def choose_bank(policy: MemoryPolicy, *, company: str, agent: str, issue: Issue | None) -> BankChoice | None:
    """Choose the bank for an agent's memories of an issue; None if the policy requires a user and there is none."""
    user = resolve_bank_user(issue, policy)
    bank = derive_bank_id(policy, company=company, agent=agent, user=user)
    if bank is None or (policy.needs_user and policy.user_required and user is None):
        return None
    return BankChoice(bank, user)


def derive_bank_id(policy: MemoryPolicy, *, company: str, agent: str | None, user: str | None) -> str | None:
    """Derive the bank id; parts without a value are left out, as in the plugin.

    None when no part has a value, so that `["user"]` without a user never gives everybody the same bank.
    """
    if policy.static_bank is not None:
        return policy.static_bank.strip()
    values = {BankPart.COMPANY: company, BankPart.AGENT: agent, BankPart.USER: user}
    parts = [(part, value) for part in policy.granularity if (value := values[part])]
    if not parts:
        return None
    bank = _join(parts)
    if user and (_needs_hash(user) or len(bank.encode()) > MAX_BYTES):
        digest = hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()
        return _join((part, digest if part is BankPart.USER else value) for part, value in parts)
    return bank


def company_bank_ids(policy: MemoryPolicy, *, company: str, agents: Iterable[str], user: str | None) -> list[str]:
    """Return every bank id that the policy can give one of these agents, with the user and without, in a stable order.

    A document's attribution can have changed since it was stored, so a forget looks into all of these banks.
    """
    agent_parts: list[str | None] = list(dict.fromkeys(agents)) if policy.needs_agent else [None]
    user_parts = [user, None] if policy.needs_user and user else [None]
    banks = [
        derive_bank_id(policy, company=company, agent=agent_part, user=user_part)
        for agent_part in agent_parts
        for user_part in user_parts
    ]
    return list(dict.fromkeys(bank for bank in banks if bank is not None))


def _join(parts: Iterable[tuple[BankPart, str]]) -> str:
    return "paperclip" + "".join(f"::user::{text}" if part is BankPart.USER else f"::{text}" for part, text in parts)


def _needs_hash(user: str) -> bool:
    """Whether Hindsight rejects the user in a bank id: `/` (even as `%2F`), control characters, lone surrogates."""
    return "/" in user or any(unicodedata.category(char) in ("Cc", "Cs") for char in user)
