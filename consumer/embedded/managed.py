"""Servers as context managers."""

from pathlib import Path
from typing import Self

from consumer.embedded.directories import remove_home
from consumer.embedded.supervise import ServerProcess


class ManagedServer:
    """Runs until the end of a block, and can be stopped and started again within it."""

    server: ServerProcess

    def start(self) -> None:
        """Start it, or start it again, and return when it is ready. Raises `ServerError`."""
        self.server.start()

    def stop(self) -> None:
        """Stop it as an operator would; it keeps its data."""
        self.server.stop()

    def kill(self) -> None:
        """Kill it, as in a crash; it keeps its data."""
        self.server.kill()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()


class ManagedServerWithHome(ManagedServer):
    """A server with its own data directory.

    Attributes:
        home: the data directory, removed at the end.
    """

    home: Path

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        remove_home(self.home)
