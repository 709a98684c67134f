"""`make bench`: measure, print one JSON line for each run, and write `docs/benchmarks.md` with its plot."""

import argparse
import logging
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks import process, report
from benchmarks.benches import BENCHES, RECORDS
from benchmarks.measure import Result, medians
from benchmarks.testbed import HERE, Testbed, open_testbed
from consumer.embedded.supervise import ServerError

DOCS = HERE.parent / "docs"
RESULTS = HERE / "results.jsonl"


def main() -> int:
    arguments = _parse_arguments()
    chosen = [bench for bench in BENCHES if not arguments.bench or bench.name in arguments.bench]
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it warns of new topics and retries
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {text}", file=sys.stderr, flush=True)

    minutes = sum(bench.minutes for bench in chosen)
    if not arguments.quick:
        say(f"about {minutes + 0.5:.0f} minutes; the machine's load is {process.load():.2f} and should be low")
    results: list[Result] = []
    try:
        with open_testbed(say, quick=arguments.quick, records=RECORDS) as testbed:
            for bench in chosen:
                say(f"{bench.name}: {bench.asks}")
                for result in bench.run(testbed):
                    print(result.json, flush=True)
                    results.append(result)
            if not arguments.bench and not arguments.quick:
                _write(results, testbed)
    except ServerError as error:
        say(f"✗ {error}")
        return 1
    print(report.table(medians(results)))
    for check in report.check_targets(medians(results)):
        print(check.text)
    say(f"done; the machine's load is {process.load():.2f}")
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compares the worker with its peers on real Apache Kafka. A full run writes docs/benchmarks.md.",
        epilog="\n".join(f"  {bench.name:<12} {bench.asks}" for bench in BENCHES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bench", nargs="*", help="benchmarks to run; all by default", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="one short run of each, as a smoke test")
    arguments = parser.parse_args()
    if unknown := set(arguments.bench) - {bench.name for bench in BENCHES}:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    return arguments


def _write(results: list[Result], testbed: Testbed) -> None:
    RESULTS.write_text("".join(f"{result.json}\n" for result in results))
    page = DOCS / "benchmarks.md"
    page.write_text(report.page(results, _machine()))
    plot = [str(testbed.python), str(HERE / "plot.py"), str(RESULTS), str(DOCS / "benchmarks.svg")]
    subprocess.run(plot, check=True)
    testbed.say(f"written: {page}")


def _machine() -> str:
    processors = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in processors if line.startswith("model name")), "unknown")
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.partition("\n")[0]
    libraries = ", ".join(f"{name} {version(name)}" for name in ("aiokafka", "httpx", "aiohttp", "pyreqwest"))
    return (
        f"{os.cpu_count()} cores of {model}, Linux {platform.release().partition('-')[0]}, "
        f"Python {platform.python_version()}, {java}, {libraries}, {time.strftime('%Y-%m-%d')}"
    )


if __name__ == "__main__":
    sys.exit(main())
