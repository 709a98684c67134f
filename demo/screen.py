"""What the demo shows: colours and a spinner on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

QUIET = 5.0  # seconds between two lines of progress where there is no terminal


class Step:
    """A step that is under way. Call it with what goes on now; set `result` to what came out."""

    def __init__(self, screen: "Screen", title: str) -> None:
        self.result = ""
        self._screen = screen
        self._title = title
        self._started = self._said = time.monotonic()

    def __call__(self, line: str) -> None:
        self._screen.progress(self, line)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def title(self) -> str:
        return self._title

    def due(self) -> bool:
        """Whether enough time has passed for one more line of progress."""
        now = time.monotonic()
        if now - self._said < QUIET:
            return False
        self._said = now
        return True


class Screen:
    """The demo's output; `console` is standard output unless a test gives another."""

    def __init__(self, console: Console | None = None) -> None:
        if console is None and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")  # a locale without these signs must not end the demo
        self.console = console or Console(highlight=False, width=None if sys.stdout.isatty() else 120)
        self._status = self.console.status("") if self.console.is_terminal else None

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show that a step begins, and, if it does not raise, that it has ended well."""
        step = Step(self, title)
        if self._status is None:
            self.text(f"… {title}")
        else:
            self._status.update(title)
            self._status.start()
        try:
            yield step
        finally:
            if self._status is not None:
                self._status.stop()
        detail = f": {step.result}" if step.result else ""
        self.text(f"✓ {title}{detail} ({step.seconds:.1f} s)", style="green")

    def progress(self, step: Step, line: str) -> None:
        """Show what goes on inside a step."""
        if self._status is not None:
            self._status.update(f"{step.title} · {step.seconds:.0f} s · {line[:80]}")
        elif step.due():
            self.text(f"    {step.seconds:.0f} s · {line}")

    def heading(self, text: str) -> None:
        """Show what follows."""
        self.text(f"\n{text}", style="bold")

    def text(self, text: str, style: str | None = None) -> None:
        """Show text as it is, however long its lines are."""
        self.console.print(text, style=style, markup=False, soft_wrap=True)

    def table(self, columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> None:
        """Show rows under headings."""
        table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 2))
        for row in rows:
            table.add_row(*row)
        self.console.print(table, soft_wrap=True)
