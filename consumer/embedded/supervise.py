"""Starts a server as a child process, waits until it is ready, and stops it with all its children.

A child leads its own session: Ctrl-C reaches only this process, and one signal to the group reaches all its children.
Servers that still run when this process exits are stopped.
"""

import atexit
import http.client
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from consumer.embedded.directories import Account

POLL = 0.05  # seconds between two checks of a condition


class ServerError(Exception):
    """A server could not be started, or ended by itself.

    Args:
        step: the step that failed ("starting Hindsight").
        why: the reason.
        command: the command line; empty if none was run.
        log: the file that holds its output.
    """

    def __init__(self, step: str, why: str, *, command: Sequence[str] = (), log: Path | None = None) -> None:
        lines = [f"{step}: {why}"]
        if command:
            lines.append(f"command: {shlex.join(command)}")
        if log is not None:
            lines += [f"end of {log}:", *(f"    {line}" for line in tail(log))]
        super().__init__("\n".join(lines))
        self.step = step


def tail(log: Path, lines: int = 30) -> list[str]:
    """The last lines of a log; none if it does not exist."""
    try:
        return log.read_text("utf-8", "replace").splitlines()[-lines:]
    except FileNotFoundError:
        return []


def free_port() -> int:
    """A free TCP port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listening(port: int) -> bool:
    """Whether this port of 127.0.0.1 accepts connections."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def answers(url: str, timeout: float = 2.0) -> bool:
    """Whether a GET of this http URL returns 200."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=timeout)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def wait_until(condition: Callable[[], bool], deadline: float) -> bool:
    """Wait up to `deadline` seconds for a condition; returns whether it became true."""
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL)
    return True


def alive(pid: int) -> bool:
    """Whether a process of this id runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
    except ProcessLookupError:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass(slots=True)
class ServerProcess:
    """A server process that can be started again after it was stopped.

    Attributes:
        step: names the start in errors ("starting Hindsight").
        ready: whether it is ready.
        log: its output is appended here.
        env: its complete environment; None inherits ours.
        account: the account that it runs as; None: ours.
        deadline: seconds from its start until it must be ready.
        grace: seconds from SIGTERM to SIGKILL.
        reap: ends processes that have left the group, such as a daemon; called after each stop.
    """

    step: str
    command: Sequence[str]
    ready: Callable[[], bool]
    log: Path
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    account: Account | None = None
    deadline: float = 60.0
    grace: float = 10.0
    reap: Callable[[], None] | None = None
    _child: "subprocess.Popen[bytes] | None" = field(default=None, init=False, repr=False)

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        """The process id, also that of its group. Raises `ServerError` if it was not started."""
        if self._child is None:
            raise ServerError(self.step, "not started")
        return self._child.pid

    def start(self) -> None:
        """Start it and return when it is ready.

        Raises:
            ServerError: it could not be started, ended, or was not ready in time; it no longer runs.
        """
        self._spawn()
        try:
            in_time = wait_until(lambda: not self.running or self.ready(), self.deadline)
            self.check()
            if not in_time:
                self._fail(f"not ready after {self.deadline:.0f} s")
        except BaseException:
            self.kill()  # it may ignore SIGTERM while it starts
            raise

    def check(self) -> None:
        """Raise `ServerError` if it has ended."""
        if not self.running:
            self._fail(f"ended with {self._ending()}")

    def stop(self) -> None:
        """Stop it and its children: SIGTERM, then SIGKILL after the grace. Does nothing if it does not run."""
        self._end(self.grace)

    def kill(self) -> None:
        """Kill it and its children, as in a crash."""
        self._end(0)

    def _fail(self, why: str, cause: Exception | None = None) -> NoReturn:
        raise ServerError(self.step, why, command=self.command, log=self.log) from cause

    def _spawn(self) -> None:
        if self.running:
            self._fail("already running")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        account = self.account
        with self.log.open("ab") as out:
            try:
                self._child = subprocess.Popen(  # noqa: S603 - our own command lines
                    list(self.command),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=self.env,
                    cwd=self.cwd,
                    user=account.uid if account else None,
                    group=account.gid if account else None,
                    extra_groups=[] if account else None,
                    start_new_session=True,
                )
            except OSError as error:
                self._fail(str(error), error)
        _started.append(self)

    def _ending(self) -> str:
        code = self._child.returncode if self._child else None
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def _end(self, grace: float) -> None:
        child = self._child
        if child is None:
            return
        if grace:
            _signal_group(child.pid, signal.SIGTERM)
            wait_until(lambda: child.poll() is not None and not _group_alive(child.pid), grace)
        _signal_group(child.pid, signal.SIGKILL)
        child.wait()
        wait_until(lambda: not _group_alive(child.pid), 5)
        if self.reap is not None:
            self.reap()
        self._child = None
        _started.remove(self)


_started: list[ServerProcess] = []


@atexit.register
def _end_all() -> None:
    for server in reversed(_started.copy()):
        server.stop()


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS raises this for a group of zombies
        return False
    return True
