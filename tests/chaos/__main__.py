"""`make chaos`: one run with everything in it; prints what happens, and at the end one line of JSON."""

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from consumer.settings.types import HttpBackend
from tests.chaos.run import Chaos, Plan


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="what is done when; else random")
    parser.add_argument("--events", type=int, default=Plan(0).events)
    parser.add_argument("--backend", choices=list(HttpBackend), default=Plan(0).backend, help="of the workers")
    parser.add_argument("--keep", type=Path, help="where logs and the record of all calls are kept")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        directory = given.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(Chaos(Plan(given.seed, events=given.events, backend=given.backend), directory, _say).run())
    print(report.line)
    return 0 if report.holds else 1


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
