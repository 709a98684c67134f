"""Real Paperclip, Hindsight and Apache Kafka, and real runs: what agents recall and save, by gateway and by REST."""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import httpx2
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from consumer.embedded.hindsight import Hindsight
from tests.support.installation import Installation
from tests.support.paperclip import Paperclip
from tests.support.paperclip_company import eventually, paperclip_company
from tests.support.tools_installation import (
    SECRET,
    AgentRun,
    Claude,
    ProcessAgent,
    Tools,
    ToolsInstallation,
    documented_script,
)

pytestmark = [pytest.mark.e2e, pytest.mark.every_paperclip, pytest.mark.real_kafka, pytest.mark.timeout(300)]

NONE = "No relevant memories found."


@pytest.fixture
def installation(installation: Installation, paperclip: Paperclip) -> Iterator[ToolsInstallation]:
    """A new company on the real Paperclip, with topics of its own."""
    with paperclip_company(paperclip) as opened:
        own = {**opened.settings, "TOOLS_SHARED_SECRET": SECRET, "TOOLS_IDENTITY_TTL": "1"}
        made = ToolsInstallation(installation, opened, installation.settings | own)
        yield made
        made.close()


def answers(text: str) -> list[dict[str, Any]]:
    """The JSON objects that a script printed one after another."""
    decoder, found, position = json.JSONDecoder(), [], 0
    while position < len(text):
        value, position = decoder.raw_decode(text, position)
        found.append(value)
    return found


def test_the_gateway_lists_and_calls_both_tools(installation: ToolsInstallation) -> None:
    ada = ProcessAgent(installation, "Ada")
    with installation.tools() as tools:
        code, said = installation.connect(tools, "--dry-run")
        assert (code, "would be created" in said) == (0, True)
        code, said = installation.connect(tools)
        assert (code, "health ok" in said) == (0, True), said
        assert SECRET not in said
        code, said = installation.connect(tools)
        assert (code, "is as it should be" in said) == (0, True), said
        assert installation.connection()["healthStatus"] == "ok"

        run = AgentRun(installation, ada, "Plan the release train")
        gateway = installation.gateway(run)
        assert set(gateway.tools()) == {"hindsight_recall", "hindsight_retain"}
        assert gateway.call("hindsight_recall", {"query": "release train"}) == NONE
        content = "The release train leaves on Tuesdays at noon."
        assert gateway.call("hindsight_retain", {"content": content}) == "Memory saved."
        with tools.client(run.key, run.id) as client:  # the same run, the same text: the same document
            assert client.post("/v1/tools/retain", json={"content": content}).json()["content"] == "Memory saved."
        installation.digested(ada.bank, 1)
        (document,) = installation.base.documents(ada.bank).values()
        identity = {"agentId": ada.id, "companyId": installation.company.id, "runId": run.id}
        assert document["document_metadata"] == identity
        assert content in gateway.call("hindsight_recall", {"query": "release train", "fresh": True})

        # Whatever an agent gives as arguments, the connection stays up for all others.
        for arguments, words in (
            ({"query": "x", "bank": "paperclip::other"}, "Unknown argument 'bank'"),
            ({"query": ["x"]}, "must be text"),
            (["x"], "is missing"),
            ({"query": "x" * 1_100_000}, "larger than"),
        ):
            assert words in gateway.call("hindsight_recall", arguments)
        half = "We ship \ud83d"
        assert "Unknown argument" in gateway.call("hindsight_retain", {"content": half, "agentId": "x"})
        assert installation.connection()["healthStatus"] == "ok"
        run.go("exit 0")


def remembers_through_the_gateway(installation: ToolsInstallation, agent: ProcessAgent, title: str) -> None:
    """A real run calls both tools through Paperclip's gateway, and finds what it saved."""
    run = AgentRun(installation, agent, title)
    gateway = installation.gateway(run)
    saved = len(installation.base.documents(agent.bank))
    content = f"{title}: the answer is written on the wall."
    assert gateway.call("hindsight_retain", {"content": content}) == "Memory saved."
    installation.digested(agent.bank, saved + 1)
    assert content in gateway.call("hindsight_recall", {"query": title, "fresh": True})
    assert installation.connection()["healthStatus"] == "ok"
    run.go("exit 0")


def test_a_connection_that_an_earlier_connect_made_is_repaired(installation: ToolsInstallation) -> None:
    """It named the secret for the listing alone; newer releases then call the tools without one."""
    ada, company = ProcessAgent(installation, "Ada"), installation.company
    secret = company.post(f"/api/companies/{company.id}/secrets", name="paperclip-memory-tools", value=SECRET)["id"]
    header = {"name": "authorization", "placement": "header", "key": "Authorization", "prefix": "Bearer "}
    with installation.tools() as tools:
        forward = ["company_id", "agent_id", "run_id", "issue_id"]
        made = company.post(
            f"/api/companies/{company.id}/tools/connections",
            name="paperclip-memory",
            applicationName="paperclip-memory",
            transport="mcp_remote",
            authKind="api_key",
            status="active",
            enabled=True,
            config={"url": f"{tools.url}/mcp", "headerPolicy": {"metadata": {"forward": forward}}},
            credentialRefs=[header | {"secretId": secret}],
        )
        company.post(f"/api/tool-connections/{made['id']}/catalog/refresh")
        for _ in range(2):
            code, said = installation.connect(tools)
            assert (code, "call as Ada: works" in said) == (0, True), said
            remembers_through_the_gateway(installation, ada, "Where is the answer?")


def test_a_connection_that_was_deleted_in_paperclip_works_again_after_connect(installation: ToolsInstallation) -> None:
    ada, company = ProcessAgent(installation, "Ada"), installation.company
    with installation.tools() as tools:
        assert installation.connect(tools)[0] == 0
        company._client.delete(f"/api/tool-connections/{installation.connection()['id']}").raise_for_status()
        code, said = installation.connect(tools)
        assert (code, "connection paperclip-memory: updated" in said) == (0, True), said
        remembers_through_the_gateway(installation, ada, "What was deleted?")


def test_check_and_status_know_a_connection_in_error(installation: ToolsInstallation) -> None:
    ProcessAgent(installation, "Ada")
    with installation.tools(TOOLS_SHARED_SECRET="another-secret-than-that-of-connect") as tools:
        code, said = installation.connect(tools)
        assert (code, "refuse the secret" in said) == (1, True), said
    checked = installation.run("check", RELAY_COMPANIES=installation.company.id)
    assert f"! tools of company {installation.company.id}: agents do not see the tools: " in checked
    assert f"run `paperclip-memory connect --company {installation.company.id}`" in checked
    status = json.loads(installation.run("status", "--json"))
    assert "in state 'error'" in status["paperclip"]["tool_problems"][installation.company.id]


def test_paperclip_hands_the_tools_to_claude(installation: ToolsInstallation) -> None:
    claude = Claude(installation)
    with installation.tools() as tools:
        assert installation.connect(tools)[0] == 0
        (seen,) = claude.work("Say that you were here").values()
        # Newer releases offer tools of their own on the same server.
        assert {name.rpartition(":")[2] for name in seen["tools"]} >= {"hindsight-recall", "hindsight-retain"}
        assert seen["said"] == "Memory saved."
        # Its issue is not done, so Paperclip may have started it again already: one document of each run.
        documents = eventually("what it said is held", lambda: installation.base.documents(claude.bank)).values()
        said_in = [document["document_metadata"]["runId"] for document in documents]
        assert len(set(said_in)) == len(said_in)
        assert set(said_in) <= {run["id"] for run in installation.company.runs() if run["agentId"] == claude.id}


def test_the_gateway_after_the_secret_was_changed(installation: ToolsInstallation) -> None:
    new = {"TOOLS_SHARED_SECRET": "the-secret-of-the-next-quarter"}
    with installation.tools() as tools:
        assert installation.connect(tools)[0] == 0
    with installation.tools(**new) as tools:
        code, said = installation.connect(tools)
        assert (code, "refuse the secret" in said) == (1, True), said
        assert installation.connection()["healthStatus"] == "error"
        code, said = installation.connect(tools, **new)
        assert (code, "was another one, replaced" in said) == (0, True), said
        assert installation.connection()["healthStatus"] == "ok"


def test_runs_of_process_agents_remember_by_rest(installation: ToolsInstallation, paperclip: Paperclip) -> None:
    """The script of the docs, in a real run: what was recalled at its start, and a decision for later runs."""
    ada, ben = ProcessAgent(installation, "Ada"), ProcessAgent(installation, "Ben")
    with (
        installation.tools() as tools,
        installation.tools() as other_tools,
        installation.base.worker(**installation.company.settings),
    ):
        with tools.client(ada.key) as client:
            seed = "How we deploy: the pipeline is started by hand."
            assert client.post("/v1/tools/retain", json={"content": seed}).json()["content"] == "Memory saved."
        installation.digested(ada.bank, 1)

        first = AgentRun(installation, ada, "How do we deploy?")
        first.recalled()
        for each in (tools, other_tools):
            with each.client(ada.key) as client:
                client_get(client, first.id)
        calls = tools.hindsight_calls()
        own, fresh, saved = answers(first.go(documented_script(tools.url)))
        assert own["outcome"] == "cached"
        assert "started by hand" in own["content"]
        assert fresh["outcome"] == "live"
        assert saved["content"] == "Memory saved."
        assert tools.hindsight_calls() == calls + 2  # the fresh one and the save
        installation.digested(ada.bank, 2)
        assert installation.base.documents(ada.bank)[saved["documentId"]]["document_metadata"] == {
            "agentId": ada.id,
            "companyId": installation.company.id,
            "runId": first.id,
            "issueId": first.issue,
        }

        installation.announce(first.run, "finished")
        second = AgentRun(installation, ada, "When do deployments happen?")
        second.recalled()
        with other_tools.client(second.key, second.id) as client:
            client_get(client, second.id)
            assert "on Thursdays, after the backup" in client.get(f"/v1/runs/{second.id}/memories").json()["content"]
            assert client.get(f"/v1/runs/{first.id}/memories").status_code == 401  # the header names another run
        second.go("exit 0")

        # Not another agent, and not another company.
        theirs = AgentRun(installation, ben, "When do deployments happen?")
        theirs.recalled()
        with paperclip_company(paperclip, "Elsewhere") as elsewhere:
            eve = ProcessAgent(ToolsInstallation(installation.base, elsewhere, installation.settings), "Eve")
            for key, run in ((theirs.key, theirs.id), (ben.key, None), (eve.key, None)):
                with tools.client(key, run) as client:
                    for fresh_too in (False, True):
                        asked = {"query": "When do deployments happen?", "fresh": fresh_too}
                        assert client.post("/v1/tools/recall", json=asked).json()["content"] == NONE
                    for run_of_ada in (first.id, second.id):
                        refusal = client.get(f"/v1/runs/{run_of_ada}/memories")
                        assert refusal.status_code == 401
                        assert refusal.json()["detail"]
        theirs.go("exit 0")


def client_get(client: httpx.Client, run: str) -> None:
    """Wait until a tools server's map has the run."""
    deadline = time.monotonic() + 30
    while client.get(f"/v1/runs/{run}/memories").json().get("outcome") != "cached":
        assert time.monotonic() < deadline, "the map did not follow"


def test_the_official_client_with_a_runs_own_key(installation: ToolsInstallation) -> None:
    ada = ProcessAgent(installation, "Ada")
    with installation.tools() as tools:
        run = AgentRun(installation, ada, "Name the mascot")

        async def talk() -> list[str]:
            headers = {"Authorization": f"Bearer {run.key}", "X-Paperclip-Run-Id": run.id}
            async with (
                httpx2.AsyncClient(headers=headers) as http,
                streamable_http_client(f"{tools.url}/mcp", http_client=http) as (read, write),
                ClientSession(read, write) as session,
            ):
                await session.initialize()
                listed = (await session.list_tools()).tools
                assert [tool.name for tool in listed] == ["hindsight_recall", "hindsight_retain"]
                results = [
                    await session.call_tool("hindsight_retain", {"content": "The mascot is a heron."}),
                    await session.call_tool("hindsight_recall", {"query": "mascot"}),
                ]
                return [getattr(each.content[0], "text", "") for each in results]

        saved, _ = asyncio.run(talk())
        assert saved == "Memory saved."
        installation.digested(ada.bank, 1)
        assert "a heron" in asyncio.run(talk())[1]
        run.go("exit 0")


def test_forged_calls_get_nothing(installation: ToolsInstallation, paperclip: Paperclip) -> None:
    """Against the real Paperclip: a server that takes every key that it does not know for its administrator's."""
    ada, ben = ProcessAgent(installation, "Ada"), ProcessAgent(installation, "Ben")
    with installation.tools() as tools, paperclip_company(paperclip, "Elsewhere") as elsewhere:
        eve = ProcessAgent(ToolsInstallation(installation.base, elsewhere, installation.settings), "Eve")
        secret_fact = "The vault opens with a left turn."
        with tools.client(ada.key) as client:
            assert client.post("/v1/tools/retain", json={"content": secret_fact}).status_code == 200
        installation.digested(ada.bank, 1)
        run, bens_run = AgentRun(installation, ada, "Open the vault"), AgentRun(installation, ben, "Paint the door")
        claims = _claims(run.key)
        revoked = installation.company.post(f"/api/agents/{ada.id}/keys", name="revoked")
        installation.company._client.delete(f"/api/agents/{ada.id}/keys/{revoked['id']}").raise_for_status()

        good = [
            {"Authorization": f"Bearer {ada.key}"},
            {"Authorization": f"Bearer {run.key}", "X-Paperclip-Run-Id": run.id},
            {"Authorization": f"Bearer {_signed(paperclip, claims)}", "X-Paperclip-Run-Id": run.id},
            _gateway(installation, ada, run.id),
        ]
        for headers in good:
            assert secret_fact in str(_recall(tools, headers))

        nobody, unknown = "b0000000-0000-4000-8000-0000000000ff", "c0000000-0000-4000-8000-0000000000ff"
        ada_key = {"Authorization": f"Bearer {ada.key}"}
        forged = {
            "no token": {},
            "no token, all headers": _gateway(installation, ada, run.id) | {"Authorization": ""},
            "unknown key": {"Authorization": "Bearer pcp_nobody"},
            "unknown key, all headers": _gateway(installation, ada, run.id) | {"Authorization": "Bearer pcp_nobody"},
            "wrong secret": _gateway(installation, ada, run.id) | {"Authorization": f"Bearer {SECRET}x"},
            "secret in capitals": _gateway(installation, ada, run.id) | {"Authorization": f"Bearer {SECRET.upper()}"},
            "secret and no agent": {"Authorization": f"Bearer {SECRET}"},
            "revoked key": {"Authorization": f"Bearer {revoked['token']}"},
            "expired token": {"Authorization": f"Bearer {_signed(paperclip, claims | {'exp': claims['iat'] - 60})}"},
            "tampered token": {"Authorization": f"Bearer {run.key[:-6]}AAAAAA"},
            "token of no algorithm": {"Authorization": f"Bearer {_part({'alg': 'none'})}.{_part(claims)}."},
            "token for another agent": {"Authorization": f"Bearer {_resigned(claims | {'sub': ada.id}, b'guess')}"},
            "basic": {"Authorization": "Basic " + base64.b64encode(f"x:{ada.key}".encode()).decode()},
            "another agent's run": {"Authorization": f"Bearer {ben.key}", "X-Paperclip-Run-Id": run.id},
            "another agent's run by token": {"Authorization": f"Bearer {bens_run.key}", "X-Paperclip-Run-Id": run.id},
            "another company's agent": {"Authorization": f"Bearer {eve.key}", "X-Paperclip-Run-Id": run.id},
            "a run that is none": ada_key | {"X-Paperclip-Run-Id": nobody},
            "a run that is no id": ada_key | {"X-Paperclip-Run-Id": "latest"},
            "another agent in the headers": {"Authorization": f"Bearer {ben.key}", "x-paperclip-agent-id": ada.id},
            "in capitals": {"Authorization": f"Bearer {ben.key}", "X-PAPERCLIP-AGENT-ID": ada.id.upper()},
            "with underscores": {"Authorization": f"Bearer {ben.key}", "X_Paperclip_Agent_Id": ada.id},
            "another company in the headers": ada_key | {"x-paperclip-company-id": unknown},
        }
        before = tools.count("tool_calls_total", outcome="denied")
        asked = tools.hindsight_calls()
        for name, headers in forged.items():
            for answer in (_recall(tools, headers), _retain(tools, headers), _run(tools, headers, run.id)):
                assert answer.get("status") == 401, name
                assert len(answer["detail"].split()) > 4, name
        assert tools.count("tool_calls_total", outcome="denied") == before + 3 * len(forged)
        for extra in ({"bank": ada.bank}, {"agentId": ada.id}, {"companyId": installation.company.id}):
            answer = _recall(tools, {"Authorization": f"Bearer {ben.key}"}, **extra)
            assert answer["status"] == 400
            assert "Unknown argument" in answer["detail"]
        assert tools.hindsight_calls() == asked
        assert len(installation.base.documents(ada.bank)) == 1
        run.go("exit 0")
        bens_run.go("exit 0")


def test_while_hindsight_is_down_the_map_answers(
    installation: ToolsInstallation, hindsight: Hindsight, paperclip: Paperclip
) -> None:
    ada = ProcessAgent(installation, "Ada")
    with installation.tools() as tools, installation.base.worker(**installation.company.settings):
        with tools.client(ada.key) as client:
            client.post("/v1/tools/retain", json={"content": "The boiler is in the attic."})
        installation.digested(ada.bank, 1)
        run = AgentRun(installation, ada, "Find the boiler")
        run.recalled()
        with tools.client(run.key, run.id) as client:
            client_get(client, run.id)
            group = hindsight.server.pid
            os.killpg(group, signal.SIGSTOP)  # it accepts, and never answers
            try:
                with ThreadPoolExecutor(3) as pool:
                    said = [
                        pool.submit(timed, client, "/v1/tools/recall", {"query": "boiler"}),
                        pool.submit(timed, client, "/v1/tools/recall", {"query": "boiler", "fresh": True}),
                        pool.submit(timed, client, "/v1/tools/retain", {"content": "Look in the attic first."}),
                    ]
                    cached, live, saved = (each.result() for each in said)
            finally:
                os.killpg(group, signal.SIGCONT)
            assert "The boiler is in the attic." in cached["content"]
            assert (live["status"], saved["status"]) == (504, 504)
            assert "not searched" in live["detail"]
            assert "not saved" in saved["detail"]
            hindsight.kill()
            try:
                cached = timed(client, "/v1/tools/recall", {"query": "boiler"})
                live = timed(client, "/v1/tools/recall", {"query": "boiler", "fresh": True})
                saved = timed(client, "/v1/tools/retain", {"content": "Bring a torch."})
            finally:
                hindsight.start()
            assert "The boiler is in the attic." in cached["content"]
            assert "Hindsight is not available" in live["detail"]
            assert saved["detail"].startswith("The memory was not saved: Hindsight is not available")
            assert client.post("/v1/tools/retain", json={"content": "Bring a torch."}).status_code == 200
        run.go("exit 0")


def timed(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """An answer, which must come within the 8 s that Paperclip's gateway can wait."""
    started = time.monotonic()
    answer: dict[str, Any] = client.post(path, json=body).json()
    assert time.monotonic() - started < 8
    return answer


def _gateway(installation: ToolsInstallation, agent: ProcessAgent, run: str) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {SECRET}",
        "x-paperclip-company-id": installation.company.id,
        "x-paperclip-agent-id": agent.id,
        "x-paperclip-run-id": run,
    }


def _recall(tools: Tools, headers: dict[str, str], **more: str) -> dict[str, Any]:
    body = {"query": "How does the vault open?", **more}
    return dict(httpx.post(f"{tools.url}/v1/tools/recall", json=body, headers=headers, timeout=30).json())


def _retain(tools: Tools, headers: dict[str, str]) -> dict[str, Any]:
    body = {"content": "poison"}
    return dict(httpx.post(f"{tools.url}/v1/tools/retain", json=body, headers=headers, timeout=30).json())


def _run(tools: Tools, headers: dict[str, str], run: str) -> dict[str, Any]:
    return dict(httpx.get(f"{tools.url}/v1/runs/{run}/memories", headers=headers, timeout=30).json())


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))


def _resigned(claims: dict[str, Any], secret: bytes) -> str:
    signed = f"{_part({'alg': 'HS256', 'typ': 'JWT'})}.{_part(claims)}"
    signature = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def _signed(paperclip: Paperclip, claims: dict[str, Any]) -> str:
    """A token as this Paperclip itself would sign it."""
    env = (paperclip.home / ".paperclip/instances/default/.env").read_text()
    master = re.search(r'^PAPERCLIP_AGENT_JWT_SECRET="?([^"\n]+)', env, re.MULTILINE)
    assert master is not None
    scope = f"jwt:{claims['instance_id']}:{claims['company_id']}"
    key = hmac.new(master[1].encode(), scope.encode(), hashlib.sha256).hexdigest()
    return _resigned(claims, key.encode())
