"""How a process of ours ends before its work has begun."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from consumer.errors import ExitCode

DEADLINE = 30.0


def command(*words: str, **variables: str) -> subprocess.Popen[str]:
    own = {f"PAPERCLIP_MEMORY_{name.upper()}": value for name, value in variables.items()}
    others = {name: value for name, value in os.environ.items() if not name.startswith("PAPERCLIP_MEMORY_")}
    main = "from consumer.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", main, *words],
        env={**others, "PAPERCLIP_MEMORY_HINDSIGHT_API_URL": "http://127.0.0.1:1", **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("words", [["check"], ["worker"], ["topics"]])
def test_bad_tls_file_ends_the_process_with_the_exit_code_for_settings(words: list[str], tmp_path: Path) -> None:
    bad = tmp_path / "ca.pem"
    bad.write_text("no certificate")
    with command(
        *words,
        kafka_bootstrap_servers="127.0.0.1:1",
        kafka_security_protocol="SSL",
        kafka_ssl_cafile=str(bad),
        worker_port="0",
    ) as process:
        said, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == ExitCode.WRONG_SETTINGS
    assert f"kafka_ssl_cafile (PAPERCLIP_MEMORY_KAFKA_SSL_CAFILE) = {bad}: has no PEM certificates" in said
    assert "complete" not in said


def test_sigterm_during_the_probes_ends_the_worker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        with command("worker", kafka_bootstrap_servers=f"{host}:{port}", worker_port="0") as process:
            connected, _ = silent.accept()  # by the first probe; it gets no answer
            with connected:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=DEADLINE)
    assert process.returncode == ExitCode.INTERRUPTED
