"""The directories of embedded servers, and the account that they run as under root.

PostgreSQL refuses to run as root. Under root, servers that start one therefore run as `nobody`, which exists on every
Linux, with their own home. All that they read must be readable by others, and root's home is not.
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


def unprivileged_account() -> Account | None:
    """The account for a server that refuses root; None if this process does not run as root."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def cache_directory() -> Path:
    """The directory for packages and for data of running servers; it may be deleted."""
    if os.geteuid() == 0:
        path = Path("/var/cache", NAME)
    else:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", NAME)
    path.mkdir(parents=True, exist_ok=True)
    return path


def make_owned_directory(name: str, account: Account | None) -> Path:
    """A directory of this name in the cache, owned by the account."""
    path = cache_directory() / name
    path.mkdir(exist_ok=True)
    set_owner(path, account)
    return path


def make_home(name: str, account: Account | None) -> Path:
    """A new, empty directory for one server's data, owned by the account."""
    parent = cache_directory() / "servers"
    parent.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
    set_owner(home, account)
    return home


def set_owner(path: Path, account: Account | None) -> None:
    """Make the account the owner of a file or directory."""
    if account is not None:
        os.chown(path, account.uid, account.gid)


def remove_home(home: Path) -> None:
    """Delete a directory that `make_home` made."""
    shutil.rmtree(home, ignore_errors=True)


@contextmanager
def exclusive_lock(name: str) -> Iterator[None]:
    """Hold a lock shared by all processes of this user, so that no two install the same program at once."""
    with (cache_directory() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
