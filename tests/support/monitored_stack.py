"""A whole installation under observation: every process of ours, a real Prometheus, rules whose time runs faster."""

import json
import re
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from aiokafka import AIOKafkaProducer

from demo.services import Service, command, environment
from tests.support.installation import Installation, wait_until_true
from tests.support.prometheus import Prometheus
from tests.unit.deploy.promql import PROMETHEUS

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
FASTER = 300
"""An alert's 30 minutes take 6 s."""
SHORTEST = 10.0
"""Seconds; a range must hold a few scrapes."""


def faster(expression: str) -> str:
    """The same expression over shorter ranges."""

    def shrink(found: re.Match[str]) -> str:
        seconds = max(SHORTEST, int(found[1]) * UNITS[found[2]] / FASTER)
        return f"{seconds * 1000:.0f}ms"

    return re.sub(r"\b(\d+)([smhd])\b", shrink, expression)


def faster_rules(directory: Path) -> list[Path]:
    """The rule files of the repository with shorter ranges; an alert waits for a second."""
    written = []
    for name in ("recording", "alerts"):
        text = (PROMETHEUS / "rules" / f"{name}.yml").read_text()
        text = re.sub(r"^( +for:) \w+$", r"\1 1s", text, flags=re.MULTILINE)
        lines = [line if "for:" in line or "description" in line else faster(line) for line in text.splitlines()]
        path = directory / f"{name}.yml"
        path.write_text("\n".join(lines) + "\n")
        written.append(path)
    return written


def scrape(process: Service) -> str:
    """What it serves at `/metrics`."""
    return httpx.get(f"{process.url}/metrics", timeout=10).raise_for_status().text


class MonitoredStack:
    """The processes of one installation, and the Prometheus that scrapes them.

    Attributes:
        processes: by name; a test may stop the worker, and starts it again.
    """

    def __init__(self, installation: Installation, processes: Mapping[str, Service], prometheus: Prometheus) -> None:
        self.installation = installation
        self.processes = processes
        self.prometheus = prometheus

    def scrapes(self) -> dict[str, str]:
        """What each process serves."""
        return {name: scrape(process) for name, process in self.processes.items()}

    def fires(self, alert: str) -> None:
        wait_until_true(f"{alert} fires", lambda: alert in self.prometheus.firing(), 60)

    def ends(self, *alerts: str) -> None:
        wait_until_true(f"{alerts} end", lambda: not set(alerts) & self.prometheus.firing(), 60)

    def run(self, *arguments: str, expect: int = 0, **settings: str) -> str:
        """What a command of ours prints."""
        done = subprocess.run(
            [command(), *arguments],
            env=environment(self.installation.settings | settings),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == expect, f"{arguments}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "--json"))
        return found


@contextmanager
def monitored_stack(installation: Installation, home: Path, paperclip: Mapping[str, str]) -> Iterator[MonitoredStack]:
    """Start everything, with two exporters.

    Args:
        paperclip: settings of the relay, whose Paperclip is a real one.
    """
    fast = {"EXPORTER_INTERVAL": "1"}
    processes = {
        "tools": Service("tools", installation.settings | {"TOOLS_PORT": "0"}, installation.logs / "tools.log"),
        "relay": Service("relay", {**installation.settings, **paperclip}, installation.logs / "relay.log"),
        "exporter": Service("exporter", installation.settings | fast, installation.logs / "exporter.log"),
        "other exporter": Service("exporter", installation.settings | fast, installation.logs / "other-exporter.log"),
        "worker": Service("worker", installation.settings, installation.logs / "worker.log"),
    }
    addresses = [process.address for process in processes.values()]
    with ExitStack() as stack:
        for process in processes.values():
            stack.enter_context(process)
        prometheus = stack.enter_context(Prometheus(home, {"paperclip-memory": addresses}, faster_rules(home)))
        yield MonitoredStack(installation, processes, prometheus)


async def write(servers: str, topic: str, values: Sequence[bytes], timestamp: float) -> None:
    """Write records with a timestamp, seconds since the epoch, and keys of their own."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all")
    await producer.start()
    try:
        for value in values:
            key, at = uuid.uuid4().hex.encode(), int(timestamp * 1000)
            await producer.send_and_wait(topic, value, key=key, timestamp_ms=at)
    finally:
        await producer.stop()
