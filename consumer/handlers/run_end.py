"""`agent.run.finished`, `.failed`, `.cancelled`: what was recalled for the run is no longer needed."""

from consumer.handlers.context import Delivery, Needs
from consumer.handlers.results import Done, Outcome
from schemas.events import RunEnd


async def run_end(event: RunEnd, _delivery: Delivery, needs: Needs) -> Outcome:
    """Put a tombstone in the recalls topic. A cancelled run announces `finished` too: two tombstones are as one."""
    await needs.recalls.end(event.payload.run_id)
    return Done()
