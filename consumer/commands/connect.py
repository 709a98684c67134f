"""`paperclip-memory connect`."""

from consumer.commands.clients import USER_AGENT, reveal
from consumer.errors import ExitCode, HandlingError, SettingsError, Upstream
from consumer.http.backends import open_transport
from consumer.http.rest_client import RestClient
from consumer.observability.logs import configure_logging
from consumer.settings.model import Settings
from consumer.settings.types import LogFormat, LogLevel, label
from consumer.tools.registration import ConnectionSpec, ToolRegistration


async def run_connect(settings: Settings, company: str, *, dry_run: bool) -> int:
    """Register the tools in Paperclip for a company, and print what was done; the exit code.

    Raises:
        SettingsError: what `connect` needs is not set.
    """
    shared = reveal(settings.tools_shared_secret)
    needed = {"paperclip_api_url": settings.paperclip_api_url, "tools_shared_secret": shared}
    if missing := [f"{label(name)} is not set: connect needs it" for name, value in needed.items() if value is None]:
        raise SettingsError(missing)
    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)
    url = settings.tools_url or f"http://{settings.tools_host}:{settings.tools_port}"
    async with open_transport(settings.http_backend, 1) as send:
        paperclip = RestClient(
            send,
            str(settings.paperclip_api_url),
            Upstream.PAPERCLIP,
            key=reveal(settings.paperclip_api_key),
            user_agent=USER_AGENT,
            timeout=settings.http_timeout,
        )
        try:
            spec = ConnectionSpec(company, url, str(shared))
            done = await ToolRegistration(paperclip, spec, print, dry_run=dry_run).run()
        except HandlingError as error:
            print(f"✗ {error}")  # noqa: T201
            return ExitCode.FAILED
    return 0 if done else ExitCode.FAILED
