"""Ends a process that makes no progress and logs where it hangs; its supervisor starts it again."""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from consumer.errors import ExitCode
from consumer.observability.health import Check

INTERVAL = 5.0
GRACE = 60.0


class Watchdog:
    """Runs a liveness check in its own thread.

    Args:
        check: the check of `/livez`.
        stack: the stack of the hanging thread.
        report: called once, with the reason, the seconds since the check first failed, and the stack.
        end: ends the process.
    """

    def __init__(
        self,
        check: Check,
        stack: Callable[[], str],
        report: Callable[[str, float, str], None],
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._check = check
        self._stack = stack
        self._report = report
        self._end = end
        self._failing_since: float | None = None

    def poll(self, now: float) -> None:
        """Run the check; end the process if it has failed for `GRACE` seconds. `now`: monotonic clock, seconds."""
        health = self._check()
        if health.ok:
            self._failing_since = None
            return
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= GRACE:
            detail = "; ".join(f"{lane} {text}" for lane, text in health.lanes.items())
            reason = f"{health.reason} ({detail})" if detail else health.reason
            self._report(reason, now - self._failing_since, self._stack())
            self._end(ExitCode.STALLED)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Run the check every 5 s until the block ends."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(INTERVAL):
                self.poll(time.monotonic())

        thread = threading.Thread(target=watch, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def thread_stack(thread_id: int) -> str:
    """The current stack of a thread."""
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001 - as the standard library documents
    return "".join(traceback.format_stack(frame)) if frame is not None else ""
