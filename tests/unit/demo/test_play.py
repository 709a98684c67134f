"""How the demo ends when it cannot go on."""

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer.embedded import hindsight
from consumer.embedded.supervise import ServerError
from demo import play


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_failed_demo_names_the_step_and_the_end_of_its_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "install.log"
    log.write_text("\n".join(f"line {number}" for number in range(100)) + "\nno space left on device\n")

    def fail(_progress: object) -> Path:
        raise ServerError("installing hindsight", "exit code 2", command=["uv", "pip", "install"], log=log)

    monkeypatch.setattr(hindsight, "install", fail)

    assert play.main() == 1

    printed = capsys.readouterr().out
    assert "✗ installing hindsight: exit code 2" in printed
    assert "command: uv pip install" in printed
    assert "no space left on device" in printed
    assert "line 1\n" not in printed
    assert "Done" not in printed


def test_interrupted_demo_exits_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_progress: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(hindsight, "install", interrupt)

    assert play.main() == 130

    assert "everything that was started has been stopped" in capsys.readouterr().out
