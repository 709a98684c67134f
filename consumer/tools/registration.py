"""`connect`: registers the tools in Paperclip, for one company. Doing it again changes nothing that is as it should be.

Paperclip keeps the shared secret, sends it as a Bearer with every call, and adds the headers that say which agent and
run calls. The one way to see whether Paperclip's secret is ours is to let it list our tools: a wrong one is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from consumer.errors import DeadLetterReason, Permanent, Upstream
from consumer.http.rest_client import Rest
from consumer.http.transport import Reply, segment
from consumer.tools.mcp_server import MCP_PATH

T = TypeVar("T")
Json = dict[str, Any]

NAME = "paperclip-memory"
SECRET_NAME = "paperclip-memory-tools"  # noqa: S105 - the secret's name
FORWARDED = ["company_id", "agent_id", "run_id", "issue_id"]
_REFUSED = "oauth_challenge"  # Paperclip's code for a 401 of the tools
_FAILED = (422, 502)


class ConnectOperation(StrEnum):
    """What is asked of Paperclip."""

    SECRETS = "secrets"
    CONNECTIONS = "connections"
    INSTALLS = "installs"
    CATALOG = "catalog"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the connection must be.

    Attributes:
        url: base URL under which Paperclip reaches the tools.
        secret: what the tools were started with.
    """

    company: str
    url: str
    secret: str


class Connect:
    """One run of the command.

    Args:
        paperclip: its API, with the key of somebody who may manage tools.
        say: gets one line for each step.
        dry_run: change nothing; say what would be done.
    """

    def __init__(self, paperclip: Rest, wanted: Wanted, say: Callable[[str], None], *, dry_run: bool) -> None:
        self._paperclip = paperclip
        self._wanted = wanted
        self._say = say
        self._dry_run = dry_run

    async def run(self) -> bool:
        """Whether Paperclip can use the tools now (in a dry run: whether it could be found out what is to do).

        Raises:
            HandlingError: Paperclip did not answer, or not as expected.
        """
        secret_id, fresh = await self._secret()
        connection = await self._connection(secret_id)
        await self._install(connection)
        if self._dry_run:
            self._say("would refresh the catalog of tools")
            return True
        failure = await self._refresh(connection)
        if failure == _REFUSED and not fresh:
            rotate = f"/api/secrets/{secret_id}/rotate"
            await self._ask(ConnectOperation.SECRETS, "POST", rotate, _object, {"value": self._wanted.secret})
            self._say(f"secret {SECRET_NAME}: was another one, replaced")
            failure = await self._refresh(connection)
        if failure is not None:
            self._say(f"✗ {_explain(failure, self._wanted.url)}")
        return failure is None

    async def _secret(self) -> tuple[str, bool]:
        """The id of Paperclip's copy of the secret, and whether it was made just now."""
        path = f"/api/companies/{segment(self._wanted.company)}/secrets"
        for secret in await self._ask(ConnectOperation.SECRETS, "GET", path, _rows):
            if secret["name"] == SECRET_NAME and secret.get("status") != "deleted":
                self._say(f"secret {SECRET_NAME}: is there")
                return secret["id"], False
        if self._dry_run:
            self._say(f"secret {SECRET_NAME}: would be created")
            return "", True
        described = {"name": SECRET_NAME, "value": self._wanted.secret, "description": "Shared with paperclip-memory."}
        created = await self._ask(ConnectOperation.SECRETS, "POST", path, _object, described)
        self._say(f"secret {SECRET_NAME}: created")
        return created["id"], True

    async def _connection(self, secret_id: str) -> Json:
        path = f"/api/companies/{segment(self._wanted.company)}/tools/connections"
        wanted = self._body(secret_id)
        url = wanted["config"]["url"]
        for connection in await self._ask(ConnectOperation.CONNECTIONS, "GET", path, _connections):
            if connection["name"] != NAME or connection["status"] == "archived":
                continue
            differing = [name for name, value in wanted.items() if connection.get(name) != value]
            if not differing:
                self._say(f"connection {NAME}: is as it should be ({url})")
                return connection
            if self._dry_run:
                self._say(f"connection {NAME}: would be updated ({', '.join(differing)}; {url})")
                return connection
            changes = {name: wanted[name] for name in differing}
            where = f"/api/tool-connections/{connection['id']}"
            updated = await self._ask(ConnectOperation.CONNECTIONS, "PATCH", where, _object, changes)
            self._say(f"connection {NAME}: updated ({', '.join(differing)}; {url})")
            return updated
        if self._dry_run:
            self._say(f"connection {NAME}: would be created ({url})")
            return {}
        made = {"name": NAME, "applicationName": NAME, "transport": "mcp_remote", "authKind": "api_key", **wanted}
        created = await self._ask(ConnectOperation.CONNECTIONS, "POST", path, _object, made)
        self._say(f"connection {NAME}: created ({url})")
        return created

    async def _install(self, connection: Json) -> None:
        """Give the tools to the whole company, unless somebody has already said who gets them."""
        path = f"/api/tool-connections/{connection.get('id')}/installs"
        given = await self._ask(ConnectOperation.INSTALLS, "GET", path, _installs) if connection else []
        if given:
            self._say(f"installed for: {', '.join(sorted({str(each['targetType']) for each in given}))} ({len(given)})")
            return
        if self._dry_run:
            self._say("would be installed for: company")
            return
        company = {"targetType": "company", "targetId": self._wanted.company}
        await self._ask(ConnectOperation.INSTALLS, "PUT", path, _installs, {"installs": [company]})
        self._say("installed for: company")

    async def _refresh(self, connection: Json) -> str | None:
        """Let Paperclip list the tools; why it could not, in Paperclip's code or words."""
        path = f"/api/tool-connections/{connection['id']}/catalog/refresh"
        reply = await self._call(ConnectOperation.CATALOG, "POST", path, {}, accept=_FAILED)
        if reply.status in _FAILED:
            return self._paperclip.read(reply, ConnectOperation.CATALOG, _failure)
        self._say(self._paperclip.read(reply, ConnectOperation.CATALOG, _catalog))
        return None

    def _body(self, secret_id: str) -> Json:
        authorization = {
            "name": "authorization",
            "secretId": secret_id,
            "placement": "header",
            "key": "Authorization",
            "prefix": "Bearer ",
        }
        config = {"url": self._wanted.url + MCP_PATH, "headerPolicy": {"metadata": {"forward": FORWARDED}}}
        return {"status": "active", "enabled": True, "config": config, "credentialRefs": [authorization]}

    async def _ask(
        self,
        operation: ConnectOperation,
        method: str,
        path: str,
        parse: Callable[[Any], T],
        body: object = None,
    ) -> T:
        return self._paperclip.read(await self._call(operation, method, path, body), operation, parse)

    async def _call(
        self, operation: ConnectOperation, method: str, path: str, body: object, accept: tuple[int, ...] = ()
    ) -> Reply:
        try:
            return await self._paperclip.call(operation, method, path, body, accept=accept)
        except Permanent as error:
            if error.reason is not DeadLetterReason.FORBIDDEN:
                raise
            raise Permanent(
                f"{error}: the key in paperclip_api_key must be that of a person who may manage this company's tools",
                reason=error.reason,
                upstream=Upstream.PAPERCLIP,
            ) from error


def _object(value: Any) -> Json:
    return {**value, "id": str(value["id"])}


def _rows(value: Any) -> list[Json]:
    return [_object(row) for row in value]


def _connections(value: Any) -> list[Json]:
    return _rows(value["connections"])


def _installs(value: Any) -> list[Json]:
    return [dict(row) for row in value["installs"]]


def _failure(value: Any) -> str:
    code = value.get("code") or (value.get("details") or {}).get("code")
    return _REFUSED if code == _REFUSED else str(value["error"])


def _catalog(value: Any) -> str:
    states = ", ".join(f"{entry['toolName']} {entry['status']}" for entry in value["catalog"])
    return f"tools: {states}; health {value['connection']['healthStatus']}"


def _explain(failure: str, url: str) -> str:
    if failure == _REFUSED:
        return f"the tools at {url} refuse the secret: start them with this tools_shared_secret, then connect again"
    return f"Paperclip cannot list the tools at {url}: {failure}; are they running, is tools_url right for Paperclip?"
