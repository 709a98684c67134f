"""`connect` against a Paperclip that keeps secrets, connections and installs as the real one does."""

import json
from typing import Any

import pytest

from consumer.errors import Permanent, Transient, Upstream
from consumer.http.rest_client import RestClient
from consumer.http.transport import Request, Response
from consumer.tools.registration import FORWARDED, ConnectionSpec, ToolRegistration
from tests.support.tools_fixture import COMPANY, SECRET

SECRET_ID = "e0000000-0000-4000-8000-000000000001"
CONNECTION_ID = "f0000000-0000-4000-8000-000000000001"
TOOLS = "http://memory:8765"


AGENT_ID = "a0000000-0000-4000-8000-000000000001"
APPLICATION_ID = "b0000000-0000-4000-8000-000000000001"
REFERENCE = {"secretId": SECRET_ID, "configPath": "credentials.authorization"}


class Paperclip:
    """Keeps what it is told.

    Args:
        served: the secret that the tools were started with.
        kind: of the default grant: `workspace` in releases that call with the connection's credentials, `organization`
            in those that call with the grant's.
    """

    def __init__(self, served: str = SECRET, kind: str = "organization") -> None:
        self.served = served
        self.kind = kind
        self.applications: list[dict[str, Any]] = []
        self.grants: list[dict[str, Any]] = []
        self.agents = [{"id": AGENT_ID, "name": "Ada", "status": "idle"}]
        self.decision: dict[str, Any] | None = None
        self.offered = "allowed"
        self.finished: list[dict[str, Any]] = []
        self.secrets: dict[str, dict[str, Any]] = {}
        self.connections: dict[str, dict[str, Any]] = {}
        self.installs: list[dict[str, Any]] = []
        self.changes: list[str] = []
        self.status: int | None = None
        self.unreachable = False

    async def send(self, request: Request) -> Response:  # noqa: C901, PLR0911, PLR0912 - one branch for each route
        path = request.url.removeprefix("http://paperclip/api")
        if self.status is not None:
            return _json(self.status, {"error": "no"})
        body: Any = json.loads(request.body) if request.body else None
        if request.method != "GET" and not path.endswith("refresh"):
            self.changes.append(f"{request.method} {path}")
        match request.method, path.removeprefix(f"/companies/{COMPANY}").split("/")[1:]:
            case "GET", ["secrets"]:
                return _json(200, [{k: v for k, v in each.items() if k != "value"} for each in self.secrets.values()])
            case "POST", ["secrets"]:
                self.secrets[SECRET_ID] = {"id": SECRET_ID, "status": "active", **body}
                return _json(201, self.secrets[SECRET_ID])
            case "POST", ["secrets", id_, "rotate"]:
                self.secrets[id_]["value"] = body["value"]
                return _json(200, {"id": id_})
            case "GET", ["tools", "connections"]:
                return _json(200, {"connections": list(self.connections.values())})
            case "PATCH", ["tool-applications", id_]:
                (application,) = (each for each in self.applications if each["id"] == id_)
                application |= body
                return _json(200, application)
            case "POST", ["tools", "connections"]:
                if any(each["name"] == body.get("applicationName") for each in self.applications):
                    return _json(409, {"error": "A tool access record with that name already exists"})
                if self.kind == "workspace" and "credentialSecretRefs" in body:
                    return _json(409, {"error": "A tool access record with that name already exists"})
                if "applicationName" in body:
                    self.applications.append(
                        {"id": APPLICATION_ID, "name": body["applicationName"], "status": "active"}
                    )
                made = {"id": CONNECTION_ID, "status": "draft", "applicationId": APPLICATION_ID, **body}
                self.connections[CONNECTION_ID] = made
                self.grants = [self._grant([])]
                return _json(201, self.connections[CONNECTION_ID])
            case "GET", ["tool-connections", _, "grants"]:
                return _json(200, {"grants": self.grants})
            case "POST", ["tool-connections", _, "grants", "installations"]:
                for grant in self.grants:
                    grant["isDefault"] = False
                self.grants.append(self._grant(body["credentialSecretRefs"]))
                return _json(201, self.grants[-1])
            case "DELETE", ["tool-connections", _, "grants", id_]:
                (grant,) = (each for each in self.grants if each["id"] == id_)
                grant["status"] = "revoked"
                return _json(200, grant)
            case "GET", ["tool-connections", _, "test-agents"]:
                return _json(200, {"agents": self.agents})
            case "GET", ["tool-connections", _, "test-agents", _, "access"]:
                if self.kind == "workspace":  # an older release
                    return _json(404, {"error": "API route not found"})
                tool = {"toolName": "hindsight_retain", "decision": self.offered, "reasonCode": "deny_default"}
                return _json(200, {"access": {"tools": [tool]}})
            case "GET", ["tool-connections", _, "catalog"]:
                return _json(200, {"catalog": [{"id": "c-1", "status": "active"}, {"id": "c-2", "status": "removed"}]})
            case "POST", ["tools", "apps", _, "finish"]:
                self.finished.append(body)
                return _json(200, {})
            case "POST", ["tool-connections", id_, "test-calls"]:
                return _json(200, self._call(body))
            case "PATCH", ["tool-connections", id_]:
                self.connections[id_] |= body
                return _json(200, self.connections[id_])
            case "GET", ["tool-connections", id_, "installs"]:
                return _json(200, {"connectionId": id_, "installs": self.installs})
            case "PUT", ["tool-connections", id_, "installs"]:
                self.installs = body["installs"]
                return _json(200, {"connectionId": id_, "installs": self.installs})
            case "POST", ["tool-connections", id_, "catalog", "refresh"]:
                return self._refresh(self.connections[id_])
        raise AssertionError(f"{request.method} {path}")

    def _grant(self, references: list[dict[str, str]]) -> dict[str, Any]:
        number = len(self.grants)
        common = {"kind": self.kind, "isDefault": True, "status": "active", "credentialSecretRefs": references}
        return {"id": f"grant-{number}", **common}

    def _call(self, body: dict[str, Any]) -> dict[str, Any]:
        assert body["toolName"] == "hindsight_recall"
        if self.decision is not None:
            return self.decision
        (grant,) = (each for each in self.grants if each["isDefault"] and each["status"] == "active")
        secrets = [ref["secretId"] for ref in grant["credentialSecretRefs"]]
        if self.kind == "workspace":
            secrets = [ref["secretId"] for ref in self.connections[CONNECTION_ID]["credentialRefs"]]
        if [self.secrets[id_]["value"] for id_ in secrets] != [self.served]:
            return {"decision": "allowed", "error": {"message": "HTTP error", "reasonCode": "mcp_remote_status"}}
        return {"decision": "allowed", "result": {"content": "No relevant memories found."}}

    def _refresh(self, connection: dict[str, Any]) -> Response:
        (ref,) = connection["credentialRefs"]
        if self.unreachable:
            return _json(502, {"error": "fetch failed", "code": "catalog_refresh_failed"})
        if self.secrets[ref["secretId"]]["value"] != self.served:
            return _json(502, {"error": "This app needs you to sign in.", "code": "oauth_challenge"})
        tools = [{"toolName": name, "status": "active"} for name in ("hindsight_recall", "hindsight_retain")]
        return _json(200, {"connection": connection | {"healthStatus": "ok"}, "catalog": tools})


async def connect(paperclip: Paperclip, *, dry_run: bool = False, url: str = TOOLS) -> tuple[bool, list[str]]:
    said: list[str] = []
    rest = RestClient(paperclip.send, "http://paperclip", Upstream.PAPERCLIP, key="k", user_agent="test", timeout=5)
    done = await ToolRegistration(rest, ConnectionSpec(COMPANY, url, SECRET), said.append, dry_run=dry_run).run()
    assert SECRET not in "".join(said)
    return done, said


@pytest.mark.parametrize("kind", ["workspace", "organization"])
async def test_the_first_run_creates_secret_connection_grant_and_install_and_calls(kind: str) -> None:
    paperclip = Paperclip(kind=kind)
    done, said = await connect(paperclip)
    assert done
    assert said == [
        "secret paperclip-memory-tools: created",
        "connection paperclip-memory: created (http://memory:8765/mcp)",
        *(["grant: given the secret"] if kind == "organization" else []),
        "installed for: company",
        "tools: hindsight_recall active, hindsight_retain active; health ok",
        "call as Ada: works",
    ]
    made = paperclip.connections[CONNECTION_ID]
    assert (made["transport"], made["status"], made["enabled"]) == ("mcp_remote", "active", True)
    assert made["config"] == {"url": f"{TOOLS}/mcp", "headerPolicy": {"metadata": {"forward": FORWARDED}}}
    assert made["credentialRefs"] == [
        {
            "name": "authorization",
            "secretId": SECRET_ID,
            "placement": "header",
            "key": "Authorization",
            "prefix": "Bearer ",
        }
    ]
    assert SECRET not in json.dumps(made)
    assert paperclip.installs == [{"targetType": "company", "targetId": COMPANY}]


@pytest.mark.parametrize("kind", ["workspace", "organization"])
async def test_the_second_run_changes_nothing(kind: str) -> None:
    paperclip = Paperclip(kind=kind)
    await connect(paperclip)
    paperclip.changes.clear()
    done, said = await connect(paperclip)
    assert done
    assert [change for change in paperclip.changes if not change.endswith("/test-calls")] == []
    assert said == [
        "secret paperclip-memory-tools: exists",
        "connection paperclip-memory: is as it should be (http://memory:8765/mcp)",
        *(["grant: holds the secret"] if kind == "organization" else []),
        "installed for: company (1)",
        "tools: hindsight_recall active, hindsight_retain active; health ok",
        "call as Ada: works",
    ]


async def test_a_connection_whose_grant_lacks_the_secret_gets_a_new_default_grant() -> None:
    """As 0.1.0 made it: Paperclip could list the tools, and no agent could call them."""
    paperclip = Paperclip()
    await connect(paperclip)
    del paperclip.connections[CONNECTION_ID]["credentialSecretRefs"]
    paperclip.grants = [paperclip._grant([])]
    _, said = await connect(paperclip, dry_run=True)
    assert "grant: would be given the secret" in said
    done, said = await connect(paperclip)
    assert done
    assert "grant: given the secret" in said
    assert [(grant["status"], grant["isDefault"]) for grant in paperclip.grants] == [
        ("revoked", False),
        ("active", True),
    ]
    assert paperclip.grants[1]["credentialSecretRefs"] == [REFERENCE]
    assert paperclip.connections[CONNECTION_ID]["credentialSecretRefs"] == [REFERENCE]


async def test_a_release_whose_calls_take_the_connections_credentials_gets_no_grant() -> None:
    paperclip = Paperclip(kind="workspace")
    await connect(paperclip)
    assert paperclip.grants == [paperclip._grant([]) | {"id": "grant-0"}]
    assert "credentialSecretRefs" not in paperclip.connections[CONNECTION_ID]


async def test_a_failed_call_is_told_though_the_listing_works() -> None:
    paperclip = Paperclip()
    paperclip.decision = {"decision": "allowed", "error": {"message": "HTTP error", "reasonCode": "mcp_remote_status"}}
    done, said = await connect(paperclip)
    assert not done
    assert said[-1].startswith("✗ call as Ada: HTTP error (mcp_remote_status). Paperclip can list the tools")


async def test_a_tool_that_the_agent_is_not_offered_is_told_though_the_test_call_works() -> None:
    paperclip = Paperclip()
    paperclip.offered = "off"
    done, said = await connect(paperclip)
    assert not done
    assert "Paperclip does not offer this agent every tool: hindsight_retain off (deny_default)" in said[-1]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"decision": "require_approval"}, "✗ call as Ada: Paperclip's policies say 'require_approval'"),
        ({"error": 'Tool "hindsight_recall" not found'}, '✗ call as Ada: Tool "hindsight_recall" not found.'),
    ],
)
async def test_a_call_that_paperclip_keeps_back_is_told(answer: dict[str, Any], words: str) -> None:
    paperclip = Paperclip()
    paperclip.decision = answer
    done, said = await connect(paperclip)
    assert not done
    assert said[-1].startswith(words)


async def test_without_an_agent_no_call_is_tried_and_that_is_said() -> None:
    paperclip = Paperclip()
    paperclip.agents = [{"id": AGENT_ID, "name": "Ada", "status": "terminated"}]
    done, said = await connect(paperclip)
    assert done
    assert said[-1].startswith("! no call was tried: the company has no agent yet that has the tools")


async def test_the_call_is_made_as_an_agent_that_has_the_tools() -> None:
    paperclip = Paperclip()
    await connect(paperclip)
    paperclip.installs = [{"targetType": "agent", "targetId": "ben"}]
    _, said = await connect(paperclip)
    assert said[-1].startswith("! no call was tried")
    paperclip.agents.append({"id": "ben", "name": "Ben", "status": "idle"})
    _, said = await connect(paperclip)
    assert said[-1] == "call as Ben: works"


@pytest.mark.parametrize("kind", ["workspace", "organization"])
async def test_a_connection_deleted_in_paperclip_is_used_again(kind: str) -> None:
    paperclip = Paperclip(kind=kind)
    await connect(paperclip)
    paperclip.connections[CONNECTION_ID] |= {"status": "archived", "enabled": False, "credentialSecretRefs": []}
    paperclip.applications[0]["status"] = "archived"
    if kind == "organization":
        for grant in paperclip.grants:
            grant |= {"status": "revoked", "isDefault": False}
    done, said = await connect(paperclip)
    assert done
    assert said[1] == "connection paperclip-memory: updated (status, enabled; http://memory:8765/mcp)"
    assert said[-1] == "call as Ada: works"
    assert paperclip.connections[CONNECTION_ID]["status"] == "active"
    assert paperclip.applications[0]["status"] == "active"
    assert paperclip.finished == [{"enabledCatalogEntryIds": ["c-1"], "access": "all_agents"}]


async def test_a_connection_used_again_allows_the_tools_to_the_chosen_agents_only() -> None:
    paperclip = Paperclip()
    await connect(paperclip)
    assert paperclip.finished == []
    paperclip.connections[CONNECTION_ID]["status"] = "archived"
    paperclip.installs = [{"targetType": "agent", "targetId": AGENT_ID}]
    await connect(paperclip)
    assert paperclip.finished == [{"enabledCatalogEntryIds": ["c-1"], "access": {"agentIds": [AGENT_ID]}}]


async def test_an_archived_connection_of_the_same_name_is_left_alone_beside_a_live_one() -> None:
    paperclip = Paperclip()
    await connect(paperclip)
    paperclip.connections = {
        "old": {"id": "old", "name": "paperclip-memory", "status": "archived"}
    } | paperclip.connections
    _, said = await connect(paperclip)
    assert "connection paperclip-memory: is as it should be (http://memory:8765/mcp)" in said


async def test_a_conflict_is_told_in_paperclips_words_with_the_way_out() -> None:
    paperclip = Paperclip()
    paperclip.status = 409
    with pytest.raises(Permanent, match=r"no\. Look at 'paperclip-memory' among the company's apps"):
        await connect(paperclip)


async def test_changed_fields_are_put_right() -> None:
    paperclip = Paperclip()
    await connect(paperclip)
    paperclip.connections[CONNECTION_ID]["enabled"] = False
    done, said = await connect(paperclip, url="http://elsewhere:1")
    assert done
    assert said[1] == "connection paperclip-memory: updated (enabled, config; http://elsewhere:1/mcp)"
    assert paperclip.connections[CONNECTION_ID]["config"]["url"] == "http://elsewhere:1/mcp"
    assert paperclip.connections[CONNECTION_ID]["enabled"]


async def test_installs_that_the_operator_chose_stay() -> None:
    paperclip = Paperclip()
    await connect(paperclip)
    chosen = [{"targetType": "agent", "targetId": "a"}, {"targetType": "agent", "targetId": "b"}]
    paperclip.installs = chosen
    _, said = await connect(paperclip)
    assert paperclip.installs == chosen
    assert "installed for: agent (2)" in said


async def test_a_dry_run_says_what_would_change_and_changes_nothing() -> None:
    paperclip = Paperclip()
    done, said = await connect(paperclip, dry_run=True)
    assert done
    assert said == [
        "secret paperclip-memory-tools: would be created",
        "connection paperclip-memory: would be created (http://memory:8765/mcp)",
        "would be installed for: company",
        "would refresh the catalog of tools, and call one as an agent",
    ]
    await connect(paperclip)
    before = json.dumps([paperclip.secrets, paperclip.connections, paperclip.installs])
    paperclip.changes.clear()
    _, said = await connect(paperclip, dry_run=True, url="http://elsewhere:1")
    assert "connection paperclip-memory: would be updated (config; http://elsewhere:1/mcp)" in said
    assert paperclip.changes == []
    assert json.dumps([paperclip.secrets, paperclip.connections, paperclip.installs]) == before


async def test_a_secret_of_another_value_is_replaced() -> None:
    paperclip = Paperclip()
    await connect(paperclip)
    paperclip.secrets[SECRET_ID]["value"] = "the-secret-of-last-year"
    done, said = await connect(paperclip)
    assert done
    assert "secret paperclip-memory-tools: was another one, replaced" in said
    assert paperclip.secrets[SECRET_ID]["value"] == SECRET


async def test_tools_started_with_another_secret_are_told() -> None:
    done, said = await connect(Paperclip(served="another-secret-altogether"))
    assert not done
    assert said[-1].startswith("✗ the tools at http://memory:8765 refuse the secret")


async def test_unreachable_tools_are_told_and_the_secret_stays() -> None:
    paperclip = Paperclip()
    paperclip.unreachable = True
    for _ in range(2):
        done, said = await connect(paperclip)
        assert not done
        assert said[-1].startswith("✗ Paperclip cannot list the tools at http://memory:8765: fetch failed; ")
    assert not any("rotate" in change for change in paperclip.changes)


async def test_a_deleted_secret_is_created_again() -> None:
    paperclip = Paperclip()
    paperclip.secrets["old"] = {"id": "old", "name": "paperclip-memory-tools", "status": "deleted", "value": "x"}
    done, said = await connect(paperclip)
    assert done
    assert said[0] == "secret paperclip-memory-tools: created"


async def test_a_key_that_may_not_manage_tools_is_told() -> None:
    paperclip = Paperclip()
    paperclip.status = 403
    with pytest.raises(Permanent, match="a person who may manage this company's tools"):
        await connect(paperclip)


async def test_another_server_at_paperclips_url_is_transient() -> None:
    paperclip = Paperclip()
    paperclip.status = 200
    with pytest.raises(Transient):
        await connect(paperclip)


def _json(status: int, body: object) -> Response:
    return Response(status, {}, json.dumps(body).encode())
