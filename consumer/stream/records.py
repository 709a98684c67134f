"""One record of Kafka, as the engine sees it: bytes, and where they stood."""

from dataclasses import dataclass
from typing import NamedTuple


class Partition(NamedTuple):
    """A topic's partition."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Record:
    """A consumed record; `timestamp` in milliseconds since the epoch. A header may have no value."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size(self) -> int:
        """The bytes that it holds: value, key and headers."""
        size = len(self.value or b"") + len(self.key or b"")
        for name, value in self.headers:
            size += len(name) + len(value or b"")
        return size

    def header(self, name: str) -> str | None:
        """The last header of this name as text; None if there is none, or it has no value."""
        for key, value in reversed(self.headers):
            if key == name:
                return None if value is None else value.decode("utf-8", "replace")
        return None
