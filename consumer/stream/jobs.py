"""The seam between the engine and the work: a `Resolve` turns a record into a `Job`, and the engine runs the job.

The engine knows no events and no handlers; the work knows no Kafka and no retries.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from consumer.handlers.results import Outcome
from consumer.stream.records import Record


@dataclass(frozen=True, slots=True)
class Job:
    """What to do with one record.

    Attributes:
        handler: the handler's name, a closed set (a metric label); `ignored` for event types that mean nothing here.
        run: does the work once; raises from `consumer.errors`. None: nothing to do, the record is ignored.
        facts: what the log says about the record: event id, event type, run or comment id.
    """

    handler: str
    run: Callable[[], Awaitable[Outcome]] | None
    facts: dict[str, str] = field(default_factory=dict)


Resolve = Callable[[Record], Job]
"""Raises `Permanent` for a record that can never be decoded."""
