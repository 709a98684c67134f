"""The error tree. Every error names the upstream it came from, so that the engine knows which breaker it concerns.

    PaperclipMemoryError
    ├── SettingsError           a setting is wrong: the process ends with exit code 2
    └── HandlingError           a record could not be handled
        ├── Permanent           it never will be: dead letter, with a reason
        ├── Transient           it may be, later: park, back off, spend an attempt
        ├── NotYet              it must wait for something to finish: park, spend no attempt
        └── UpstreamDown        nothing can be handled now: open the lane's breaker

Any exception that is not in this tree counts as `Transient` with no upstream.
"""

from enum import IntEnum, StrEnum


class ExitCode(IntEnum):
    """How a command ended, if not with 0."""

    FAILED = 1  # a probe failed, an upstream did not answer, or there is something to repair
    WRONG_SETTINGS = 2
    STALLED = 70  # the watchdog ended a process that made no progress
    INTERRUPTED = 130


class Upstream(StrEnum):
    """A system that handling a record depends on."""

    HINDSIGHT = "hindsight"
    PAPERCLIP = "paperclip"
    KAFKA = "kafka"


class DeadLetterReason(StrEnum):
    """Why a record is a dead letter (closed: it is a metric label)."""

    UNDECODABLE = "undecodable"  # not JSON, or no JSON object
    INVALID = "invalid"  # JSON, but not the event that its type promises
    REJECTED = "rejected"  # the upstream answered 400, 422 or another 3xx or 4xx
    TOO_LARGE = "too_large"  # the upstream answered 413
    FORBIDDEN = "forbidden"  # Paperclip's 403: another company's key
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"  # `max_attempts` transient failures
    DEADLINE_EXCEEDED = "deadline_exceeded"  # still `NotYet` after `forget_deadline`


class DownKind(StrEnum):
    """How an upstream is down (closed: it is a metric label)."""

    UNREACHABLE = "unreachable"  # refused, no such host, Kafka not taking a publish
    REFUSED = "refused"  # our key is wrong, expired or unpaid: 401, 402, Hindsight's 403


class PaperclipMemoryError(Exception):
    """The root of all errors that this project raises on purpose."""


class SettingsError(PaperclipMemoryError):
    """One or more settings are wrong.

    Args:
        problems: one line for each, naming the field, the value (never a secret) and what is allowed.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class HandlingError(PaperclipMemoryError):
    """A record could not be handled.

    Args:
        message: for people; holds no body and no key.
        upstream: where it came from; None if from no upstream.
    """

    def __init__(self, message: str, *, upstream: Upstream | None = None) -> None:
        super().__init__(message)
        self.upstream = upstream


class Permanent(HandlingError):
    """Handling this record fails for ever."""

    def __init__(self, message: str, *, reason: DeadLetterReason, upstream: Upstream | None = None) -> None:
        super().__init__(message, upstream=upstream)
        self.reason = reason


class Transient(HandlingError):
    """Handling this record failed and may succeed later.

    Args:
        retry_after: seconds the upstream asked us to wait (`Retry-After`); None if it did not.
    """

    def __init__(self, message: str, *, upstream: Upstream | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, upstream=upstream)
        self.retry_after = retry_after


class NotYet(HandlingError):
    """Something that must end first has not ended."""


class UpstreamDown(HandlingError):
    """The upstream serves nobody, or not us: no record can be handled until that changes."""

    def __init__(self, message: str, *, upstream: Upstream, kind: DownKind) -> None:
        super().__init__(message, upstream=upstream)
        self.kind = kind
