"""`connect`: registers the tools in Paperclip for one company. Running it again changes nothing that is already right.

Paperclip keeps the shared secret, sends it as a Bearer with every request, and adds the headers that name the calling
agent and run. Two things must hold for an agent: Paperclip can list the tools, and it can call one. Release
2026.916.1 lists with the credentials of the connection but calls with those of the connection's *grant* (2026.824.1
does not), so a listing that works proves nothing about a call. `connect` therefore ends with a call, made as an agent
makes it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from consumer.errors import DeadLetterReason, Permanent, Upstream
from consumer.http.rest_client import RestClient
from consumer.http.transport import Response, quote_segment
from consumer.tools import registration_replies as replies
from consumer.tools.mcp_server import MCP_PATH

T = TypeVar("T")
Json = dict[str, Any]

SECRET_NAME = "paperclip-memory-tools"  # noqa: S105 - the secret's name
FORWARDED = ["company_id", "agent_id", "run_id", "issue_id"]
PROOF = {"toolName": "hindsight_recall", "parameters": {"query": "paperclip-memory connect"}}
_LISTING_FAILED = (422, 502)
_GONE = ("terminated", "archived", "pending_approval")


class ConnectOperation(StrEnum):
    """A request of `connect` to Paperclip."""

    SECRETS = "secrets"
    APPLICATIONS = "applications"
    CONNECTIONS = "connections"
    GRANTS = "grants"
    INSTALLS = "installs"
    CATALOG = "catalog"
    TEST_CALL = "test_call"


@dataclass(frozen=True, slots=True)
class ConnectionSpec:
    """The connection as it must be.

    Attributes:
        url: base URL under which Paperclip reaches the tools.
        secret: the secret that the tools were started with.
    """

    company: str
    url: str
    secret: str


class ToolRegistration:
    """One run of `connect`.

    Args:
        paperclip: its API, with the key of a person who may manage tools.
        echo: receives one line for each step.
        dry_run: change nothing; say what would be done.
    """

    def __init__(
        self, paperclip: RestClient, spec: ConnectionSpec, echo: Callable[[str], None], *, dry_run: bool
    ) -> None:
        self._paperclip = paperclip
        self._spec = spec
        self._echo = echo
        self._dry_run = dry_run
        self._was_deleted = False
        self._company = f"/api/companies/{quote_segment(spec.company)}"

    async def run(self) -> bool:
        """Whether agents can use the tools now; in a dry run, whether Paperclip could be asked what to do.

        Raises:
            HandlingError: Paperclip did not answer, or not as expected.
        """
        secret_id, is_new = await self._ensure_secret()
        connection = await self._ensure_connection(secret_id)
        await self._ensure_grant(connection, secret_id)
        installs = await self._ensure_installs(connection)
        if self._dry_run:
            self._echo("would refresh the catalog of tools, and call one as an agent")
            return True
        problem = await self._refresh_catalog(connection)
        if problem == replies.REFUSED and not is_new:
            rotate = f"/api/secrets/{secret_id}/rotate"
            await self._ask(ConnectOperation.SECRETS, "POST", rotate, replies.single, {"value": self._spec.secret})
            self._echo(f"secret {SECRET_NAME}: was another one, replaced")
            problem = await self._refresh_catalog(connection)
        if problem is not None:
            self._echo(f"✗ {replies.explain_listing(problem, self._spec.url)}")
            return False
        if self._was_deleted:
            await self._allow_tools(connection, installs)
        return await self._prove_call(connection, installs)

    async def _ensure_secret(self) -> tuple[str, bool]:
        """The id of Paperclip's copy of the secret, and whether it was created just now."""
        path = f"{self._company}/secrets"
        for secret in await self._ask(ConnectOperation.SECRETS, "GET", path, replies.rows):
            if secret["name"] == SECRET_NAME and secret.get("status") != "deleted":
                self._echo(f"secret {SECRET_NAME}: exists")
                return secret["id"], False
        if self._dry_run:
            self._echo(f"secret {SECRET_NAME}: would be created")
            return "", True
        body = {"name": SECRET_NAME, "value": self._spec.secret, "description": "Shared with paperclip-memory."}
        created = await self._ask(ConnectOperation.SECRETS, "POST", path, replies.single, body)
        self._echo(f"secret {SECRET_NAME}: created")
        return created["id"], True

    async def _ensure_connection(self, secret_id: str) -> Json:
        """The connection; {} where a dry run would create it.

        One that was deleted in Paperclip is still there, archived, and keeps its name: Paperclip answers 409 to a
        second connection of that name. So it is used again.
        """
        fields = self._fields(secret_id)
        url = fields["config"]["url"]
        path = f"{self._company}/tools/connections"
        listed = await self._ask(ConnectOperation.CONNECTIONS, "GET", path, replies.connections)
        named = [connection for connection in listed if connection["name"] == replies.NAME]
        if not named:
            if self._dry_run:
                self._echo(f"connection {replies.NAME}: would be created ({url})")
                return {}
            body = {"name": replies.NAME, "applicationName": replies.NAME, "transport": "mcp_remote", **fields}
            created = await self._ask(
                ConnectOperation.CONNECTIONS, "POST", path, replies.single, body | {"authKind": "api_key"}
            )
            self._echo(f"connection {replies.NAME}: created ({url})")
            return created
        connection = min(named, key=lambda each: each["status"] == "archived")
        differing = {name: value for name, value in fields.items() if connection.get(name) != value}
        if not differing:
            self._echo(f"connection {replies.NAME}: is as it should be ({url})")
            return connection
        if self._dry_run:
            self._echo(f"connection {replies.NAME}: would be updated ({', '.join(differing)}; {url})")
            return connection
        updated = await self._patch(connection, differing)
        if connection["status"] == "archived":
            self._was_deleted = True
            application = f"/api/tool-applications/{connection['applicationId']}"
            await self._ask(ConnectOperation.APPLICATIONS, "PATCH", application, replies.single, {"status": "active"})
        self._echo(f"connection {replies.NAME}: updated ({', '.join(differing)}; {url})")
        return updated

    async def _ensure_grant(self, connection: Json, secret_id: str) -> None:
        """Give the default grant the secret, in releases whose calls take their credentials from it.

        Such a release calls the kind of that grant `organization`; the one before (`workspace`) calls with the
        connection's credentials, and fails on a connection that names the secret a second time.
        """
        if not connection:
            return
        path = f"/api/tool-connections/{connection['id']}/grants"
        grants = await self._ask(ConnectOperation.GRANTS, "GET", path, replies.grants)
        shared = [grant for grant in grants if grant["kind"] == "organization" and grant["status"] == "active"]
        if not any(grant["kind"] == "organization" for grant in grants):
            return
        reference = {"secretId": secret_id, "configPath": replies.GRANT_PATH}
        if any(grant["isDefault"] and replies.refers_to(grant, secret_id) for grant in shared):
            self._echo("grant: holds the secret")
        elif self._dry_run:
            self._echo("grant: would be given the secret")
            return
        else:
            body = {"credentialSecretRefs": [reference], "isDefault": True}
            await self._ask(ConnectOperation.GRANTS, "POST", f"{path}/installations", replies.single, body)
            for grant in shared:  # a call takes the default grant; an older one would only confuse the operator
                await self._ask(ConnectOperation.GRANTS, "DELETE", f"{path}/{grant['id']}", replies.single)
            self._echo("grant: given the secret")
        # Paperclip copies the connection's secrets whenever it renews the grant.
        if not replies.refers_to(connection, secret_id):
            await self._patch(connection, {"credentialSecretRefs": [reference]})

    async def _ensure_installs(self, connection: Json) -> list[Json]:
        """Give the tools to the whole company, unless the operator has already chosen who gets them."""
        path = f"/api/tool-connections/{connection.get('id')}/installs"
        installs = await self._ask(ConnectOperation.INSTALLS, "GET", path, replies.installs) if connection else []
        if installs:
            targets = sorted({str(install["targetType"]) for install in installs})
            self._echo(f"installed for: {', '.join(targets)} ({len(installs)})")
            return installs
        if self._dry_run:
            self._echo("would be installed for: company")
            return []
        company = {"targetType": "company", "targetId": self._spec.company}
        installs = await self._ask(ConnectOperation.INSTALLS, "PUT", path, replies.installs, {"installs": [company]})
        self._echo("installed for: company")
        return installs

    async def _refresh_catalog(self, connection: Json) -> str | None:
        """Let Paperclip list the tools; None, or why it could not, in Paperclip's code or words."""
        path = f"/api/tool-connections/{connection['id']}/catalog/refresh"
        reply = await self._call(ConnectOperation.CATALOG, "POST", path, {}, accept=_LISTING_FAILED)
        if reply.status in _LISTING_FAILED:
            return self._paperclip.read(reply, ConnectOperation.CATALOG, replies.listing_problem)
        self._echo(self._paperclip.read(reply, ConnectOperation.CATALOG, replies.describe_catalog))
        return None

    async def _allow_tools(self, connection: Json, installs: list[Json]) -> None:
        """Allow the tools again to those who have them: Paperclip took this away when the connection was deleted."""
        path = f"/api/tool-connections/{connection['id']}/catalog"
        catalog = await self._ask(ConnectOperation.CATALOG, "GET", path, replies.catalog)
        agents = [install["targetId"] for install in installs if install["targetType"] == "agent"]
        body = {
            "enabledCatalogEntryIds": [entry["id"] for entry in catalog if entry["status"] == "active"],
            "access": {"agentIds": agents} if agents else "all_agents",
        }
        path = f"{self._company}/tools/apps/{connection['id']}/finish"
        await self._ask(ConnectOperation.CATALOG, "POST", path, dict, body)
        self._echo("tools: allowed again")

    async def _prove_call(self, connection: Json, installs: list[Json]) -> bool:
        """Call a tool through Paperclip's gateway as one of the agents; whether that worked, or nobody could call."""
        path = f"/api/tool-connections/{connection['id']}"
        agents = await self._ask(ConnectOperation.TEST_CALL, "GET", f"{path}/test-agents", replies.agents)
        chosen = {install["targetId"] for install in installs if install["targetType"] == "agent"}
        callers = [agent for agent in agents if agent["status"] not in _GONE and (not chosen or agent["id"] in chosen)]
        if not callers:
            self._echo("! no call was tried: the company has no agent yet that has the tools. Run connect again then.")
            return True
        caller = callers[0]
        body = {"agentId": caller["id"], **PROOF}
        reply = await self._call(ConnectOperation.TEST_CALL, "POST", f"{path}/test-calls", body, accept=(404,))
        problem = self._paperclip.read(reply, ConnectOperation.TEST_CALL, replies.call_problem)
        if problem is None:
            # A test call is allowed what the agent's own call may be denied; older releases do not tell the latter.
            access = f"{path}/test-agents/{caller['id']}/access"
            reply = await self._call(ConnectOperation.TEST_CALL, "GET", access, None, accept=(404,))
            if reply.status != 404:
                problem = self._paperclip.read(reply, ConnectOperation.TEST_CALL, replies.access_problem)
        if problem is None:
            self._echo(f"call as {caller['name']}: works")
            return True
        self._echo(f"✗ call as {caller['name']}: {problem}")
        return False

    def _fields(self, secret_id: str) -> Json:
        authorization = {
            "name": replies.CREDENTIAL,
            "secretId": secret_id,
            "placement": "header",
            "key": "Authorization",
            "prefix": "Bearer ",
        }
        config = {"url": self._spec.url + MCP_PATH, "headerPolicy": {"metadata": {"forward": FORWARDED}}}
        return {"status": "active", "enabled": True, "config": config, "credentialRefs": [authorization]}

    async def _patch(self, connection: Json, changes: Json) -> Json:
        path = f"/api/tool-connections/{connection['id']}"
        return await self._ask(ConnectOperation.CONNECTIONS, "PATCH", path, replies.single, changes)

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
    ) -> Response:
        try:
            reply = await self._paperclip.call(operation, method, path, body, accept=(*accept, 409))
        except Permanent as error:
            if error.reason is not DeadLetterReason.FORBIDDEN:
                raise
            raise Permanent(
                f"{error}: the key in paperclip_api_key must be that of a person who may manage this company's tools",
                reason=error.reason,
                upstream=Upstream.PAPERCLIP,
            ) from error
        if reply.status == 409:
            said = self._paperclip.read(reply, operation, lambda value: str(value["error"]))
            raise Permanent(
                f"Paperclip refuses to change its {operation}: {said}. Look at {replies.NAME!r} among the company's "
                "apps in Paperclip; delete or rename what stands in the way there, then run connect again",
                reason=DeadLetterReason.REJECTED,
                upstream=Upstream.PAPERCLIP,
            )
        return reply
