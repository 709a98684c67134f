"""Where servers keep what they install and write, and whom they run as when we are root.

PostgreSQL refuses root: as root the servers that bring one run as `nobody`, which every Linux has, with a home of their
own; so everything they read must be readable by others, which root's own home is not.
"""

import fcntl
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NAME = "paperclip-memory"


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine."""

    name: str
    uid: int
    gid: int


def other_account() -> Account | None:
    """Whom a server that refuses root runs as; None if we are not root and it can run as we do."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def cache_dir() -> Path:
    """The directory of what may be deleted and comes back: packages, and the servers' data while they run."""
    if os.geteuid() == 0:
        path = Path("/var/cache", NAME)
    else:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", NAME)
    path.mkdir(parents=True, exist_ok=True)
    return path


def owned_dir(name: str, account: Account | None) -> Path:
    """A directory of this name in the cache that belongs to the account."""
    path = cache_dir() / name
    path.mkdir(exist_ok=True)
    give(path, account)
    return path


def new_home(name: str, account: Account | None) -> Path:
    """A new, empty directory that belongs to the account, for one server's data."""
    parent = cache_dir() / "servers"
    parent.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
    give(home, account)
    return home


def give(path: Path, account: Account | None) -> None:
    """Make the account own a file or directory."""
    if account is not None:
        os.chown(path, account.uid, account.gid)


def remove_home(home: Path) -> None:
    """Delete what `new_home` gave."""
    shutil.rmtree(home, ignore_errors=True)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock that all processes of this user share, so that two do not install the same thing at once."""
    with (cache_dir() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
