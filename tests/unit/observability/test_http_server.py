import json
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import structlog
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from consumer.errors import SettingsError
from consumer.observability.health import Health
from consumer.observability.http_server import serving

WELL = Health(ok=True, reason="makes progress", lanes={"retain": "makes progress"})
ILL = Health(ok=False, reason="no progress: retain", lanes={"retain": "has not polled for 61 s (limit 60 s)"})


class Broken(Collector):
    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        raise RuntimeError("boom")


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("events", "Events.", registry=registry).inc(3)
    return registry


@pytest.fixture
def health() -> dict[str, Health]:
    return {"live": WELL, "ready": WELL}


@pytest.fixture
def port(registry: CollectorRegistry, health: dict[str, Health]) -> Iterator[int]:
    with serving(
        "127.0.0.1",
        0,
        registry=registry,
        live=lambda: health["live"],
        ready=lambda: health["ready"],
        setting="worker_port",
    ) as port:
        yield port


def get(port: int, path: str, **headers: str) -> tuple[int, str, str]:
    request = Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urlopen(request, timeout=10) as reply:  # noqa: S310
            return reply.status, reply.headers["content-type"], reply.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], error.read().decode()


def test_metrics_are_served_as_prometheus_text(port: int) -> None:
    status, content_type, body = get(port, "/metrics")
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "events_total 3.0\n" in body


def test_metrics_are_served_as_openmetrics_on_request(port: int) -> None:
    status, content_type, body = get(port, "/metrics?x=1", accept="application/openmetrics-text; version=1.0.0")
    assert status == 200
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith("# EOF\n")


@pytest.mark.parametrize(("path", "which"), [("/livez", "live"), ("/readyz", "ready")])
def test_probes_answer_with_the_reason_per_lane(port: int, health: dict[str, Health], path: str, which: str) -> None:
    status, content_type, body = get(port, path)
    assert (status, content_type) == (200, "application/json")
    assert json.loads(body) == {"ok": True, "reason": WELL.reason, "lanes": WELL.lanes}
    health[which] = ILL
    status, _, body = get(port, path)
    assert status == 503
    assert json.loads(body) == {"ok": False, "reason": ILL.reason, "lanes": ILL.lanes}


def test_an_unknown_path_gets_404_with_the_known_paths(port: int) -> None:
    status, _, body = get(port, "/health")
    assert status == 404
    assert "/metrics, /livez and /readyz" in body


def test_the_server_answers_while_the_main_thread_is_blocked(port: int) -> None:
    answers: list[int] = []
    probe = threading.Thread(target=lambda: answers.append(get(port, "/livez")[0]))
    probe.start()
    while probe.is_alive():  # what a busy event loop does: it never waits
        pass
    assert answers == [200]


def test_a_silent_client_does_not_block_other_clients(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)):
        assert get(port, "/metrics")[0] == 200


def test_a_failed_scrape_is_logged_and_the_next_is_served(registry: CollectorRegistry, port: int) -> None:
    broken = Broken()
    registry.register(broken)
    with structlog.testing.capture_logs() as logs:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/metrics")
        with pytest.raises(ConnectionError):
            HTTPResponse(connection.sock).begin()
        connection.close()
    assert [line["error"] for line in logs] == ["RuntimeError('boom')"]
    registry.unregister(broken)
    assert get(port, "/metrics")[0] == 200


def test_an_occupied_port_is_a_settings_error(port: int, registry: CollectorRegistry) -> None:
    again = serving("127.0.0.1", port, registry=registry, live=lambda: WELL, ready=lambda: WELL, setting="worker_port")
    with pytest.raises(SettingsError) as caught, again:
        raise AssertionError
    [problem] = caught.value.problems
    assert problem.startswith(f"worker_port (PAPERCLIP_MEMORY_WORKER_PORT) = {port}: cannot listen on 127.0.0.1 ")
    assert "Address already in use" in problem


def test_the_port_is_free_again_after_the_block(registry: CollectorRegistry) -> None:
    def served(port: int) -> int:
        with serving(
            "127.0.0.1", port, registry=registry, live=lambda: WELL, ready=lambda: WELL, setting="worker_port"
        ) as bound:
            assert get(bound, "/livez")[0] == 200
            return bound

    port = served(0)
    assert port > 0
    assert served(port) == port
