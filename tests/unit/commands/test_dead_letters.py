"""The options of `dead-letters`."""

from typing import Any

import pytest
from typer.testing import CliRunner

from consumer.cli import app
from consumer.commands import dead_letters
from consumer.dead_letters.model import DeadLetterFilter

NEEDED = {"PAPERCLIP_MEMORY_HINDSIGHT_API_URL": "http://localhost:8888"}


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the commands hand on."""
    calls: list[tuple[Any, ...]] = []

    async def take(_settings: object, *args: Any, **options: Any) -> int:
        calls.append((*args, options))
        return 1

    monkeypatch.setattr(dead_letters, "list_dead_letters", take)
    monkeypatch.setattr(dead_letters, "redrive_dead_letters", take)
    return calls


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["dead-letters", *arguments], env=NEEDED)


def test_list_passes_on_its_filter_and_limit(called: list[tuple[Any, ...]]) -> None:
    times = ("--since", "1970-01-01T00:01", "--until", "1970-01-01T00:02")
    result = run("list", "--reason", "rejected", "--reason", "invalid", "--event-type", "x", *times, "--json")
    assert result.exit_code == 1
    assert called == [(DeadLetterFilter(["rejected", "invalid"], ["x"], 60, 120), 50, {"as_json": True})]


def test_redrive_passes_on_its_options(called: list[tuple[Any, ...]]) -> None:
    assert run("redrive").exit_code == 1
    assert run("redrive", "--dry-run", "--force", "--limit", "3").exit_code == 1
    assert called == [
        (DeadLetterFilter(), None, {"dry_run": False, "force": False, "as_json": False}),
        (DeadLetterFilter(), 3, {"dry_run": True, "force": True, "as_json": False}),
    ]


@pytest.mark.parametrize("wrong", [("--reason", "bad"), ("--since", "yesterday"), ("--limit", "0")])
def test_wrong_option_is_a_usage_error(wrong: tuple[str, str], called: list[tuple[Any, ...]]) -> None:
    result = run("redrive", *wrong)
    assert result.exit_code == 2
    assert wrong[0] in result.output
    assert called == []
