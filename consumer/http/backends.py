"""Opens a `Transport` for the chosen HTTP library; each library has a module of its own.

Both keep one contract (`tests/contract/test_transports.py`):

- The URL goes out unchanged, redirects are not followed, cookies are not kept. `Accept-Encoding: gzip` is sent and the
  body is decoded. If a header comes twice, the last one counts; headers of some 100 kB are read.
- A body of more than `MAX_BODY` bytes, after decompression, is not read further.
- The timeout spans the whole exchange, including the wait for a free connection.
- Trusted CAs are the machine's (`SSL_CERT_FILE`, `SSL_CERT_DIR`) and those in `ca_file`.
- Proxies come from `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`.
- A request that may have reached the server is not sent again, with one exception: aiohttp repeats a GET or DELETE
  once when the connection ends before the response.
"""

from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from typing import cast

from consumer.errors import SettingsError
from consumer.http.transport import Transport

_MODULES = {"httpx": "consumer.http.httpx_transport", "pyreqwest": "consumer.http.pyreqwest_transport"}


def open_transport(backend: str, limit: int, *, ca_file: Path | None = None) -> AbstractAsyncContextManager[Transport]:
    """Open a transport with its own pool of at most `limit` connections, closed on exit.

    Args:
        backend: `httpx` or `pyreqwest`; only the chosen library is imported.
        limit: requests in flight; further ones wait.
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
    return cast("AbstractAsyncContextManager[Transport]", module.open_transport(limit, ca_file=ca_file))
