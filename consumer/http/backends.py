"""The senders: what stands behind the `Send` seam of `consumer.http.transport`, one module for each HTTP library.

Both are held to one contract (`tests/contract/test_transports.py`):

- The URL goes out as it was given, no redirect is followed, no cookie is kept. `Accept-Encoding: gzip` is sent, and the
  reply's body is decoded. Of a header that comes twice, the last counts.
- The time-out spans the whole exchange, the wait for a free connection too.
- Certificates must come from the machine's CAs (`SSL_CERT_FILE`, `SSL_CERT_DIR`) or from `ca_file`.
- Proxies come from `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`.
- Nothing is sent twice that may have reached the server, except that aiohttp repeats a GET or DELETE once when its
  connection ends before a reply.
"""

from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from typing import cast

from consumer.errors import SettingsError
from consumer.http.transport import Send

_MODULES = {"httpx": "consumer.http.httpx_transport", "pyreqwest": "consumer.http.pyreqwest_transport"}


def open_sender(backend: str, limit: int, *, ca_file: Path | None = None) -> AbstractAsyncContextManager[Send]:
    """Open a sender of its own: a pool of at most `limit` connections, closed at the end.

    Args:
        backend: `httpx` or `pyreqwest`; only the chosen library is imported.
        limit: requests in flight; more wait their turn.
        ca_file: PEM file of CAs to trust beside the machine's.

    Raises:
        SettingsError: the backend is unknown or its extra is not installed.
    """
    if backend not in _MODULES:
        raise SettingsError([f"http_backend: {backend!r} is not one of {', '.join(_MODULES)}"])
    try:
        module = import_module(_MODULES[backend])
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != backend:
            raise
        hint = "pip install 'paperclip-memory[fast]'"
        raise SettingsError([f"http_backend: {backend!r} needs an extra that is not installed: {hint}"]) from error
    return cast("AbstractAsyncContextManager[Send]", module.open_sender(limit, ca_file=ca_file))
