"""A company at work on a real Paperclip: agents that run shell scripts, issues, comments, and a plugin that listens."""

import json
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from consumer.embedded.directories import set_owner, unprivileged_account
from tests.support.paperclip import Packages, Paperclip, Person, sign_up

Json = dict[str, Any]

SAY = """\
say() {
  SAID="$1" node -e '
    const e = process.env, h = {Authorization: "Bearer " + e.PAPERCLIP_API_KEY, "Content-Type": "application/json"};
    const api = e.PAPERCLIP_API_URL + "/api/";
    fetch(api + "heartbeat-runs/" + e.PAPERCLIP_RUN_ID, {headers: h}).then((r) => r.json()).then((run) =>
      fetch(api + "issues/" + run.contextSnapshot.issueId + "/comments", {
        method: "POST", headers: {...h, "X-Paperclip-Run-Id": e.PAPERCLIP_RUN_ID}, body: JSON.stringify({body: e.SAID}),
      })).then((r) => process.exit(r.ok ? 0 : 9));'
}
"""
"""For agents' scripts: `say TEXT` posts a comment on the run's issue. A process has no issue in its environment."""


class PaperclipCompany:
    """One company. All calls raise `httpx.HTTPStatusError` where Paperclip refuses."""

    def __init__(self, paperclip: Paperclip, name: str = "Acme Robotics") -> None:
        self.paperclip = paperclip
        self._client = httpx.Client(base_url=paperclip.url, headers=paperclip.owner.headers, timeout=60)
        self.id: str = self.post("/api/companies", name=name)["id"]

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, **query: str | int) -> Any:
        return self._client.get(path, params=query).raise_for_status().json()

    def post(self, path: str, **body: Any) -> Any:
        return self._client.post(path, json=body).raise_for_status().json()

    def patch(self, path: str, **body: Any) -> Any:
        return self._client.patch(path, json=body).raise_for_status().json()

    def agent(self, name: str, script: str = "exit 0") -> str:
        """Hire an agent whose runs are this shell script; its id."""
        adapter = {"command": "/bin/sh", "args": ["-c", script]}
        path = f"/api/companies/{self.id}/agents"
        return str(self.post(path, name=name, role="engineer", adapterType="process", adapterConfig=adapter)["id"])

    def key(self, agent: str) -> str:
        return str(self.post(f"/api/agents/{agent}/keys", name="test")["token"])

    def issue(self, title: str, agent: str | None = None, status: str = "backlog", description: str = "") -> str:
        """Open an issue; its id. Status `todo` wakes the assignee, `backlog` does not."""
        path = f"/api/companies/{self.id}/issues"
        body = {"title": title, "description": description, "status": status, "assigneeAgentId": agent}
        return str(self.post(path, **body)["id"])

    def assign(self, issue: str, agent: str | None) -> None:
        self.patch(f"/api/issues/{issue}", assigneeAgentId=agent)

    def pause(self, agent: str) -> None:
        """Comments on the agent's issues wake it no more."""
        self.post(f"/api/agents/{agent}/pause")

    def run_of(self, agent: str, issue: str) -> str | None:
        """A run of the agent's on this issue; None if there is none yet."""
        runs = [run for run in self.runs() if run["agentId"] == agent and run["contextSnapshot"]["issueId"] == issue]
        return runs[0]["id"] if runs else None

    def say(self, issue: str, body: str, key: str | None = None, run: str | None = None) -> str:
        """Post a comment, as an agent if its key and a run of it on this issue are given; its id."""
        headers = {"Authorization": f"Bearer {key}", "X-Paperclip-Run-Id": str(run)} if key else {}
        reply = self._client.post(f"/api/issues/{issue}/comments", json={"body": body}, headers=headers)
        return str(reply.raise_for_status().json()["id"])

    def say_half_an_emoji(self, issue: str, tail: str) -> str:
        """Post a comment whose 120th UTF-16 unit splits an emoji: answered with 500, and stored; its id."""
        body = "x" * 119 + "\N{GRINNING FACE} " + tail
        reply = self._client.post(f"/api/issues/{issue}/comments", json={"body": body})
        assert reply.status_code == 500, f"Paperclip has learnt to announce half an emoji: {reply.status_code}"
        return str(next(each["id"] for each in self.comments(issue) if each["body"] == body))

    def delete(self, issue: str, comment: str, key: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client.delete(f"/api/issues/{issue}/comments/{comment}", headers=headers).raise_for_status()

    def cancel(self, issue: str, comment: str) -> None:
        """Cancel a comment that is queued behind a run of the issue: its row goes."""
        self._client.delete(f"/api/issues/{issue}/comments/{comment}?mode=cancel").raise_for_status()

    def comments(self, issue: str) -> list[Json]:
        return list(self.get(f"/api/issues/{issue}/comments", order="asc"))

    def runs(self) -> list[Json]:
        return list(self.get(f"/api/companies/{self.id}/heartbeat-runs", limit=1000, summary="true"))

    def delete_plugin(self, plugin: str) -> None:
        self._client.delete(f"/api/plugins/{plugin}").raise_for_status()

    @property
    def settings(self) -> dict[str, str]:
        """What our processes need to follow this Paperclip as its owner; names without the prefix."""
        key = self.paperclip.owner.key
        return {"PAPERCLIP_API_URL": self.paperclip.url} | ({"PAPERCLIP_API_KEY": key} if key else {})

    def member(self, role: str) -> Person:
        """A new person who joins the company in a role: `admin`, `operator` or `viewer`. Needs `authenticated`."""
        invite = self.post(f"/api/companies/{self.id}/invites", allowedJoinTypes="human", humanRole=role)
        member = sign_up(self.paperclip.url, f"{role.title()} {uuid.uuid4().hex[:6]}")
        path = f"{self.paperclip.url}/api/invites/{invite['token']}/accept"
        httpx.post(path, json={"requestType": "human"}, headers=member.headers, timeout=60).raise_for_status()
        return member

    def bank(self, agent: str) -> str:
        return f"paperclip::{self.id}::{agent}"


MANIFEST = {
    "apiVersion": 1,
    "version": "1.0.0",
    "displayName": "Listener",
    "description": "Writes down every event that it is sent.",
    "author": "paperclip-memory",
    "categories": ["automation"],
    "capabilities": ["events.subscribe"],
    "entrypoints": {"worker": "worker.js"},
}
TYPES = [
    "agent.run.started",
    "agent.run.finished",
    "agent.run.failed",
    "agent.run.cancelled",
    "issue.comment.created",
]
WORKER = """\
import { appendFileSync } from "node:fs";
import { definePlugin, runWorker } from "@paperclipai/plugin-sdk";
const plugin = definePlugin({
  async setup(ctx) {
    for (const type of %s) {
      ctx.events.on(type, async (event) => appendFileSync(%s, JSON.stringify(event) + "\\n"));
    }
  },
});
export default plugin;
runWorker(plugin, import.meta.url);
"""


class ListenerPlugin:
    """A plugin in Paperclip that writes down what its event bus sends, under any package's name."""

    def __init__(
        self,
        company: PaperclipCompany,
        packages: Packages,
        name: str = "paperclip-plugin-listener",
        settings: Mapping[str, Json] | None = None,
    ) -> None:
        home = company.paperclip.home / name.rpartition("/")[2]
        home.mkdir()
        self._heard = home / "heard.jsonl"
        (home / "package.json").write_text(
            json.dumps(
                {
                    "name": name,
                    "version": "1.0.0",
                    "type": "module",
                    "paperclipPlugin": {"manifest": "manifest.js", "worker": "worker.js"},
                }
            )
        )
        schema = {"type": "object", "properties": settings or {}, "additionalProperties": True}
        manifest = MANIFEST | {"id": f"test.{home.name}", "instanceConfigSchema": schema}
        (home / "manifest.js").write_text(f"export default {json.dumps(manifest)};\n")
        (home / "worker.js").write_text(WORKER % (json.dumps(TYPES), json.dumps(str(self._heard))))
        (home / "node_modules").symlink_to(packages.path / "node_modules")
        for path in (home, *home.iterdir()):
            if not path.is_symlink():
                set_owner(path, unprivileged_account())
        self.plugin = company.post("/api/plugins/install", packageName=str(home), isLocalPath=True)
        self._home = home

    def heard(self) -> list[Json]:
        if not self._heard.exists():
            return []
        return [json.loads(line) for line in self._heard.read_text().splitlines() if line.endswith("}")]

    def remove(self, company: PaperclipCompany) -> None:
        """Take it out of Paperclip."""
        company.delete_plugin(self.plugin["id"])
        shutil.rmtree(self._home)


@contextmanager
def paperclip_company(paperclip: Paperclip, name: str = "Acme Robotics") -> Iterator[PaperclipCompany]:
    """A new company; it stays when the block ends, and nobody looks at it again."""
    opened = PaperclipCompany(paperclip, name)
    try:
        yield opened
    finally:
        opened.close()


def eventually(what: str, look: Any, deadline: float = 60.0, every: float = 0.1) -> Any:
    """What `look` finds, as soon as it finds something; fails with its name."""
    end = time.monotonic() + deadline
    while not (found := look()):
        assert time.monotonic() < end, f"not within {deadline:.0f} s: {what}"
        time.sleep(every)
    return found
