"""A lane's waits, short enough for tests."""

import pytest

from consumer.stream import committer, executor, lane


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "POLL_TIMEOUT", 0.005)
    monkeypatch.setattr(lane, "POLL_BACKOFF", 0.005)
    monkeypatch.setattr(lane, "TICK", 0.005)
    monkeypatch.setattr(executor, "CANCEL_TIMEOUT", 0.05)
    monkeypatch.setattr(lane, "JOIN_BACKOFF", 0.005)
    monkeypatch.setattr(lane, "REWIND_TIMEOUT", 0.05)
    monkeypatch.setattr(committer, "COMMIT_TIMEOUT", 0.05)
    monkeypatch.setattr(committer, "POSITION_TIMEOUT", 0.05)
