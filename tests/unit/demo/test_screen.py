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
def test_a_step_says_what_came_out(terminal: bool) -> None:
    screen, out = output(terminal=terminal)

    with screen.step("Start it") as step:
        step("almost there")
        step.result = "http://127.0.0.1:1"

    assert "✓ Start it: http://127.0.0.1:1 (0.0 s)" in out.getvalue()


def test_a_step_that_fails_does_not_say_it_ended_well() -> None:
    screen, out = output(terminal=False)

    with pytest.raises(RuntimeError), screen.step("Start it"):
        raise RuntimeError

    assert out.getvalue() == "… Start it\n"


def test_progress_is_shown_now_and_then_where_lines_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, out = output(terminal=False)
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    with screen.step("Install") as step:
        for second in range(12):
            now = float(second)
            step(f"package {second}")

    assert out.getvalue().splitlines()[1:-1] == ["    5 s · package 5", "    10 s · package 10"]


def test_text_is_neither_wrapped_nor_read_as_markup() -> None:
    screen, out = output(terminal=False)
    screen.text("[bold]" + "x" * 100)
    assert out.getvalue() == "[bold]" + "x" * 100 + "\n"
