"""Real tools servers, and what agents, the gateway and an operator do with them."""

import json
import re
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from consumer.embedded.directories import set_owner, unprivileged_account
from consumer.embedded.supervise import free_port
from demo.services import Service, command, environment
from tests.support.installation import Installation
from tests.support.paperclip_company import Json, PaperclipCompany, eventually

SECRET = "a-shared-secret-of-the-end-to-end-tests"
DOCS = Path(__file__).parents[2] / "docs" / "agents.md"


class Tools:
    """A running `paperclip-memory tools`."""

    def __init__(self, url: str, metrics: str) -> None:
        self.url = url
        self._metrics = metrics

    def client(self, key: str, run: str | None = None) -> httpx.Client:
        """What an agent calls with."""
        headers = {"Authorization": f"Bearer {key}"} | ({"X-Paperclip-Run-Id": run} if run else {})
        return httpx.Client(base_url=self.url, headers=headers, timeout=30)

    def count(self, name: str, **labels: str) -> float:
        """The sum of a counter's samples that have these labels."""
        from prometheus_client.parser import text_string_to_metric_families

        text = httpx.get(self._metrics, timeout=10).raise_for_status().text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"paperclip_memory_{name}" and labels.items() <= sample.labels.items()
        )

    def hindsight_calls(self) -> float:
        return self.count("upstream_requests_total", upstream="hindsight")


@dataclass
class ToolsInstallation:
    """A installation whose Paperclip is a real one.

    Attributes:
        settings: of every command, names without the prefix.
    """

    base: Installation
    company: PaperclipCompany
    settings: dict[str, str]
    workers: list["ProcessAgent"] = field(default_factory=list)
    gateways: list["GatewaySession"] = field(default_factory=list)

    @contextmanager
    def tools(self, **changes: str) -> Iterator[Tools]:
        """A tools server of its own, as its users start it."""
        port = free_port()
        settings = self.settings | {"TOOLS_PORT": str(port)} | changes
        with Service("tools", settings, self.base.logs / f"tools-{uuid.uuid4().hex[:6]}.log") as server:
            yield Tools(f"http://127.0.0.1:{port}", f"{server.url}/metrics")

    def connect(self, tools: Tools, *options: str, **changes: str) -> tuple[int, str]:
        """Run `connect`; its exit code and what it printed."""
        done = self._run("connect", "--company", self.company.id, *options, TOOLS_URL=tools.url, **changes)
        return done.returncode, done.stdout + done.stderr

    def run(self, *arguments: str, **changes: str) -> str:
        """Run a command of ours; what it printed, whatever its exit code."""
        return self._run(*arguments, **changes).stdout

    def _run(self, *arguments: str, **changes: str) -> "subprocess.CompletedProcess[str]":
        env = environment(self.settings | changes)
        line = [command(), *arguments]
        return subprocess.run(line, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def connection(self) -> Json:
        """The tool connection that is not deleted."""
        listed = self.company.get(f"/api/companies/{self.company.id}/tools/connections")["connections"]
        (found,) = (connection for connection in listed if connection["status"] != "archived")
        return dict(found)

    def gateway(self, run: "AgentRun") -> "GatewaySession":
        """A session of Paperclip's tool gateway for a run."""
        self.gateways.append(GatewaySession(self.company, run.key))
        return self.gateways[-1]

    def close(self) -> None:
        """End the runs that still wait."""
        for worker in self.workers:
            (worker.home / "over").touch()
        for gateway in self.gateways:
            gateway.close()

    def announce(self, run: Json, event: str) -> None:
        """Publish an event of a run, as the relay does."""
        payload = {"runId": run["id"], "agentId": run["agentId"], "issueId": run["contextSnapshot"].get("issueId")}
        envelope = {
            "eventId": str(uuid.uuid4()),
            "eventType": f"agent.run.{event}",
            "entityId": run["id"],
            "entityType": "heartbeat_run",
            "companyId": run["companyId"],
            "payload": payload,
        }
        self.base.publish([envelope])

    def digested(self, bank: str, documents: int) -> None:
        """Wait until Hindsight holds so many documents of a bank, and digests none."""
        eventually(
            f"{documents} documents are digested",
            lambda: len(self.base.documents(bank)) == documents and self.base.digested(bank),
        )


class AgentRun:
    """A real run of a process agent. Its script waits until it is told to go on, and then writes down what it sees."""

    def __init__(self, installation: ToolsInstallation, agent: "ProcessAgent", issue_title: str) -> None:
        self._tools = installation
        self._agent = agent
        known = {run["id"] for run in installation.company.runs()}
        self.issue = installation.company.issue(issue_title, agent.id, "todo")

        def begun() -> str | None:
            fresh = [
                run["id"]
                for run in installation.company.runs()
                if run["id"] not in known and run["agentId"] == agent.id
            ]
            return next((id_ for id_ in fresh if (agent.home / f"{id_}.env").exists()), None)

        self.id: str = eventually("the run has begun", begun)
        self.run: Json = installation.company.get(f"/api/heartbeat-runs/{self.id}")

    @property
    def key(self) -> str:
        """The run's own token, as its process sees it."""
        return (self._agent.home / f"{self.id}.env").read_text().strip()

    def recalled(self) -> None:
        """Announce the run's start, and wait until the worker has recalled for it."""
        self._tools.announce(self.run, "started")
        eventually(
            "it is recalled for",
            lambda: any(key == self.id.encode() for key, _ in self._tools.base.read("recalls")),
        )

    def go(self, script: str) -> str:
        """Let the run's process do this and end; what it printed. Its issue is done: nothing wakes the agent again."""
        self._tools.company.patch(f"/api/issues/{self.issue}", status="done")
        told, out = (self._agent.home / f"{self.id}.{kind}" for kind in ("go", "out"))
        told.with_suffix(".new").write_text(script)
        set_owner(told.with_suffix(".new"), unprivileged_account())
        told.with_suffix(".new").rename(told)
        ended = ("succeeded", "failed", "cancelled")
        eventually(
            "the run has ended",
            lambda: self._tools.company.get(f"/api/heartbeat-runs/{self.id}")["status"] in ended,
        )
        return out.read_text()


class ProcessAgent:
    """A process agent."""

    def __init__(self, installation: ToolsInstallation, name: str) -> None:
        self.home = installation.company.paperclip.home / f"agent-{uuid.uuid4().hex[:8]}"
        self.home.mkdir()
        set_owner(self.home, unprivileged_account())
        home = self.home
        self.id = installation.company.agent(
            name,
            f'echo "$PAPERCLIP_API_KEY" > {home}/new.$PAPERCLIP_RUN_ID\n'
            f"mv {home}/new.$PAPERCLIP_RUN_ID {home}/$PAPERCLIP_RUN_ID.env\n"
            f"while [ ! -f {home}/$PAPERCLIP_RUN_ID.go ]; do sleep 0.05; [ -f {home}/over ] && exit; done\n"
            f". {home}/$PAPERCLIP_RUN_ID.go > {home}/$PAPERCLIP_RUN_ID.out 2>&1\n",
        )
        installation.workers.append(self)
        self.key = installation.company.key(self.id)
        self.bank = installation.company.bank(self.id)


class GatewaySession:
    """A session of Paperclip's tool gateway, as an agent in a run has it."""

    def __init__(self, company: PaperclipCompany, run_key: str) -> None:
        self._client = httpx.Client(base_url=f"{company.paperclip.url}/api/tool-gateway", timeout=30)
        headers = {"Authorization": f"Bearer {run_key}"}
        session = self._client.post("/sessions", json={}, headers=headers).raise_for_status().json()
        self._client.headers["x-paperclip-tool-gateway-token"] = session["token"]

    def close(self) -> None:
        self._client.close()

    def tools(self) -> dict[str, str]:
        """The gateway's names of the tools, by ours."""
        listed = self._client.get("/tools").raise_for_status().json()
        return {tool["name"].rpartition(":")[2].replace("-", "_"): tool["name"] for tool in listed}

    def call(self, name: str, parameters: Any) -> str:
        """What a tool answers, as the agent gets it."""
        body = {"tool": self.tools()[name], "parameters": parameters}
        sent = json.dumps(body)  # in ASCII, as half an emoji leaves JavaScript too
        reply = self._client.post("/tools/call", content=sent, headers={"content-type": "application/json"})
        assert reply.status_code == 200, reply.text
        return str(reply.json()["result"]["content"])


CLAUDE = """\
#!/usr/bin/env node
import { readFileSync, writeFileSync } from "node:fs";
const file = process.argv[process.argv.indexOf("--mcp-config") + 1];
const seen = {};
for (const [name, server] of Object.entries(JSON.parse(readFileSync(file)).mcpServers)) {
  const ask = async (method, params) => (await fetch(server.url, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream", ...server.headers },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
  })).json();
  const tools = (await ask("tools/list", {})).result.tools;
  const retain = tools.find((tool) => tool.name.endsWith("retain"));
  if (!retain) continue; // newer releases also give Paperclip's own tools
  const said = await ask("tools/call", { name: retain.name, arguments: { content: "Claude was here." } });
  seen[name] = { tools: tools.map((tool) => tool.name), said: said.result.content[0].text };
}
writeFileSync(new URL("seen.json", import.meta.url), JSON.stringify(seen));
console.log(JSON.stringify({ type: "result", subtype: "success", session_id: "s", result: "done", is_error: false }));
"""
"""In the place of Claude Code: it calls what Paperclip's adapter gives it."""


class Claude:
    """An agent of Paperclip's `claude_local` adapter, with a stand-in for the model and its command."""

    def __init__(self, installation: ToolsInstallation) -> None:
        home = installation.company.paperclip.home / f"claude-{uuid.uuid4().hex[:8]}"
        home.mkdir()
        command_file = home / "claude.mjs"
        command_file.write_text(CLAUDE)
        command_file.chmod(0o755)
        for path in (home, command_file):
            set_owner(path, unprivileged_account())
        self._seen = home / "seen.json"
        self._office = installation.company
        agents = f"/api/companies/{installation.company.id}/agents"
        adapter = {"command": str(command_file), "cwd": str(home), "engine": "cli"}  # newer releases default to ACP
        body = {"name": "Claude", "role": "engineer", "adapterType": "claude_local", "adapterConfig": adapter}
        self.id = str(installation.company.post(agents, **body)["id"])
        self.bank = installation.company.bank(self.id)

    def work(self, title: str) -> Json:
        """Give it an issue; what it saw of each MCP server that it was given."""
        self._office.issue(title, self.id, "todo")
        return dict(
            eventually("it has worked", lambda: self._seen.exists() and json.loads(self._seen.read_text() or "null"))
        )


def documented_script(url: str) -> str:
    """The shell block of docs/agents.md, with the URL that is the reader's to set."""
    (block,) = re.findall(r"```sh\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    return f"export PAPERCLIP_MEMORY_URL={url}\n{block}"
