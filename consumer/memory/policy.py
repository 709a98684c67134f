"""The memory policy: the settings about banks, gates and recall as one frozen value, free of I/O."""

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
class MemoryPolicy:
    """Decides what is remembered, for which agent and user, and in which bank.

    Attributes:
        static_bank: the bank that everybody shares; None if bank ids are dynamic.
        granularity: parts of a dynamic bank id, in the order used.
        user_sources: fields of the issue that may name its user.
        user_required: skip when the user is unknown, instead of leaving the user part out.
        enabled_agents: the agents that have memory; None or empty for all, as in the plugin.
        recall_deadline: seconds after which the start of a run is too old for a recall.
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
        """Whether a bank id has a user part."""
        return self.static_bank is None and BankPart.USER in self.granularity

    @property
    def needs_agent(self) -> bool:
        """Whether a bank id has an agent part."""
        return self.static_bank is None and BankPart.AGENT in self.granularity

    def is_enabled(self, agent_id: str) -> bool:
        """Whether this agent has memory (setting `enabled_agent_ids`)."""
        return not self.enabled_agents or agent_id in self.enabled_agents
