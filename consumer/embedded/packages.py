"""Install a program's Python packages into an environment of its own, under the cache directory, pinned by hashes."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from consumer.embedded.place import Account, cache_dir, locked
from consumer.embedded.supervise import ServerError

Progress = Callable[[str], None]
"""Takes one line that says what goes on now."""

STAMP = "complete"


def environment(name: str, requirements: Path, account: Account | None, progress: Progress) -> Path:
    """The virtual environment that holds these requirements; made if it is not there yet.

    Args:
        account: who must be able to use it.
        progress: gets each line that the installer prints.

    Raises:
        ServerError: no Python that the account can run, or the installer failed (with its output's end).
    """
    step = f"installing {name}"
    with locked(name):
        python = _python_for(account, step)
        digest = hashlib.sha256(requirements.read_bytes() + python.encode()).hexdigest()[:12]
        path = cache_dir() / f"{name}-{digest}"
        if (path / STAMP).exists():
            return path
        shutil.rmtree(path, ignore_errors=True)
        log = cache_dir() / f"{name}-install.log"
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
    raise ServerError(step, "neither uv nor pip is there: python3 -m ensurepip, or apt-get install python3-pip")


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
    """A Python of at least our own minimum that the account can run."""
    base = str(Path(sys.executable).resolve())
    if account is None:
        return base
    for candidate in (base, *_on_path()):
        if _runs(candidate, account):
            return candidate
    raise ServerError(
        step,
        f"PostgreSQL does not run as root, and no Python 3.11 or newer is there that {account.name} can run; "
        "install one for all users (apt-get install python3), or run this as a plain user",
    )


def _on_path() -> Iterator[str]:
    for directory in dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), *os.defpath.split(os.pathsep)]):
        for name in ("python3", "python3.14", "python3.13", "python3.12", "python3.11"):
            if found := shutil.which(name, path=directory):
                yield str(Path(found).resolve())


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
