"""Shows a command's progress on standard error, so that standard output stays clean."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

Progress = Callable[[int, int], None]
"""Called with the amount done and the total."""
LINE_INTERVAL = 5.0
"""Seconds between lines of progress without a terminal."""


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """A progress bar with the remaining time on a terminal, else a line from time to time."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(title: str) -> Progress:
    started = printed = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal printed
        now = time.monotonic()
        if now - printed >= LINE_INTERVAL and done:
            printed = now
            left = (now - started) / done * (total - done)
            sys.stderr.write(f"{title}: {done} of {total}, {left:.0f} s left\n")

    return progress
