"""Maps an event type to its handler, and a Kafka record to the job that the engine runs."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from consumer.errors import DeadLetterReason, Permanent
from consumer.handlers.context import DeliveryInfo, HandlerContext
from consumer.handlers.forget import forget
from consumer.handlers.recall import recall
from consumer.handlers.results import Degraded, Done, HandlerResult
from consumer.handlers.retain import retain
from consumer.handlers.run_end import run_end
from consumer.stream.executor import Job
from consumer.stream.records import Record
from schemas.codec import decode, parse
from schemas.events import REPAIR_HEADER, REPLAY_HEADER


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler and its name.

    Attributes:
        subject: field of the payload with the id that the event is about; the log names it.
    """

    name: str
    run: Callable[[Any, DeliveryInfo, HandlerContext], Awaitable[HandlerResult]]
    subject: str


_RUN_END = Handler("run_end", run_end, "run_id")
_FORGET = Handler("forget", forget, "comment_id")

RUN_HANDLERS: Mapping[str, Handler] = {
    "agent.run.started": Handler("recall", recall, "run_id"),
    "agent.run.finished": _RUN_END,
    "agent.run.failed": _RUN_END,
    "agent.run.cancelled": _RUN_END,
}
"""Handlers of the recall lane, by event type."""
COMMENT_HANDLERS: Mapping[str, Handler] = {
    "issue.comment.created": Handler("retain", retain, "comment_id"),
    "issue.comment.deleted": _FORGET,
    "issue.comment.cancelled": _FORGET,
}
"""Handlers of the retain lane, by event type."""
IGNORED = Job(handler="ignored", run=None)


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """The handlers of one lane and their context; its `resolve` is the engine's `JobFactory`."""

    context: HandlerContext
    handlers: Mapping[str, Handler]

    def resolve(self, record: Record) -> Job:
        """Return the job for a record; an event type without a handler is ignored, whatever else the record contains.

        Raises:
            Permanent: the value is not a JSON object, or not a valid event of its type.
        """
        try:
            value = decode(record.value)
        except ValueError as error:
            raise Permanent(str(error), reason=DeadLetterReason.UNDECODABLE) from None
        event_type = value.get("eventType")
        if not isinstance(event_type, str):
            raise Permanent("eventType is not a string", reason=DeadLetterReason.INVALID)
        handler = self.handlers.get(event_type)
        if handler is None:
            return IGNORED
        try:
            event = parse(value)
        except ValueError as error:
            raise Permanent(f"{event_type}: {error}", reason=DeadLetterReason.INVALID) from None
        repair = record.header(REPAIR_HEADER) or ""
        replayed = bool(repair) or any(name == REPLAY_HEADER for name, _ in record.headers)
        delivery = DeliveryInfo(record.timestamp / 1000, repair, replayed)
        facts = {"event_id": event.event_id, "event_type": event_type}
        if subject := getattr(event.payload, handler.subject):
            facts[handler.subject] = subject

        async def run() -> HandlerResult:
            result = await handler.run(event, delivery, self.context)
            if isinstance(result, Done | Degraded) and result.bank is not None:
                facts["bank"] = result.bank
            if isinstance(result, Degraded):
                facts["error"] = result.error
            return result

        return Job(handler.name, run, facts)


def fallback_key(record: Record) -> bytes | None:
    """Return the id of the comment or run in a record's value, which is the key that our own producers use.

    None if the value has neither: the record is then ordered with no other.
    """
    try:
        payload = decode(record.value).get("payload")
    except ValueError:
        return None
    ids = [payload.get(name) for name in ("commentId", "runId")] if isinstance(payload, dict) else []
    return next((id_.lower().encode("utf-8", "replace") for id_ in ids if isinstance(id_, str) and id_), None)
