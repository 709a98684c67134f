"""Serves `/metrics`, `/livez` and `/readyz` from its own threads: a blocked event loop blocks no scrape or probe."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from consumer.errors import SettingsError
from consumer.observability.health import Check
from consumer.settings.types import label


@contextmanager
def serving(
    host: str, port: int, *, registry: CollectorRegistry, live: Check, ready: Check, setting: str
) -> Iterator[int]:
    """Serve until the block ends. Yields the port; for 0, a free one.

    Args:
        setting: name of the port's setting, for error messages.

    Raises:
        SettingsError: the address is not available.
    """
    try:
        server = _Server(host, port, registry, {"/livez": live, "/readyz": ready})
    except OSError as error:
        raise SettingsError(
            [f"{label(setting)} = {port}: cannot listen on {host} ({error.strerror}); set another port, or 0 for any"]
        ) from error
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    def __init__(self, host: str, port: int, registry: CollectorRegistry, checks: dict[str, Check]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.registry = registry
        self.checks = checks
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's own does an unneeded DNS lookup, which may block

    def handle_error(self, *_client: Any) -> None:
        structlog.get_logger().warning("scrape or probe failed", error=repr(sys.exception()))


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10.0  # seconds until a silent client is disconnected

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("accept", ""))
            self._answer(200, content_type, encode(self.server.registry))
        elif check := self.server.checks.get(path):
            health = check()
            self._answer(200 if health.ok else 503, "application/json", json.dumps(asdict(health)).encode() + b"\n")
        else:
            self._answer(404, "text/plain", b"The paths are /metrics, /livez and /readyz.\n")

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Scrapes and probes are not logged."""
