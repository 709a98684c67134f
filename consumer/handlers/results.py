"""What a handler returns. The errors that it raises are in `consumer.errors`."""

from dataclasses import dataclass
from enum import StrEnum

from consumer.errors import Upstream


class SkipReason(StrEnum):
    """Why a handler had nothing to do (closed set: a metric label)."""

    AGENT_NOT_ENABLED = "agent_not_enabled"
    NO_ISSUE = "no_issue"
    NO_AGENT = "no_agent"
    NO_USER = "no_user"
    NO_COMMENT_ID = "no_comment_id"
    BLANK_ISSUE = "blank_issue"
    BLANK_QUERY = "blank_query"
    BLANK_COMMENT = "blank_comment"
    TOO_LATE = "too_late"
    AUTO_RETAIN_OFF = "auto_retain_off"
    SYSTEM_COMMENT = "system_comment"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class Done:
    """The record was handled.

    Attributes:
        bank: the bank that was used; None if there was none, or more than one. The log shows its hash.
    """

    bank: str | None = None


@dataclass(frozen=True, slots=True)
class Degraded:
    """The record was handled as well as possible: an upstream failed, and a retry would come too late to help.

    Attributes:
        upstream: the one that failed.
        error: the failure for people; contains no body and no key.
        bank: as in `Done`.
    """

    upstream: Upstream
    error: str = ""
    bank: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """The record has no effect: the policy excludes it, or it lacks what the handler needs."""

    reason: SkipReason


HandlerResult = Done | Degraded | Skipped
