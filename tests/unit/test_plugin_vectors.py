"""The vectors of `plugin-vectors.json`: our behaviour equals the plugin's. Their short ids stand for UUIDs."""

import importlib.util
import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from consumer.errors import SettingsError, Transient, Upstream
from consumer.handlers.context import DeliveryInfo
from consumer.handlers.recall import recall
from consumer.handlers.results import Degraded, HandlerResult, Skipped, SkipReason
from consumer.handlers.retain import retain
from consumer.http.transport import quote_segment
from consumer.memory.attribution import resolve_user
from consumer.memory.banks import derive_bank_id
from consumer.memory.formatting import format_memories
from consumer.memory.policy import MemoryPolicy
from consumer.settings.model import Settings
from consumer.settings.validation import load_settings
from schemas.codec import parse
from schemas.events import AgentRunStarted, IssueCommentCreated
from schemas.paperclip import Issue
from schemas.recalls import RecallStatus
from tests.support.fakes import NOW, HandlerFixture

UNIT = Path(__file__).parent
VECTORS: dict[str, Any] = json.loads((UNIT / "plugin-vectors.json").read_text(encoding="utf-8"))
SHORT = re.compile(r"(?<![a-z0-9])(?:co|ag|run)-\w+")
used: set[tuple[str, str]] = set()


def expand_id(short: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, short))


def with_full_ids(value: Any) -> Any:
    """Replace each short id by the UUID that it stands for."""
    return json.loads(SHORT.sub(lambda match: expand_id(match[0]), json.dumps(value)))


def vector(section: str, name: str) -> pytest.MarkDecorator:
    """Parametrize a test with the vector of this name."""
    (entry,) = [entry for entry in VECTORS[section] if entry["name"] == name]
    used.add((section, name))
    return pytest.mark.parametrize("vector", [with_full_ids(entry)], ids=[name])


def settings(**fields: Any) -> Settings:
    return load_settings(hindsight_api_url="http://localhost:8888", **fields)


COMPANY, AGENT, RUN, ISSUE, COMMENT = (expand_id(short) for short in ("co-1", "ag-1", "run-1", "is-1", "cm-1"))


def make_fixture(policy: MemoryPolicy | None = None, **issue: Any) -> HandlerFixture:
    """A fixture whose Paperclip has one run, one issue and one comment."""
    fixture = HandlerFixture(policy or settings().memory_policy())
    whole = {"id": ISSUE, "companyId": COMPANY, **issue}
    fixture.paperclip.issues = {ISSUE: whole}
    fixture.paperclip.runs = {RUN: {"id": RUN, "contextSnapshot": {"paperclipWake": {"issue": whole}}}}
    comment = {"id": COMMENT, "companyId": COMPANY, "issueId": ISSUE, "authorType": "user", "body": "Use JWT."}
    fixture.paperclip.comments = {COMMENT: comment}
    return fixture


async def run_started(fixture: HandlerFixture, **payload: Any) -> HandlerResult:
    event = parse(
        {
            "eventId": expand_id("ev-1"),
            "eventType": "agent.run.started",
            "companyId": COMPANY,
            "payload": {"runId": RUN, "agentId": AGENT, "issueId": ISSUE, **payload},
        }
    )
    assert isinstance(event, AgentRunStarted)
    return await recall(event, DeliveryInfo(NOW), fixture.context)


async def comment_created(fixture: HandlerFixture, **payload: Any) -> HandlerResult:
    event = parse(
        {
            "eventId": expand_id("ev-2"),
            "eventType": "issue.comment.created",
            "companyId": COMPANY,
            "entityId": ISSUE,
            "payload": {"commentId": COMMENT, **payload},
        }
    )
    assert isinstance(event, IssueCommentCreated)
    return await retain(event, DeliveryInfo(NOW), fixture.context)


def vector_id(entry: dict[str, Any]) -> str:
    return str(entry.get("name") or json.dumps(entry))


@pytest.mark.parametrize("entry", VECTORS["bank"], ids=vector_id)
def test_bank_ids_equal_the_plugins(entry: dict[str, Any]) -> None:
    entry = with_full_ids(entry)
    if "error" in entry:
        with pytest.raises(SettingsError) as raised:
            settings(**entry["settings"])
        assert raised.value.problems[0].startswith(entry["error"])
        return
    context = {"user": None, **entry["context"]}
    assert derive_bank_id(settings(**entry["settings"]).memory_policy(), **context) == entry["bank"]


@pytest.mark.parametrize("entry", VECTORS["user"], ids=vector_id)
def test_users_equal_the_plugins(entry: dict[str, Any]) -> None:
    assert resolve_user(Issue.model_validate(entry["issue"]), settings().memory_policy().user_sources) == entry["user"]


@pytest.mark.parametrize("entry", VECTORS["enabled_agent_ids"], ids=vector_id)
async def test_enabled_agent_ids_gate_recall_and_retain(entry: dict[str, Any]) -> None:
    entry = with_full_ids(entry)
    policy = settings(enabled_agent_ids=entry["allow"]).memory_policy()
    fixture = make_fixture(policy, title="T", assigneeAgentId=entry.get("assignee"))
    agent = entry.get("agent")
    if agent is not None:
        skipped = Skipped(SkipReason.AGENT_NOT_ENABLED)
        assert (await run_started(fixture, agentId=agent) != skipped) is entry["recall"]
        assert (len(fixture.hindsight.called("recall")) == 1) is entry["recall"]
    await comment_created(fixture, agentId=agent)
    assert (len(fixture.hindsight.called("retain")) == 1) is entry["retain"]


@vector("recall", "query holds title and description; bank is percent-encoded in the path")
async def test_recall_sends_title_and_description(vector: dict[str, Any]) -> None:
    fixture = make_fixture(**vector["issue"])
    await run_started(fixture)
    bank, query, *_ = fixture.hindsight.called("recall")[0]
    assert vector["path_contains"] in quote_segment(bank)
    assert all(part in query for part in vector["query_contains"])


@vector("recall", "no issueId: no call")
async def test_recall_without_an_issue_makes_no_call(vector: dict[str, Any]) -> None:
    fixture = make_fixture(title="T")
    assert await run_started(fixture, issueId=None, **vector["event"]) == Skipped(SkipReason.NO_ISSUE)
    assert len(fixture.hindsight.calls) == vector["calls"]


@vector("recall", "no title and no description: no call, even when a comment woke the run")
async def test_recall_of_a_blank_issue_makes_no_call(vector: dict[str, Any]) -> None:
    fixture = make_fixture(**vector["issue"])
    wake = fixture.paperclip.runs[RUN]["contextSnapshot"]["paperclipWake"]
    wake["comments"] = [{"id": COMMENT, "body": "Please look."}]
    assert await run_started(fixture) == Skipped(SkipReason.BLANK_ISSUE)
    assert len(fixture.hindsight.calls) == vector["calls"]


@vector(
    "recall",
    "Hindsight answers 503: the event is done, no memories are cached (a record with status failed keeps bank and "
    "user), nothing is raised",
)
async def test_recall_survives_a_failure_of_hindsight(vector: dict[str, Any]) -> None:
    fixture = make_fixture(
        settings(bank_granularity=["company", "agent", "user"]).memory_policy(), title="T", creatorEmail="a@e.com"
    )
    fixture.hindsight.fail("recall", Transient(f"answered {vector['hindsight_status']}", upstream=Upstream.HINDSIGHT))
    assert isinstance(await run_started(fixture), Degraded) is not vector["fatal"]
    record = fixture.recalls.last
    assert (record.status, record.memories, record.user_id) == (RecallStatus.FAILED, [], "a@e.com")
    assert record.bank_id == f"paperclip::{COMPANY}::{AGENT}::user::a@e.com"


@vector("recall", "budget defaults to mid, max_tokens is 1024")
async def test_recall_sends_budget_and_max_tokens(vector: dict[str, Any]) -> None:
    fixture = make_fixture(title="T")
    await run_started(fixture)
    _, _, budget, max_tokens = fixture.hindsight.called("recall")[0]
    assert {"budget": budget, "max_tokens": max_tokens} == vector["body"]


@vector("recall", "memories are one '- ' line each")
def test_memories_are_formatted_as_lines(vector: dict[str, Any]) -> None:
    assert format_memories(result["text"] for result in vector["results"]) == vector["text"]


@vector("retain", "full body, commentId as document_id, context paperclip, async")
async def test_retain_sends_the_full_body(vector: dict[str, Any]) -> None:
    """The Hindsight client sends context and async; its own tests check them."""
    fixture = make_fixture()
    await comment_created(fixture, agentId=AGENT, bodySnippet="Use")
    _, memory, _ = fixture.hindsight.called("retain")[0]
    assert (memory.document_id, memory.content) == (COMMENT, "Use JWT.")
    assert vector["document_id"] == "the commentId"


@vector("retain", "no agent author and no assignee: no call")
async def test_retain_without_an_agent_makes_no_call(vector: dict[str, Any]) -> None:
    fixture = make_fixture(assigneeAgentId=None)
    assert await comment_created(fixture) == Skipped(SkipReason.NO_AGENT)
    assert len(fixture.hindsight.calls) == vector["calls"]


@vector("retain", "auto_retain false: no call")
async def test_retain_with_auto_retain_off_makes_no_call(vector: dict[str, Any]) -> None:
    fixture = make_fixture(settings(auto_retain=False).memory_policy())
    assert await comment_created(fixture, agentId=AGENT) == Skipped(SkipReason.AUTO_RETAIN_OFF)
    assert len(fixture.hindsight.calls) == vector["calls"]


@vector("retain", "no commentId: no call")
async def test_retain_without_a_comment_id_makes_no_call(vector: dict[str, Any]) -> None:
    fixture = make_fixture()
    assert await comment_created(fixture, agentId=AGENT, commentId=None) == Skipped(SkipReason.NO_COMMENT_ID)
    assert len(fixture.hindsight.calls) == vector["calls"]


@vector("retain", "user comment goes to the assignee's bank")
async def test_retain_of_a_users_comment_uses_the_bank_of_the_assignee(vector: dict[str, Any]) -> None:
    fixture = make_fixture(assigneeAgentId=vector["assignee"])
    await comment_created(fixture)
    assert vector["path_contains"] in quote_segment(fixture.hindsight.called("retain")[0][0])


WHOLE_SECTIONS = {"bank", "user", "enabled_agent_ids"}
"""Sections whose entries are all cases of one test above."""
ELSEWHERE = {"check": ("consumer.commands.probes", "commands/test_probes.py"), "tools": ("consumer.tools", "tools")}
"""Sections that other tests cover, by module: each of their vectors has a test of its name there."""


def test_every_vector_has_a_test() -> None:
    sections = {name for name, entries in VECTORS.items() if isinstance(entries, list)}
    here = {section for section, _ in used}
    assert sections == WHOLE_SECTIONS | here | set(ELSEWHERE)
    assert used == {(section, entry["name"]) for section in here for entry in VECTORS[section]}


@pytest.mark.parametrize("section", ELSEWHERE)
def test_vectors_of_other_areas_have_a_test_of_their_name(section: str) -> None:
    code, where = ELSEWHERE[section]
    if importlib.util.find_spec(code) is None:  # not built yet, and so without tests
        assert not (UNIT / where).exists()
        return
    path = UNIT / where
    text = "".join(file.read_text(encoding="utf-8") for file in ([path] if path.is_file() else path.glob("*.py")))
    expected = ["test_" + re.sub(r"\W+", "_", entry["name"].lower()).strip("_") for entry in VECTORS[section]]
    assert [name for name in expected if f"def {name}(" not in text] == []
