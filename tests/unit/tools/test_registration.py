"""`connect` against a Paperclip that keeps secrets, connections and installs as the real one does."""

import json
from typing import Any

import pytest

from consumer.errors import Permanent, Transient, Upstream
from consumer.http.rest_client import RestClient
from consumer.http.transport import Request, Response
from consumer.tools.registration import FORWARDED, Connect, Wanted
from tests.unit.tools.office import COMPANY, SECRET

SECRET_ID = "e0000000-0000-4000-8000-000000000001"
CONNECTION_ID = "f0000000-0000-4000-8000-000000000001"
TOOLS = "http://memory:8765"


class Paperclip:
    """Keeps what it is told; `served` is the secret that the tools were started with."""

    def __init__(self, served: str = SECRET) -> None:
        self.served = served
        self.secrets: dict[str, dict[str, Any]] = {}
        self.connections: dict[str, dict[str, Any]] = {}
        self.installs: list[dict[str, Any]] = []
        self.changes: list[str] = []
        self.status: int | None = None
        self.unreachable = False

    async def send(self, request: Request) -> Response:  # noqa: PLR0911 - one for each route
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
            case "POST", ["tools", "connections"]:
                self.connections[CONNECTION_ID] = {"id": CONNECTION_ID, "status": "draft", **body}
                return _json(201, self.connections[CONNECTION_ID])
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
    done = await Connect(rest, Wanted(COMPANY, url, SECRET), said.append, dry_run=dry_run).run()
    assert SECRET not in "".join(said)
    return done, said


async def test_the_first_time() -> None:
    paperclip = Paperclip()
    done, said = await connect(paperclip)
    assert done
    assert said == [
        "secret paperclip-memory-tools: created",
        "connection paperclip-memory: created (http://memory:8765/mcp)",
        "installed for: company",
        "tools: hindsight_recall active, hindsight_retain active; health ok",
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


async def test_again_changes_nothing() -> None:
    paperclip = Paperclip()
    await connect(paperclip)
    paperclip.changes.clear()
    done, said = await connect(paperclip)
    assert done
    assert paperclip.changes == []
    assert said == [
        "secret paperclip-memory-tools: is there",
        "connection paperclip-memory: is as it should be (http://memory:8765/mcp)",
        "installed for: company (1)",
        "tools: hindsight_recall active, hindsight_retain active; health ok",
    ]


async def test_what_has_changed_is_put_right() -> None:
    paperclip = Paperclip()
    await connect(paperclip)
    paperclip.connections[CONNECTION_ID]["enabled"] = False
    done, said = await connect(paperclip, url="http://elsewhere:1")
    assert done
    assert said[1] == "connection paperclip-memory: updated (enabled, config; http://elsewhere:1/mcp)"
    assert paperclip.connections[CONNECTION_ID]["config"]["url"] == "http://elsewhere:1/mcp"
    assert paperclip.connections[CONNECTION_ID]["enabled"]


async def test_who_has_the_tools_is_the_operators_choice() -> None:
    paperclip = Paperclip()
    await connect(paperclip)
    chosen = [{"targetType": "agent", "targetId": "a"}, {"targetType": "agent", "targetId": "b"}]
    paperclip.installs = chosen
    _, said = await connect(paperclip)
    assert paperclip.installs == chosen
    assert "installed for: agent (2)" in said


async def test_a_dry_run_changes_nothing() -> None:
    paperclip = Paperclip()
    done, said = await connect(paperclip, dry_run=True)
    assert done
    assert said == [
        "secret paperclip-memory-tools: would be created",
        "connection paperclip-memory: would be created (http://memory:8765/mcp)",
        "would be installed for: company",
        "would refresh the catalog of tools",
    ]
    await connect(paperclip)
    before = json.dumps([paperclip.secrets, paperclip.connections, paperclip.installs])
    paperclip.changes.clear()
    _, said = await connect(paperclip, dry_run=True, url="http://elsewhere:1")
    assert "connection paperclip-memory: would be updated (config; http://elsewhere:1/mcp)" in said
    assert paperclip.changes == []
    assert json.dumps([paperclip.secrets, paperclip.connections, paperclip.installs]) == before


async def test_an_old_secret_is_replaced() -> None:
    paperclip = Paperclip()
    await connect(paperclip)
    paperclip.secrets[SECRET_ID]["value"] = "the-secret-of-last-year"
    done, said = await connect(paperclip)
    assert done
    assert "secret paperclip-memory-tools: was another one, replaced" in said
    assert paperclip.secrets[SECRET_ID]["value"] == SECRET


async def test_tools_that_were_started_with_another_secret() -> None:
    done, said = await connect(Paperclip(served="another-secret-altogether"))
    assert not done
    assert said[-1].startswith("✗ the tools at http://memory:8765 refuse the secret")


async def test_tools_that_cannot_be_reached() -> None:
    paperclip = Paperclip()
    paperclip.unreachable = True
    for _ in range(2):
        done, said = await connect(paperclip)
        assert not done
        assert said[-1].startswith("✗ Paperclip cannot list the tools at http://memory:8765: fetch failed; ")
    assert not any("rotate" in change for change in paperclip.changes)


async def test_deleted_and_archived_ones_are_made_anew() -> None:
    paperclip = Paperclip()
    paperclip.secrets["old"] = {"id": "old", "name": "paperclip-memory-tools", "status": "deleted", "value": "x"}
    paperclip.connections["old"] = {"id": "old", "name": "paperclip-memory", "status": "archived"}
    done, said = await connect(paperclip)
    assert done
    assert "created" in said[0]
    assert "created" in said[1]


async def test_a_key_that_may_not() -> None:
    paperclip = Paperclip()
    paperclip.status = 403
    with pytest.raises(Permanent, match="a person who may manage this company's tools"):
        await connect(paperclip)


async def test_another_server_at_paperclips_url() -> None:
    paperclip = Paperclip()
    paperclip.status = 200
    with pytest.raises(Transient):
        await connect(paperclip)


def _json(status: int, body: object) -> Response:
    return Response(status, {}, json.dumps(body).encode())
