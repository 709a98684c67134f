"""Settings errors of `tools` and `connect`, and the listening socket."""

import socket
from typing import Any

import pytest

from consumer.commands.connect import run_connect
from consumer.commands.tools import check_settings, run_tools
from consumer.errors import SettingsError
from consumer.settings.model import Settings
from consumer.settings.validation import load_settings
from consumer.tools.server import listening
from tests.support.tools_fixture import COMPANY, SECRET


def settings(**fields: Any) -> Settings:
    return load_settings(hindsight_api_url="http://localhost:8888", **fields)


async def test_tools_without_any_way_to_authenticate_do_not_start() -> None:
    for fields in ({"tools_shared_secret": SECRET}, {"paperclip_api_url": "http://localhost:3100"}):
        check_settings(settings(**fields))
    with pytest.raises(SettingsError, match=r"^paperclip_api_url \(PAPERCLIP_MEMORY_PAPERCLIP_API_URL\) is not set: "):
        await run_tools(settings(), strict=False)


async def test_connect_names_every_missing_setting() -> None:
    with pytest.raises(SettingsError) as error:
        await run_connect(settings(), COMPANY, dry_run=True)
    assert [problem.split()[0] for problem in error.value.problems] == ["paperclip_api_url", "tools_shared_secret"]


async def test_connect_prints_that_paperclip_is_unreachable(capsys: pytest.CaptureFixture[str]) -> None:
    with listening("127.0.0.1", 0) as bound:
        closed = f"http://127.0.0.1:{bound.getsockname()[1]}"
    with_closed_port = settings(paperclip_api_url=closed, tools_shared_secret=SECRET)
    assert await run_connect(with_closed_port, COMPANY, dry_run=True) == 1
    out = capsys.readouterr().out
    assert out.startswith("✗ Paperclip: secrets at http://127.0.0.1:")
    assert SECRET not in out


def test_the_listening_socket_names_its_protocol_so_that_asyncio_sets_nodelay() -> None:
    """It sets TCP_NODELAY only where the protocol is named."""
    with listening("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP
