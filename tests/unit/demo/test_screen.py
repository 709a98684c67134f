"""What the demo prints where there is no terminal, and where there is one."""

import io
import time

import pytest
from rich.console import Console

from demo.screen import Screen


def output(*, terminal: bool) -> tuple[Screen, io.StringIO]:
    out = io.StringIO()
    console = Console(
        file=out, width=60, force_terminal=terminal, color_system=None, highlight=False, legacy_windows=False
    )
    return Screen(console), out


@pytest.mark.parametrize("terminal", [False, True])
def test_step_prints_its_result(terminal: bool) -> None:
    screen, out = output(terminal=terminal)

    with screen.step("Start it") as step:
        step("almost there")
        step.result = "http://127.0.0.1:1"

    assert "✓ Start it: http://127.0.0.1:1 (0.0 s)" in out.getvalue()


def test_failed_step_prints_no_result() -> None:
    screen, out = output(terminal=False)

    with pytest.raises(RuntimeError), screen.step("Start it"):
        raise RuntimeError

    assert out.getvalue() == "… Start it\n"


def test_progress_is_printed_from_time_to_time_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, out = output(terminal=False)
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    with screen.step("Install") as step:
        for second in range(12):
            now = float(second)
            step(f"package {second}")

    assert out.getvalue().splitlines()[1:-1] == ["    5 s · package 5", "    10 s · package 10"]


def test_text_is_not_wrapped_or_parsed_as_markup() -> None:
    screen, out = output(terminal=False)
    screen.text("[bold]" + "x" * 100)
    assert out.getvalue() == "[bold]" + "x" * 100 + "\n"
