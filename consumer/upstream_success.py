"""Which upstreams answered successfully while a job ran: this closes a breaker, and keeps a closed one closed.

A handler's result does not say so (a retain may or may not have called Paperclip), so the clients record it here. Each
job runs in its own task, and therefore has its own set.
"""

from contextvars import ContextVar

from consumer.errors import Upstream

_tracked: ContextVar[set[Upstream] | None] = ContextVar("upstream_success", default=None)


def track() -> set[Upstream]:
    """Start tracking in this task; the returned set fills while the job runs."""
    upstreams = set[Upstream]()
    _tracked.set(upstreams)
    return upstreams


def record_success(upstream: Upstream) -> None:
    """Record that an upstream answered successfully; has no effect outside a job."""
    upstreams = _tracked.get()
    if upstreams is not None:
        upstreams.add(upstream)
