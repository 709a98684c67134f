"""What was not captured but can come: each file of the recording's `made/`, which says why it can."""

import pytest

from consumer.handlers.context import Memory
from consumer.handlers.results import Done, Skipped, SkipReason
from consumer.handlers.retain import retain
from demo import recording
from schemas.codec import parse
from schemas.events import IssueCommentCreated
from tests.support.fakes import FakePaperclip, World
from tests.unit.handlers.samples import ADA, DELETED_COMMENT, FRESH, bank, created


def paperclip_of(world: World) -> FakePaperclip:
    assert world.paperclip is not None
    return world.paperclip


def stored(world: World) -> Memory:
    """The one memory whose retain was asked for."""
    ((_, memory, _),) = world.hindsight.called("retain")
    assert isinstance(memory, Memory)
    return memory


MADE = {
    "comment-author-null": Done(bank=bank(ADA)),
    "comment-derived-author": Done(bank=bank(ADA)),
    "comment-gone-404": Done(),
    "comment-quarantined": Skipped(SkipReason.QUARANTINED),
    "event-half-emoji-snippet": Done(bank=bank(ADA)),
    "event-relay-stop": Skipped(SkipReason.SYSTEM_COMMENT),
}


def test_every_made_file_is_a_case() -> None:
    assert sorted(MADE) == recording.made_names()


@pytest.mark.parametrize("name", MADE)
async def test_made(name: str) -> None:
    made, world = recording.made(name), World()
    if name == "comment-gone-404":
        event = parse(made.value["event"])
        del paperclip_of(world).comments[made.value["event"]["payload"]["commentId"]]
    elif name.startswith("comment-"):
        event = created(made.value["id"], agentId=None)
        paperclip_of(world).comments[made.value["id"]] = made.value
    else:
        world.paperclip = None
        event = parse({**made.value, "payload": {**made.value["payload"], "agentId": ADA}})
    assert isinstance(event, IssueCommentCreated)
    assert await retain(event, FRESH, world.needs) == MADE[name]
    if name == "comment-derived-author":
        assert stored(world).metadata["runId"] == made.value["derivedCreatedByRunId"]
        assert paperclip_of(world).called("issue") == []
    if name == "event-half-emoji-snippet":
        assert stored(world).content == made.value["payload"]["bodySnippet"].replace("\ud83c", "")
        assert stored(world).metadata["truncated"] == "true"


async def test_a_relay_stop_is_looked_at_where_there_is_a_paperclip_api() -> None:
    """Its event has no body, no agent and the system as its actor; the comment itself says who wrote it."""
    world = World()
    event = parse(recording.made("event-relay-stop").value)
    assert isinstance(event, IssueCommentCreated)
    assert await retain(event, FRESH, world.needs) == Done(bank=bank(ADA))


async def test_the_recorded_tombstone_stores_nothing() -> None:
    world = World()
    assert await retain(created(DELETED_COMMENT), FRESH, world.needs) == Done()
    assert world.hindsight.called("retain") == []
