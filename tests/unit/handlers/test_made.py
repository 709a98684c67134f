"""Input that was not captured but is possible: the files in the recording's `made/` folder, which explain why."""

import pytest

from consumer.handlers.results import Done, Skipped, SkipReason
from consumer.handlers.retain import retain
from consumer.memory.documents import Memory
from demo import recording
from schemas.codec import parse
from schemas.events import IssueCommentCreated
from tests.support.fakes import HandlerFixture
from tests.unit.handlers.samples import ADA, DELETED_COMMENT, FRESH, bank, created


def retained_memory(fixture: HandlerFixture) -> Memory:
    """The memory of the only retain."""
    ((_, memory, _),) = fixture.hindsight.called("retain")
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


def test_every_made_file_has_a_case() -> None:
    assert sorted(MADE) == recording.made_names()


@pytest.mark.parametrize("name", MADE)
async def test_a_made_file_has_the_expected_result(name: str) -> None:
    made, fixture = recording.made(name), HandlerFixture()
    if name == "comment-gone-404":
        event = parse(made.value["event"])
        del fixture.paperclip.comments[made.value["event"]["payload"]["commentId"]]
    elif name.startswith("comment-"):
        event = created(made.value["id"], agentId=None)
        fixture.paperclip.comments[made.value["id"]] = made.value
    else:
        fixture.has_paperclip = False
        event = parse({**made.value, "payload": {**made.value["payload"], "agentId": ADA}})
    assert isinstance(event, IssueCommentCreated)
    assert await retain(event, FRESH, fixture.context) == MADE[name]
    if name == "comment-derived-author":
        assert retained_memory(fixture).metadata["runId"] == made.value["derivedCreatedByRunId"]
        assert fixture.paperclip.called("issue") == []
    if name == "event-half-emoji-snippet":
        assert retained_memory(fixture).content == made.value["payload"]["bodySnippet"].replace("\ud83c", "")
        assert retained_memory(fixture).metadata["truncated"] == "true"


async def test_the_comment_of_a_relay_stop_is_fetched_from_paperclip() -> None:
    """Its event has no body and no agent, and the system as actor; the comment itself names its author."""
    fixture = HandlerFixture()
    event = parse(recording.made("event-relay-stop").value)
    assert isinstance(event, IssueCommentCreated)
    assert await retain(event, FRESH, fixture.context) == Done(bank=bank(ADA))


async def test_the_recorded_tombstone_stores_nothing() -> None:
    fixture = HandlerFixture()
    assert await retain(created(DELETED_COMMENT), FRESH, fixture.context) == Done()
    assert fixture.hindsight.called("retain") == []
