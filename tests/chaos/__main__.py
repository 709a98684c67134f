"""`make chaos`: runs the chaos test once, logs each fault to stderr and prints the report as one line of JSON."""

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from consumer.settings.types import HttpBackend
from tests.chaos.run import Chaos, ChaosPlan


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(1_000_000), help="seed of all faults; random if omitted"
    )
    parser.add_argument("--events", type=int, default=ChaosPlan(0).events)
    parser.add_argument(
        "--backend", choices=list(HttpBackend), default=ChaosPlan(0).backend, help="HTTP backend of the workers"
    )
    parser.add_argument("--keep", type=Path, help="directory for the logs and the record of all calls")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        directory = arguments.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        plan = ChaosPlan(arguments.seed, events=arguments.events, backend=arguments.backend)
        report = asyncio.run(Chaos(plan, directory, _echo).run())
    print(report.line)
    return 0 if report.holds else 1


def _echo(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
