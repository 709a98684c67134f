"""The tools on a fake Hindsight and a fake Paperclip that knows keys, runs and issues."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from consumer.http.transport import ConnectError, Request, Response
from consumer.memory.policy import MemoryPolicy
from consumer.paperclip.client import PaperclipClient
from consumer.recalls import RecallCache
from consumer.tools.authenticator import Authenticator
from consumer.tools.call_limits import CallLimits
from consumer.tools.credentials import Agent
from consumer.tools.dispatcher import ToolDispatcher
from consumer.tools.results import Tool, ToolOutcome
from consumer.tools.server import listening, serving, tools_app
from consumer.tools.service import MemoryService
from schemas.codec import encode
from schemas.recalls import RecallRecord, RecallStatus
from tests.support.fakes import NOW, FakeHindsight

COMPANY, OTHER_COMPANY = "c0000000-0000-4000-8000-000000000001", "c0000000-0000-4000-8000-000000000002"
ADA, BEN, EVE = (f"a0000000-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))
"""Ada and Ben belong to one company, Eve to another."""
ADAS_RUN, BENS_RUN, EVES_RUN, OLD_RUN = (f"b0000000-0000-4000-8000-00000000000{number}" for number in (1, 2, 3, 4))
ISSUE, BENS_ISSUE, EVES_ISSUE = (f"d0000000-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))
KEY = {ADA: "pcp_key_of_ada", BEN: "pcp_key_of_ben", EVE: "pcp_key_of_eve"}
SECRET = "the-operators-shared-secret"
SERVED = "The release train leaves on Tuesdays."


class FakePaperclip:
    """Answers as the real Paperclip does to each kind of key; `client` uses our own key."""

    def __init__(self) -> None:
        self.owners = {KEY[ADA]: (COMPANY, ADA), KEY[BEN]: (COMPANY, BEN), KEY[EVE]: (OTHER_COMPANY, EVE)}
        self.runs = {
            ADAS_RUN: _run(ADAS_RUN, COMPANY, ADA, ISSUE),
            BENS_RUN: _run(BENS_RUN, COMPANY, BEN, BENS_ISSUE),
            EVES_RUN: _run(EVES_RUN, OTHER_COMPANY, EVE, EVES_ISSUE),
            OLD_RUN: _run(OLD_RUN, COMPANY, ADA, None),
        }
        self.issues = {
            ISSUE: _issue(ISSUE, COMPANY, ADA, "project::jo@example.org"),
            BENS_ISSUE: _issue(BENS_ISSUE, COMPANY, BEN, "project::bo@example.org"),
            EVES_ISSUE: _issue(EVES_ISSUE, OTHER_COMPANY, EVE, None),
        }
        self.requests: list[tuple[str, str]] = []
        self.down = False
        self.hangs = False
        self.client = PaperclipClient(self.send, "http://paperclip", key="pcp_our_board_key", user_agent="test")

    async def send(self, request: Request) -> Response:
        path = request.url.removeprefix("http://paperclip")
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.requests.append((token, path))
        if self.hangs:
            await asyncio.Event().wait()
        if self.down:
            raise ConnectError("refused")
        return self._answer(token, path)

    def _answer(self, token: str, path: str) -> Response:
        company, agent = (None, None) if token == "pcp_our_board_key" else self.owners.get(token, ("", ""))
        if company == "":
            return _json(401, {"error": "Agent authentication required"})
        kind, _, id_ = path.removeprefix("/api/").partition("/")
        if path == "/api/companies":
            return _json(403, {"error": "Board access required"}) if agent else _json(200, [{"id": COMPANY}])
        if path == "/api/agents/me":
            return _json(200, {"id": agent, "companyId": company}) if agent else _json(401, {"error": "No agent"})
        stored = {"heartbeat-runs": self.runs, "issues": self.issues}[kind].get(id_)
        if stored is None or company not in (None, stored["companyId"]):
            return _json(404, {"error": f"{kind} not found"})
        return _json(200, stored)


@dataclass
class ToolsFixture:
    """The wired tools with their fakes.

    Attributes:
        counted: calls by tool and outcome.
        caught_up: False hides every recall, as while the recalls topic is still being read.
    """

    policy: MemoryPolicy = field(default_factory=MemoryPolicy)
    secret: str | None = SECRET
    hindsight: FakeHindsight = field(default_factory=FakeHindsight)
    paperclip: FakePaperclip = field(default_factory=FakePaperclip)
    recalls: RecallCache = field(
        default_factory=lambda: RecallCache(runs=100, size=10_000_000, max_age=3600, now=lambda: NOW)
    )
    counted: Counter[tuple[Tool, ToolOutcome]] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    caught_up: bool = True

    @property
    def service(self) -> MemoryService:
        def find_recall(run: str) -> RecallRecord | None:
            return self.recalls.get(run) if self.caught_up else None

        return MemoryService(self.policy, self.hindsight, find_recall, self._paperclip_for)

    @property
    def dispatcher(self) -> ToolDispatcher:
        def observe(tool: Tool, outcome: ToolOutcome, seconds: float) -> None:
            assert seconds >= 0
            self.counted[tool, outcome] += 1

        def warn(event: str, **_fields: Any) -> None:
            self.warnings.append(event)

        authenticator = Authenticator(self.secret, self.paperclip.client.with_key, 30.0)
        return ToolDispatcher(self.service, authenticator, CallLimits(32), observe, warn)

    def _paperclip_for(self, agent: Agent) -> PaperclipClient:
        return self.paperclip.client.with_key(agent.bearer) if agent.bearer else self.paperclip.client

    def record_recall(self, run: str = ADAS_RUN, texts: Sequence[str] = (SERVED,), **changes: Any) -> None:
        """Record a recall for a run, as the worker writes it."""
        paperclip_run = self.paperclip.runs[run]
        company, agent = paperclip_run["companyId"], paperclip_run["agentId"]
        values: dict[str, Any] = {
            "run_id": run,
            "company_id": company,
            "agent_id": agent,
            "issue_id": ISSUE,
            "bank_id": f"paperclip::{company}::{agent}",
            "user_id": None,
            "query": "release train",
            "status": RecallStatus.RECALLED if texts else RecallStatus.EMPTY,
            "memories": list(texts),
            "recalled_at": "2026-11-30T10:19:00.000+00:00",
        }
        self.recalls.apply(run.encode(), encode(RecallRecord(**values | changes)))

    @asynccontextmanager
    async def open(self, allowed_hosts: Sequence[str] = ("127.0.0.1",)) -> AsyncIterator[httpx.AsyncClient]:
        """Serve on a free port; yields a client."""
        app = tools_app(self.dispatcher, version="1.2.3", allowed_hosts=allowed_hosts)
        with listening("127.0.0.1", 0) as bound:
            async with serving(app, bound, grace=1):
                url = f"http://127.0.0.1:{bound.getsockname()[1]}"
                async with httpx.AsyncClient(base_url=url, timeout=30) as client:
                    yield client


def bearer(agent: str, run: str | None = None) -> dict[str, str]:
    """Headers that an agent sends."""
    return {"Authorization": f"Bearer {KEY[agent]}"} | ({"X-Paperclip-Run-Id": run} if run else {})


def gateway(
    agent: str | None = ADA, run: str | None = None, company: str = COMPANY, issue: str | None = None
) -> dict[str, str]:
    """Headers that Paperclip's gateway sends."""
    headers = {"x-paperclip-run-id": run, "x-paperclip-issue-id": issue}
    if agent is not None:
        headers |= {"x-paperclip-company-id": company, "x-paperclip-agent-id": agent}
    return {"authorization": f"Bearer {SECRET}"} | {name: value for name, value in headers.items() if value}


def bank(agent: str, company: str = COMPANY) -> str:
    return f"paperclip::{company}::{agent}"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A bare `tools/call`, as Paperclip's gateway posts it."""
    return {"jsonrpc": "2.0", "id": "1", "method": "tools/call", "params": {"name": name, "arguments": arguments}}


MCP_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def tool_text(reply: httpx.Response) -> tuple[str, bool]:
    """The text of an MCP result, and whether it is marked as an error."""
    result = reply.json()["result"]
    (content,) = result["content"]
    assert content["type"] == "text"
    return content["text"], result.get("isError", False)


def _run(id_: str, company: str, agent: str, issue: str | None) -> dict[str, Any]:
    wake = {"issue": {"id": issue, "title": "Plan the release train", "description": None}, "comments": []}
    snapshot = {"issueId": issue, "paperclipWake": wake if issue else None}
    return {"id": id_, "companyId": company, "agentId": agent, "status": "running", "contextSnapshot": snapshot}


def _issue(id_: str, company: str, agent: str, origin: str | None) -> dict[str, Any]:
    return {"id": id_, "companyId": company, "assigneeAgentId": agent, "originId": origin, "title": "Plan the release"}


def _json(status: int, body: object) -> Response:
    return Response(status, {"content-type": "application/json"}, json.dumps(body).encode())
