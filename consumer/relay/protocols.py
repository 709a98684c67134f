"""What the relay's parts need of each other, as protocols."""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from consumer.paperclip.models import Json
from consumer.relay.checkpoints import CommentPosition, RunPosition
from consumer.relay.event_builder import OutgoingEvent

P = TypeVar("P", CommentPosition, RunPosition)


class PaperclipFeed(Protocol):
    """The part of `PaperclipClient` that the relay polls. Each method raises from `consumer.errors`."""

    def audit_feed(self, company_id: str, since: str) -> AsyncIterator[Json]: ...

    def issues(self, company_id: str, since: str | None = None) -> AsyncIterator[Json]: ...

    def comments(self, issue_id: str, *, oldest_first: bool) -> AsyncIterator[Json]: ...

    async def issue_json(self, issue_id: str) -> Json | None: ...

    async def comment_json(self, issue_id: str, comment_id: str) -> Json | None: ...

    async def activity(self, issue_id: str) -> list[Json]: ...

    async def agents(self, company_id: str) -> Sequence[str]: ...

    async def runs(self, company_id: str, limit: int, agent_id: str | None = None) -> list[Json]: ...

    async def run_json(self, run_id: str) -> Json | None: ...

    async def run_end_statuses(self, run_id: str) -> list[str]: ...


class EventSink(Protocol):
    """The part of `EventPublisher` that produces events."""

    def was_published(self, event_id: str) -> bool: ...

    async def publish(self, events: Iterable[OutgoingEvent]) -> int: ...


class PollResult(NamedTuple, Generic[P]):
    """What a poll led to.

    Attributes:
        position: up to where everything is published.
        more: there is more to read at once.
        settled: a full sweep need not be repeated soon.
    """

    position: P
    more: bool = False
    settled: bool = True


class CommentPolling(Protocol):
    """Publishes a company's new comments."""

    async def poll(self, position: CommentPosition, *, full_sweep: bool) -> PollResult[CommentPosition]: ...


class RunPolling(Protocol):
    """Publishes what is new of a company's runs."""

    async def poll(
        self, position: RunPosition, *, full_sweep: bool, changed: Collection[str]
    ) -> PollResult[RunPosition]: ...
