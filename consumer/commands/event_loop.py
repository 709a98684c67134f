"""Chooses the event loop of a process."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from consumer.settings.types import HttpBackend

T = TypeVar("T")


def run(backend: HttpBackend, main: Coroutine[Any, Any, T]) -> T:
    """Run a process on asyncio's own loop; with the backend `pyreqwest` on uvloop, which the extra `fast` installs.

    pyreqwest wakes the loop from its own thread for each response. uvloop handles several wake-ups at once, which saves
    a third of a request's CPU time.
    """
    if backend is HttpBackend.PYREQWEST:
        import uvloop  # noqa: PLC0415 - only there with the extra

        return uvloop.run(main)
    return asyncio.run(main)
