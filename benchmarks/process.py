"""What processes have used, from Linux's /proc."""

import os
from collections.abc import Iterable
from pathlib import Path

from benchmarks.measure import Sample

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def sample(pids: Iterable[int], at: float) -> Sample:
    """CPU of all threads, ended ones too, and resident memory, of all these processes together."""
    cpu = rss = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        cpu += (int(fields[11]) + int(fields[12])) / _TICKS
        rss += int(fields[21]) * _PAGE / 1e6
    return Sample(at, cpu, rss)


def load() -> float:
    """The machine's load average of the last minute."""
    return os.getloadavg()[0]
