"""The rules of memory as one frozen value: what `settings` says about banks, gates and recall, without any I/O."""

from dataclasses import dataclass
from enum import StrEnum


class BankPart(StrEnum):
    """A part of a dynamic bank id."""

    COMPANY = "company"
    AGENT = "agent"
    USER = "user"


class UserSource(StrEnum):
    """A field of the issue that can name its user."""

    CREATOR_EMAIL = "creatorEmail"
    ORIGIN_ID = "originId"
    CREATED_BY_USER_ID = "createdByUserId"


class RecallBudget(StrEnum):
    """How thoroughly Hindsight searches."""

    LOW = "low"
    MID = "mid"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings that decide what is remembered, for whom and where.

    Attributes:
        static_bank: the one bank of everybody; None when banks are dynamic.
        granularity: parts of a dynamic bank id, in the order used.
        user_sources: fields that may name the user.
        user_required: skip, rather than leave the user part out, when the user is unknown.
        enabled_agents: the agents that have memory; None: all.
        recall_deadline: seconds after which a run's start is too old to recall for.
    """

    static_bank: str | None = None
    granularity: tuple[BankPart, ...] = (BankPart.COMPANY, BankPart.AGENT)
    user_sources: frozenset[UserSource] = frozenset({UserSource.CREATOR_EMAIL, UserSource.ORIGIN_ID})
    user_required: bool = False
    enabled_agents: frozenset[str] | None = None
    auto_retain: bool = True
    retain_system_comments: bool = False
    recall_budget: RecallBudget = RecallBudget.MID
    recall_deadline: float = 60.0

    @property
    def needs_user(self) -> bool:
        """Whether a bank id cannot be derived without looking for the issue's user."""
        return self.static_bank is None and BankPart.USER in self.granularity

    @property
    def needs_agent(self) -> bool:
        """Whether banks differ by agent."""
        return self.static_bank is None and BankPart.AGENT in self.granularity

    def enabled(self, agent_id: str) -> bool:
        """Whether this agent has memory (`enabled_agent_ids`; empty means all, as in the plugin)."""
        return not self.enabled_agents or agent_id in self.enabled_agents
