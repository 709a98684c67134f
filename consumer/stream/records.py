"""One record of Kafka, as the engine sees it: bytes, and where they stood."""

from dataclasses import dataclass
from typing import NamedTuple


class Partition(NamedTuple):
    """A topic's partition."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Record:
    """A consumed record; `timestamp` in milliseconds since the epoch, `size` in bytes on the wire."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def size(self) -> int:
        return len(self.value or b"") + len(self.key or b"")

    def header(self, name: str) -> str | None:
        """The last header of this name as text; None if there is none."""
        for key, value in reversed(self.headers):
            if key == name:
                return value.decode("utf-8", "replace")
        return None
