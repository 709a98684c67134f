"""Installs hash-pinned Python packages of a program into its own environment in the cache directory."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from consumer.embedded.directories import Account, cache_directory, exclusive_lock
from consumer.embedded.supervise import ServerError

Progress = Callable[[str], None]
"""Called with one line about the current step."""

STAMP = "complete"


def environment(name: str, requirements: Path, account: Account | None, progress: Progress) -> Path:
    """The virtual environment with these requirements; created if it does not exist.

    Args:
        account: the account that must be able to use it.
        progress: called with each line that the installer prints.

    Raises:
        ServerError: no Python that the account can run, or the installer failed.
    """
    step = f"installing {name}"
    with exclusive_lock(name):
        python = _python_for(account, step)
        digest = hashlib.sha256(requirements.read_bytes() + python.encode()).hexdigest()[:12]
        path = cache_directory() / f"{name}-{digest}"
        if (path / STAMP).exists():
            return path
        shutil.rmtree(path, ignore_errors=True)
        log = cache_directory() / f"{name}-install.log"
        log.write_bytes(b"")
        for command in _commands(python, path, requirements, step):
            _run(step, command, log, progress)
        (path / STAMP).touch()
        return path


def _commands(python: str, path: Path, requirements: Path, step: str) -> Sequence[list[str]]:
    target = str(path / "bin" / "python")
    make = [python, "-m", "venv", "--without-pip", str(path)]  # needs no ensurepip, which Debian ships apart
    pinned = ["--require-hashes", "--only-binary", ":all:", "-r", str(requirements)]
    if uv := shutil.which("uv"):
        return make, [uv, "pip", "install", "--python", target, *pinned]
    if importlib.util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "--python", target, "install", "--no-input", "--no-compile"]
        return make, [*pip, *pinned]
    raise ServerError(step, "neither uv nor pip is installed: python3 -m ensurepip, or apt-get install python3-pip")


def _run(step: str, command: list[str], log: Path, progress: Progress) -> None:
    with (
        log.open("a") as out,
        subprocess.Popen(  # noqa: S603 - our own command lines
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, umask=0o022
        ) as child,
    ):
        for line in child.stdout or ():
            out.write(line)
            if text := line.partition(" (from ")[0].strip():
                progress(text)
    if child.returncode:
        raise ServerError(step, f"exit code {child.returncode}", command=command, log=log)


def _python_for(account: Account | None, step: str) -> str:
    """A Python of a supported version that the account can run."""
    base = str(Path(sys.executable).resolve())
    if account is None:
        return base
    for candidate in (base, *_on_path()):
        if _runs(candidate, account):
            return candidate
    raise ServerError(
        step,
        f"PostgreSQL does not run as root, and {account.name} can run no Python 3.11 or newer; "
        "install one for all users (apt-get install python3), or run this as a plain user",
    )


def _on_path() -> Iterator[str]:
    for directory in dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), *os.defpath.split(os.pathsep)]):
        for name in ("python3", "python3.14", "python3.13", "python3.12", "python3.11"):
            if python := shutil.which(name, path=directory):
                yield str(Path(python).resolve())


def _runs(python: str, account: Account) -> bool:
    check = "import sys, ssl, ctypes; sys.exit(sys.version_info < (3, 11))"
    try:
        done = subprocess.run(  # noqa: S603 - Pythons of this machine
            [python, "-c", check],
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            cwd="/",
            env={"PATH": os.defpath},
            capture_output=True,
            timeout=30,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0
