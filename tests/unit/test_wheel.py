"""The wheel holds what runs in production and nothing else."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PINS = "consumer/embedded/requirements/hindsight.txt"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return zipfile.ZipFile(next(directory.glob("*.whl")))


def test_wheel_holds_code_schemas_and_pins_only(wheel: zipfile.ZipFile) -> None:
    others = [name for name in wheel.namelist() if not name.endswith(".py") and ".dist-info/" not in name]
    schema = re.compile(r"schemas/[a-z.]+\.schema\.json")
    assert {name for name in others if not schema.fullmatch(name)} == {
        PINS,
        "consumer/py.typed",
        "schemas/asyncapi.yaml",
        "schemas/py.typed",
    }


def test_wheel_holds_the_packages_consumer_and_schemas_only(wheel: zipfile.ZipFile) -> None:
    packages = {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" not in name}
    assert packages == {"consumer", "schemas"}


def test_wheel_is_under_300_kb_besides_the_pins_of_hindsight(wheel: zipfile.ZipFile) -> None:
    size = Path(str(wheel.filename)).stat().st_size
    assert size - wheel.getinfo(PINS).compress_size < 300 * 1024
