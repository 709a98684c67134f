"""Shows how far a command has come, on standard error, so that its output stays clean."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""
SAID_EVERY = 5.0
"""Seconds between two lines of progress where there is no terminal."""


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """A bar with the time that is left on a terminal, else a line now and then."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(title: str) -> Progress:
    started = said = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= SAID_EVERY and done:
            said = now
            left = (now - started) / done * (total - done)
            sys.stderr.write(f"{title}: {done} of {total}, {left:.0f} s left\n")

    return progress
