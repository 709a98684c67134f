"""A real Hindsight without external services: a mock language model or none, hashed words as embeddings, PostgreSQL."""

import os
import shutil
import signal
import sys
from contextlib import suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

from consumer.embedded import packages
from consumer.embedded.directories import make_home, make_owned_directory, unprivileged_account
from consumer.embedded.managed import ManagedServerWithHome
from consumer.embedded.supervise import ServerProcess, alive, answers, free_port, wait_until

NAME = "hindsight"


def install(progress: packages.Progress) -> Path:
    """Install Hindsight and its PostgreSQL, about 1.4 GB, if they are missing; returns their environment.

    Raises:
        ServerError: see `packages.environment`.
    """
    with as_file(files("consumer.embedded") / "requirements" / "hindsight.txt") as requirements:
        return packages.environment(NAME, requirements, unprivileged_account(), progress)


class Hindsight(ManagedServerWithHome):
    """A Hindsight with its own data. It keeps its data and port when it is started again.

    Args:
        logs: directory for its logs.
        api_key: required of every caller; None: no key is required.
        llm: `mock` treats sentences as facts and consolidates them; `none` stores the text in chunks.

    Attributes:
        url: its base URL.
    """

    def __init__(
        self, environment: Path, logs: Path, *, api_key: str | None = None, llm: Literal["mock", "none"] = "mock"
    ) -> None:
        account = unprivileged_account()
        port, embedder_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.home = make_home(NAME, account)
        self._data = self.home / ".pg0" / "instances" / NAME / "data"
        embedder_url = f"http://127.0.0.1:{embedder_port}"
        name = self.home.name
        self._embedder = ServerProcess(
            step="starting the embedding server",
            command=[sys.executable, "-m", "consumer.embedded.embedder", str(embedder_port)],
            ready=lambda: answers(f"{embedder_url}/info"),
            log=logs / f"{name}-embedder.log",
        )
        env = {
            "PATH": _path(self.home),
            "LANG": "C.UTF-8",
            "HOME": str(self.home),
            "PYTHONPYCACHEPREFIX": str(make_owned_directory("bytecode", account)),
            "HINDSIGHT_API_HOST": "127.0.0.1",
            "HINDSIGHT_API_PORT": str(port),
            # The files must survive a crash of PostgreSQL, not of the machine.
            "HINDSIGHT_API_DATABASE_URL": f"pg0://{NAME}:{free_port()}?fsync=off",
            "HINDSIGHT_API_LLM_PROVIDER": llm,
            "HINDSIGHT_API_EMBEDDINGS_PROVIDER": "tei",
            "HINDSIGHT_API_EMBEDDINGS_TEI_URL": embedder_url,
            "HINDSIGHT_API_RERANKER_PROVIDER": "rrf",
            "HINDSIGHT_API_METRICS_BACKLOG_ENABLED": "true",
            "HINDSIGHT_API_WORKER_ID": name,
        }
        if api_key is not None:
            env["HINDSIGHT_API_TENANT_EXTENSION"] = "hindsight_api.extensions.builtin.tenant:ApiKeyTenantExtension"
            env["HINDSIGHT_API_TENANT_API_KEY"] = api_key
        self.server = ServerProcess(
            step="starting Hindsight",
            command=[str(environment / "bin" / "hindsight-api")],
            ready=lambda: answers(f"{self.url}/health"),
            log=logs / f"{name}.log",
            env=env,
            cwd=self.home,
            account=account,
            deadline=180,
            grace=15,
            reap=self._end_postgresql,
        )

    def start(self) -> None:
        """Start it, or start it again, and return when it is ready. Raises `ServerError`."""
        if not self._embedder.running:
            self._embedder.start()
        super().start()

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self._embedder.stop()
        super().__exit__()

    def _end_postgresql(self) -> None:
        """Its PostgreSQL is a daemon and survives Hindsight."""
        with suppress(FileNotFoundError, ValueError, IndexError, ProcessLookupError):
            pid = int((self._data / "postmaster.pid").read_text().splitlines()[0])
            for number in (signal.SIGINT, signal.SIGQUIT):  # a fast shutdown, then an immediate one
                os.kill(pid, number)
                if wait_until(lambda: not alive(pid), 10):
                    return


def _path(home: Path) -> str:
    """A PATH with `ps`, which pg0 needs to check on its PostgreSQL and which small images lack."""
    if shutil.which("ps", path=os.defpath):
        return os.defpath
    script = home / "ps"
    script.write_text('#!/bin/sh\n# ps -p PID -o comm=\nexec cat "/proc/$2/comm"\n')
    script.chmod(0o755)
    return os.pathsep.join([str(home), os.defpath])
