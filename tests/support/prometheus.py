"""Debian's Prometheus: its tools, and a server for one test."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped]

from consumer.embedded.managed import ManagedServer
from consumer.embedded.supervise import ServerProcess, answers, free_port
from tests.support.kafka import REQUIRE_REAL


def tool(name: str) -> str:
    """The path of `prometheus` or `promtool`; the test is skipped by name without it, and fails where all must run."""
    found = shutil.which(name)
    if found is None:
        reason = f"there is no {name}: install it (Debian, Ubuntu: apt-get install prometheus)"
        if os.environ.get(REQUIRE_REAL):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def promtool(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """What `promtool` says."""
    return subprocess.run([tool("promtool"), *arguments], input=given, text=True, capture_output=True, check=False)


class Prometheus(ManagedServer):
    """A server that scrapes these addresses every second and evaluates these rule files as often.

    Args:
        home: an empty directory for its configuration and data.
        targets: host and port of each process, by job.
    """

    def __init__(self, home: Path, targets: Mapping[str, Sequence[str]], rules: Sequence[Path]) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        config = home / "prometheus.yml"
        config.write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(path) for path in rules],
                    "scrape_configs": [
                        {"job_name": job, "static_configs": [{"targets": list(addresses)}]}
                        for job, addresses in targets.items()
                    ],
                }
            )
        )
        self._client = httpx.Client(base_url=f"{self.url}/api/v1", timeout=10)
        self.server = ServerProcess(
            step="starting Prometheus",
            command=[
                tool("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={home / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--storage.tsdb.retention.time=1d",
                "--log.level=warn",
            ],
            ready=lambda: answers(f"{self.url}/-/ready"),
            log=home / "prometheus.log",
            cwd=home,
        )

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._client.close()

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each element of the answer, now."""
        reply = self._client.get("/query", params={"query": expression})
        answer: dict[str, Any] = json.loads(reply.text)
        assert answer["status"] == "success", f"{expression}: {answer}"
        found = answer["data"]["result"]
        if answer["data"]["resultType"] == "scalar":
            return [({}, float(found[1]))]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def value(self, expression: str) -> float | None:
        """The value of the only element of the answer; None if there is none."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def firing(self) -> set[str]:
        """Names of the alerts that fire now."""
        alerts = self._client.get("/alerts").raise_for_status().json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def up(self) -> int:
        """How many targets were scraped well."""
        return int(self.value("sum(up)") or 0)
