"""Servers as context managers: they stand from the beginning of a block to its end."""

from pathlib import Path
from typing import Self

from consumer.embedded.place import remove_home
from consumer.embedded.supervise import Server


class Served:
    """Stands from the beginning of a block to its end, and may be stopped and started within."""

    server: Server

    def start(self) -> None:
        """Start it, again too, and return when it serves; raises `ServerError`."""
        self.server.start()

    def stop(self) -> None:
        """Stop it as an operator does; its data stays."""
        self.server.stop()

    def kill(self) -> None:
        """End it as a crash does; its data stays."""
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


class Homed(Served):
    """Has a directory of its own for its data.

    Attributes:
        home: removed at the end.
    """

    home: Path

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        remove_home(self.home)
