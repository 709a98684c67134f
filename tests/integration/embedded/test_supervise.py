"""The supervisor, on small processes of its own."""

import os
import sys
from pathlib import Path

import pytest

from consumer.embedded.supervise import ServerError, ServerProcess, alive, free_port, listening, wait_until

LISTEN = "import http.server, sys; http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), None).serve_forever()"
WITH_CHILD = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(600)
"""


def python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-c", code, *args]


def test_server_starts_again_on_its_port_after_a_stop(tmp_path: Path) -> None:
    port = free_port()
    server = ServerProcess("starting it", python(LISTEN, str(port)), lambda: listening(port), tmp_path / "log")

    for _ in range(2):
        server.start()
        assert listening(port)
        server.stop()
        assert not listening(port)
    server.stop()


def test_server_that_ends_names_the_step_the_command_and_the_end_of_its_log(tmp_path: Path) -> None:
    code = "import sys; print('first'); print('no disk left', file=sys.stderr); sys.exit(3)"
    server = ServerProcess("starting the thing", python(code), lambda: False, tmp_path / "log")

    with pytest.raises(ServerError) as caught:
        server.start()

    assert caught.value.step == "starting the thing"
    text = str(caught.value)
    assert "starting the thing: ended with exit code 3" in text
    assert sys.executable in text
    assert "no disk left" in text


def test_server_that_is_never_ready_is_killed(tmp_path: Path) -> None:
    server = ServerProcess(
        "starting it", python(LISTEN, str(free_port())), lambda: False, tmp_path / "log", deadline=0.2
    )

    with pytest.raises(ServerError, match="not ready after"):
        server.start()

    assert not server.running


def test_missing_command_is_a_server_error(tmp_path: Path) -> None:
    server = ServerProcess("starting it", [str(tmp_path / "absent")], lambda: True, tmp_path / "log")

    with pytest.raises(ServerError, match="No such file"):
        server.start()


def test_children_of_a_server_that_ignores_sigterm_are_killed(tmp_path: Path) -> None:
    note = tmp_path / "child"
    ready = lambda: note.exists() and note.read_text().isdigit()  # noqa: E731
    server = ServerProcess("starting it", python(WITH_CHILD, str(note)), ready, tmp_path / "log", grace=0.3)
    server.start()
    child = int(note.read_text())
    assert alive(child)

    server.stop()

    assert wait_until(lambda: not alive(child), 5)


def test_reap_is_called_once_after_a_stop(tmp_path: Path) -> None:
    reaped: list[int] = []
    server = ServerProcess(
        "starting it",
        python("import time; time.sleep(600)"),
        lambda: True,
        tmp_path / "log",
        reap=lambda: reaped.append(1),
    )
    server.start()
    server.kill()
    server.stop()
    assert reaped == [1]


def test_servers_of_a_process_that_exits_are_stopped(tmp_path: Path) -> None:
    """Also when nobody stops it: at exit, and after Ctrl-C, which raises KeyboardInterrupt."""
    code = """
import pathlib, sys
from consumer.embedded.supervise import ServerProcess
command = [sys.executable, "-c", "import time; time.sleep(600)"]
server = ServerProcess("x", command, lambda: True, pathlib.Path(sys.argv[1]))
server.start()
print(server.pid, flush=True)
raise KeyboardInterrupt
"""
    outer = ServerProcess(
        "starting the outer", python(code, str(tmp_path / "inner")), lambda: False, tmp_path / "outer"
    )
    with pytest.raises(ServerError):
        outer.start()

    pid = int((tmp_path / "outer").read_text().split()[0])
    assert pid != os.getpid()
    assert wait_until(lambda: not alive(pid), 5)
