"""`agent.run.finished`, `.failed`, `.cancelled`: the run's recalled memories are no longer needed."""

from consumer.handlers.context import DeliveryInfo, HandlerContext
from consumer.handlers.results import Done, HandlerResult
from schemas.events import RunEnd


async def run_end(event: RunEnd, _delivery: DeliveryInfo, context: HandlerContext) -> HandlerResult:
    """Write a tombstone to the recalls topic. A cancelled run also announces `finished`; a second one has no effect."""
    await context.recalls.publish_tombstone(event.payload.run_id)
    return Done()
