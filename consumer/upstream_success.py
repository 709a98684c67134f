"""Which upstreams answered well while a job ran: what closes a breaker, and keeps one closed.

A handler's outcome cannot say this (a retain may or may not have asked Paperclip), so the clients note it here. Each
job runs in a task of its own, so each has its own set.
"""

from contextvars import ContextVar

from consumer.errors import Upstream

_answered: ContextVar[set[Upstream] | None] = ContextVar("answered", default=None)


def track() -> set[Upstream]:
    """Begin to collect in this task; the set fills while the job runs."""
    answered: set[Upstream] = set()
    _answered.set(answered)
    return answered


def record_success(upstream: Upstream) -> None:
    """An upstream has given a good answer (nothing happens outside a job)."""
    collected = _answered.get()
    if collected is not None:
        collected.add(upstream)
