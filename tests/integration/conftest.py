"""What integration tests share."""

import pytest

from consumer.stream import committer, lane


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane that ticks, polls again and gives up a commit soon."""
    monkeypatch.setattr(lane, "TICK", 0.05)
    monkeypatch.setattr(lane, "POLL_BACKOFF", 0.05)
    monkeypatch.setattr(committer, "COMMIT_TIMEOUT", 0.3)
