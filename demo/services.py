"""Starts `paperclip-memory` commands as users start them, with settings from the environment only."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from consumer.embedded.managed import ManagedServer
from consumer.embedded.supervise import ServerError, ServerProcess, answers, free_port

PREFIX = "PAPERCLIP_MEMORY_"
PORTS = {
    "worker": "WORKER_PORT",
    "relay": "RELAY_METRICS_PORT",
    "tools": "TOOLS_METRICS_PORT",
    "exporter": "EXPORTER_PORT",
}
"""The setting of each command's metrics port."""


def command() -> str:
    """The path of `paperclip-memory`: beside our Python, else on PATH. Raises `ServerError` if there is none."""
    beside = Path(sys.executable).with_name("paperclip-memory")
    path = str(beside) if beside.exists() else shutil.which("paperclip-memory")
    if path is None:
        raise ServerError("finding paperclip-memory", "the project is not installed: make setup")
    return path


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with these settings (names without the prefix) and no others."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return env | {PREFIX + name: value for name, value in settings.items()}


def run(step: str, arguments: list[str], settings: Mapping[str, str], log: Path) -> None:
    """Run one command until it ends. Raises `ServerError` if it fails."""
    line = [command(), *arguments]
    with log.open("ab") as out:
        done = subprocess.run(  # noqa: S603 - our own command
            line, env=environment(settings), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        raise ServerError(step, f"exit code {done.returncode}", command=line, log=log)


class Service(ManagedServer):
    """A command that serves until it is stopped. It keeps its port and settings when it is started again.

    Args:
        name: the command: a key of `PORTS`.
        settings: names without the prefix; the port is chosen here.

    Attributes:
        address: HOST:PORT where it serves `/metrics`, `/livez` and `/readyz`.
        url: the same as a URL.
    """

    def __init__(self, name: str, settings: Mapping[str, str], log: Path) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.url = f"http://{self.address}"
        self.server = ServerProcess(
            step=f"starting the {name}",
            command=[command(), name],
            ready=lambda: answers(f"{self.url}/readyz"),
            log=log,
            env=environment({**settings, PORTS[name]: str(port)}),
            deadline=60,
            grace=30,
        )
