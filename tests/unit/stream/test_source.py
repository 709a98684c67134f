"""What a commit says of itself; all else of the source is tested on real Kafka."""

import pytest

from consumer.stream.source import committed_at


@pytest.mark.parametrize(
    ("note", "seconds"),
    [("2026-01-01T00:00:00.250+00:00", 1_767_225_600.25), ("", None), ("another's note", None)],
)
def test_a_commit_says_when_it_was_made(note: str, seconds: float | None) -> None:
    assert committed_at(note) == seconds
