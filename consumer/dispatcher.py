"""Event type → handler: turns a record of Kafka into the job that the engine runs."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from consumer.errors import DeadLetterReason, Permanent
from consumer.handlers.context import Delivery, Needs
from consumer.handlers.forget import forget
from consumer.handlers.recall import recall
from consumer.handlers.results import Done, Outcome
from consumer.handlers.retain import retain
from consumer.handlers.run_end import run_end
from consumer.stream.executor import Job
from consumer.stream.records import Record
from schemas.codec import decode, parse

REPAIR_HEADER = "repair"
"""Its text makes a retain's operation id a new one, so that Hindsight works a comment again."""
REPLAY_HEADER = "replay"
"""There, whatever its text, if the record is not fresh."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler and its name.

    Attributes:
        run: takes the event that the type promises, the delivery and the needs.
        subject: the payload's field that says what it is about; the log names it.
    """

    name: str
    run: Callable[[Any, Delivery, Needs], Awaitable[Outcome]]
    subject: str


_RUN_END = Handler("run_end", run_end, "run_id")
_FORGET = Handler("forget", forget, "comment_id")

RUN_HANDLERS: Mapping[str, Handler] = {
    "agent.run.started": Handler("recall", recall, "run_id"),
    "agent.run.finished": _RUN_END,
    "agent.run.failed": _RUN_END,
    "agent.run.cancelled": _RUN_END,
}
"""The recall lane's."""
COMMENT_HANDLERS: Mapping[str, Handler] = {
    "issue.comment.created": Handler("retain", retain, "comment_id"),
    "issue.comment.deleted": _FORGET,
    "issue.comment.cancelled": _FORGET,
}
"""The retain lane's."""
IGNORED = Job(handler="ignored", run=None)


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """One lane's handlers, with what they need; its `resolve` is the engine's `JobFactory`."""

    needs: Needs
    handlers: Mapping[str, Handler]

    def resolve(self, record: Record) -> Job:
        """The job of a record; an event type without a handler is ignored, whatever else the record holds.

        Raises:
            Permanent: the value is no JSON object, or not the event that its type promises.
        """
        try:
            value = decode(record.value)
        except ValueError as error:
            raise Permanent(str(error), reason=DeadLetterReason.UNDECODABLE) from None
        event_type = value.get("eventType")
        if not isinstance(event_type, str):
            raise Permanent("eventType is no text", reason=DeadLetterReason.INVALID)
        handler = self.handlers.get(event_type)
        if handler is None:
            return IGNORED
        try:
            event = parse(value)
        except ValueError as error:
            raise Permanent(f"{event_type}: {error}", reason=DeadLetterReason.INVALID) from None
        repair = record.header(REPAIR_HEADER) or ""
        replayed = bool(repair) or any(name == REPLAY_HEADER for name, _ in record.headers)
        delivery = Delivery(record.timestamp / 1000, repair, replayed)
        facts = {"event_id": event.event_id, "event_type": event_type}
        if subject := getattr(event.payload, handler.subject):
            facts[handler.subject] = subject

        async def run() -> Outcome:
            outcome = await handler.run(event, delivery, self.needs)
            if isinstance(outcome, Done):
                if outcome.bank is not None:
                    facts["bank"] = outcome.bank
                if outcome.error:
                    facts["error"] = outcome.error
            return outcome

        return Job(handler.name, run, facts)
