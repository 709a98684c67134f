"""The demo as its users run it, and the Hindsight that it starts: what they do, and what they leave behind."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from consumer.embedded.hindsight import Hindsight, install
from consumer.embedded.supervise import listening

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def run_demo(*, interrupt_at: str | None = None) -> tuple[int, str]:
    """Run the demo, with Ctrl-C once it has printed a text; its exit code and all that it printed."""
    lines: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-m", "demo"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            lines.append(line)
            if interrupt_at is not None and interrupt_at in line:
                process.send_signal(signal.SIGINT)
                interrupt_at = None
    return process.returncode, "".join(lines)


def still_listening(output: str) -> set[int]:
    ports = {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", output)}
    assert len(ports) >= 3, output
    return {port for port in ports if listening(port)}


@pytest.mark.usefixtures("hindsight")  # its packages are installed then
def test_the_demo_shows_the_whole_path_and_leaves_nothing() -> None:
    code, output = run_demo()
    assert code == 0, output
    assert "67 events" in output
    assert "Hindsight processes the retained comments: 17 documents" in output
    assert "Not stored: 1 comment" in output
    assert "memories on paperclip.memory.recalls" in output
    assert 'paperclip_memory_events_total{handler="retain",outcome="succeeded"}' in output
    assert not still_listening(output)


@pytest.mark.usefixtures("hindsight")
def test_an_interrupted_demo_leaves_nothing() -> None:
    code, output = run_demo(interrupt_at="… paperclip-memory worker")
    assert code == 130, output
    assert not still_listening(output)


def processes_of(home: Path) -> list[str]:
    """Command lines that name a directory."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes()
        except OSError:
            continue
        if str(home).encode() in line:
            found.append(line.decode(errors="replace"))
    return found


@pytest.mark.usefixtures("hindsight")
def test_a_hindsight_comes_back_with_its_data_and_its_postgresql_ends_with_it(tmp_path: Path) -> None:
    with Hindsight(install(lambda _: None), tmp_path) as server:
        home = server.home
        bank = f"{server.url}/v1/default/banks/kept"
        memory = {"items": [{"content": "Tokens expire after 24h.", "document_id": "one"}], "async": False}
        httpx.post(f"{bank}/memories", json=memory, timeout=30).raise_for_status()
        for end in (server.stop, server.kill):
            assert processes_of(home)
            end()
            assert not processes_of(home)
            server.start()
            assert httpx.get(f"{bank}/documents/one").json()["original_text"] == "Tokens expire after 24h."
    assert not processes_of(home)
    assert not home.exists()
