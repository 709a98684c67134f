"""What a handler returns. What it raises is in `consumer.errors`."""

from dataclasses import dataclass
from enum import StrEnum


class SkipReason(StrEnum):
    """Why a handler had nothing to do (closed: it is a metric label)."""

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


class FailReason(StrEnum):
    """Why a handler's work failed without harm (closed: it is a metric label)."""

    HINDSIGHT = "hindsight"
    PAPERCLIP = "paperclip"


@dataclass(frozen=True, slots=True)
class Done:
    """The record has had its effect.

    Attributes:
        failed: the upstream whose failure was not worth a retry.
        error: that failure for people, with no body and no key in it.
        bank: the one bank that was used; None if there was none, or several. The log shows its hash.
    """

    failed: FailReason | None = None
    error: str = ""
    bank: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """The rules say that this record has no effect."""

    reason: SkipReason


Outcome = Done | Skipped
