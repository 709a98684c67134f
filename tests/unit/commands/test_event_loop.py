"""Which event loop a process runs on."""

import asyncio
import subprocess
import sys

from consumer.commands import event_loop
from consumer.settings.types import HttpBackend


async def _loop() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_pyreqwest_runs_on_uvloop_and_httpx_on_asyncio() -> None:
    assert event_loop.run(HttpBackend.PYREQWEST, _loop()) == "uvloop"
    assert event_loop.run(HttpBackend.HTTPX, _loop()).startswith("asyncio.")


def test_command_line_does_not_import_uvloop() -> None:
    code = "import sys; from consumer import cli; sys.exit('uvloop' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
