"""Where servers keep their things, and as whom they run."""

import os
from pathlib import Path

import pytest

from consumer.embedded import directories
from consumer.embedded.directories import cache_directory, make_home, remove_home, unprivileged_account


def test_plain_user_has_no_other_account_and_its_own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert unprivileged_account() is None
    assert cache_directory() == tmp_path / "paperclip-memory"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "paperclip-memory"


def test_root_uses_the_account_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    account = unprivileged_account()
    assert account is not None
    assert account.uid != 0
    assert account.name == "nobody"


def test_homes_are_unique_and_removable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(directories, "cache_directory", lambda: tmp_path)
    homes = [make_home("x", None) for _ in range(2)]
    assert homes[0] != homes[1]
    assert all(home.is_dir() for home in homes)
    remove_home(homes[0])
    remove_home(homes[0])
    assert not homes[0].exists()
