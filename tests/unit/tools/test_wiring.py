"""What the commands refuse before they begin."""

import socket
from typing import Any

import pytest

from consumer.commands.tools import check_settings, connect, run_tools
from consumer.errors import SettingsError
from consumer.settings.model import Settings, load_settings
from consumer.tools.server import listening
from tests.unit.tools.office import COMPANY, SECRET


def settings(**fields: Any) -> Settings:
    return load_settings(hindsight_api_url="http://localhost:8888", **fields)


async def test_tools_that_nobody_could_call_do_not_start() -> None:
    for given in ({"tools_shared_secret": SECRET}, {"paperclip_api_url": "http://localhost:3100"}):
        check_settings(settings(**given))
    with pytest.raises(SettingsError, match=r"^paperclip_api_url \(PAPERCLIP_MEMORY_PAPERCLIP_API_URL\) is not set: "):
        await run_tools(settings(), strict=False)


async def test_connect_names_all_that_is_missing() -> None:
    with pytest.raises(SettingsError) as error:
        await connect(settings(), COMPANY, dry_run=True)
    assert [problem.split()[0] for problem in error.value.problems] == ["paperclip_api_url", "tools_shared_secret"]


async def test_connect_without_a_paperclip_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with listening("127.0.0.1", 0) as bound:
        closed = f"http://127.0.0.1:{bound.getsockname()[1]}"
    given = settings(paperclip_api_url=closed, tools_shared_secret=SECRET)
    assert await connect(given, COMPANY, dry_run=True) == 1
    out = capsys.readouterr().out
    assert out.startswith("✗ Paperclip: secrets at http://127.0.0.1:")
    assert SECRET not in out


def test_asyncio_sends_answers_at_once_on_our_socket() -> None:
    """It sets TCP_NODELAY only where the protocol is named."""
    with listening("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP
