"""Which bank of Hindsight holds whose memory. Ids are the plugin's to the letter, so that old memories stay found."""

import hashlib
import unicodedata
from collections.abc import Iterable

from consumer.memory.policy import BankPart, Rules

MAX_BYTES = 192
"""Longest bank id that Hindsight creates, in bytes of UTF-8 (`BANK_ID_MAX_BYTES` in its source)."""


def bank_of(rules: Rules, *, company: str, agent: str | None, user: str | None) -> str | None:
    """The bank that the rules give; parts that are not known are left out, as the plugin does.

    None when nothing is left, so that `["user"]` without a user never gives one bank to everybody.
    """
    if rules.static_bank is not None:
        return rules.static_bank.strip()
    known = {BankPart.COMPANY: company, BankPart.AGENT: agent, BankPart.USER: user}
    parts = [(part, value) for part in rules.granularity if (value := known[part])]
    if not parts:
        return None
    bank = _join(parts)
    if user and (_unfit(user) or len(bank.encode()) > MAX_BYTES):
        hashed = hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()
        return _join((part, hashed if part is BankPart.USER else value) for part, value in parts)
    return bank


def banks_of_company(rules: Rules, *, company: str, agents: Iterable[str], user: str | None) -> list[str]:
    """Every bank that the rules can give any of these agents, with the user and without; each once, in a stable order.

    A document's attribution can have changed since it was stored: to forget it means to look in all of them.
    """
    whose: list[str | None] = list(dict.fromkeys(agents)) if rules.needs_agent else [None]
    users = [user, None] if rules.needs_user and user else [None]
    banks = [bank_of(rules, company=company, agent=agent, user=each) for agent in whose for each in users]
    return list(dict.fromkeys(bank for bank in banks if bank is not None))


def _join(parts: Iterable[tuple[BankPart, str]]) -> str:
    return "paperclip" + "".join(f"::user::{text}" if part is BankPart.USER else f"::{text}" for part, text in parts)


def _unfit(user: str) -> bool:
    """Whether Hindsight cannot take it: `/` even as `%2F`, control characters, half a surrogate pair."""
    return "/" in user or any(unicodedata.category(char) in ("Cc", "Cs") for char in user)
