"""The lock files pin all that pyproject.toml asks for, by hash, and name no host."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def locked(name: str) -> dict[str, str]:
    """Version by canonical name."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    return {
        canonicalize_name(found[1]): found[2] for found in re.finditer(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)
    }


def asked(*extras: str, groups: tuple[str, ...] = ()) -> list[Requirement]:
    project = PROJECT["project"]
    lines = [*project["dependencies"]]
    lines += [line for extra in extras for line in project["optional-dependencies"][extra]]
    lines += [line for group in groups for line in PROJECT["dependency-groups"][group]]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize(
    ("name", "requirements"),
    [
        ("base", asked()),
        ("fast", asked("fast")),
        ("build", [Requirement(line) for line in PROJECT["dependency-groups"]["build"]]),
        ("dev", asked(*PROJECT["project"]["optional-dependencies"], groups=("test", "lint", "ops"))),
    ],
)
def test_every_dependency_is_locked(name: str, requirements: list[Requirement]) -> None:
    pins = locked(name)
    for requirement in requirements:
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in {name}.txt: run requirements/lock.sh"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: {version} is locked"


def test_lock_files_pin_the_same_versions() -> None:
    base, fast, dev, build = locked("base"), locked("fast"), locked("dev"), locked("build")
    assert base.items() <= fast.items() <= dev.items()
    assert build.items() <= dev.items()
    assert set(fast) - set(base) == {"pyreqwest", "uvloop"}


@pytest.mark.parametrize("name", ["base", "fast", "build", "dev"])
def test_every_pin_has_hashes_and_no_address(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[A-Za-z0-9])", "\n" + text)[1:]
    assert len(entries) == len(locked(name))
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
    assert not re.search(r"^\s*(-i|--index|--extra-index|--find-links|-e )", text, re.MULTILINE)
