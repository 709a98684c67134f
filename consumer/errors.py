"""The error tree. Each error names the upstream that it came from, so that the engine knows which breaker to use.

    PaperclipMemoryError
    ├── SettingsError           a setting is invalid: the process exits with code 2
    └── HandlingError           a record could not be handled
        ├── Permanent           every attempt would fail: write a dead letter with a reason
        ├── Transient           a later attempt may succeed: park, back off, spend an attempt
        ├── NotYet              an operation has to finish first: park, spend no attempt
        └── UpstreamDown        no record can be handled now: open the lane's breaker

Any other exception counts as `Transient` without an upstream.
"""

from enum import IntEnum, StrEnum


class ExitCode(IntEnum):
    """How a command ended, if not with 0."""

    FAILED = 1  # a probe failed, an upstream did not answer, or there is something to repair
    WRONG_SETTINGS = 2
    STALLED = 70  # the watchdog ended a process that made no progress
    INTERRUPTED = 130


class Upstream(StrEnum):
    """A system that handlers depend on."""

    HINDSIGHT = "hindsight"
    PAPERCLIP = "paperclip"
    KAFKA = "kafka"


class DeadLetterReason(StrEnum):
    """Why a record is a dead letter (closed set: a metric label)."""

    UNDECODABLE = "undecodable"  # not JSON, or not a JSON object
    UNREADABLE = "unreadable"  # a corrupt batch, or a header name that is not UTF-8
    INVALID = "invalid"  # JSON, but not a valid event of its type
    REJECTED = "rejected"  # the upstream answered 400, 422 or another 3xx or 4xx
    TOO_LARGE = "too_large"  # the upstream answered 413, or with more than we read
    FORBIDDEN = "forbidden"  # the upstream refuses only this record (Paperclip's 403, Hindsight's 401 to 403)
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"  # `max_attempts` transient failures
    DEADLINE_EXCEEDED = "deadline_exceeded"  # still `NotYet` after `forget_deadline`


class DownKind(StrEnum):
    """How an upstream is down (closed set: a metric label)."""

    UNREACHABLE = "unreachable"  # connection refused, unknown host, Kafka did not acknowledge
    REFUSED = "refused"  # our key is invalid, expired or unpaid: 401, 402, 403 from Hindsight


class PaperclipMemoryError(Exception):
    """Base class of all errors that this project raises."""


class SettingsError(PaperclipMemoryError):
    """One or more settings are invalid.

    Args:
        problems: one line per setting, with its name, its value (never a secret) and the allowed values.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class HandlingError(PaperclipMemoryError):
    """A record could not be handled.

    Args:
        message: for people; contains no body and no key.
        upstream: the upstream that caused the error, if any.
    """

    def __init__(self, message: str, *, upstream: Upstream | None = None) -> None:
        super().__init__(message)
        self.upstream = upstream


class Permanent(HandlingError):
    """No attempt to handle this record can succeed."""

    def __init__(self, message: str, *, reason: DeadLetterReason, upstream: Upstream | None = None) -> None:
        super().__init__(message, upstream=upstream)
        self.reason = reason


class Transient(HandlingError):
    """This attempt failed; a later one may succeed.

    Args:
        retry_after: seconds from the upstream's `Retry-After` header, if it sent one.
    """

    def __init__(self, message: str, *, upstream: Upstream | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, upstream=upstream)
        self.retry_after = retry_after


class NotYet(HandlingError):
    """An operation that must finish first is unfinished."""


class UpstreamDown(HandlingError):
    """The upstream serves nobody, or not us: until that changes, no record can be handled."""

    def __init__(self, message: str, *, upstream: Upstream, kind: DownKind) -> None:
        super().__init__(message, upstream=upstream)
        self.kind = kind
