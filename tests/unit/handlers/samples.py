"""Events and ids for handler tests, from the recording."""

from typing import Any

from consumer.handlers.context import DeliveryInfo
from demo import recording
from schemas.codec import parse
from schemas.events import AgentRunStarted, IssueCommentCreated, IssueCommentDeleted
from tests.support.fakes import NOW

COMPANY = str(recording.company()["id"])
OTHER_COMPANY = "0f0f0f0f-0000-4000-8000-000000000001"
AGENTS = {agent["name"]: str(agent["id"]) for agent in recording.agents()}
ADA, BEN, CID = AGENTS["Ada"], AGENTS["Ben"], AGENTS["Cid"]
ISSUES = {issue["identifier"]: issue for issue in recording.issues()}
COMMENTS = {comment["id"]: comment for comment in recording.comments()}
EVENTS = {
    (event["eventType"], event["payload"].get("commentId") or event["payload"]["runId"]): event
    for event in recording.events()
}
RUN = "bd611352-3b1a-48f2-9a27-42eb457e14b7"
WOKEN_RUN = "113d096a-52a5-4f57-853e-27eb5f1113e8"
MANUAL_RUN = "97be75cc-e131-40c5-92b4-c86f1ede94c7"
USER_COMMENT = "fe4967e2-bc39-480a-bc8f-dafcf0ffb000"
AGENT_COMMENT = "24bbb026-156a-48f2-a5a0-29ed55232d44"
DELETED_COMMENT = "5c52b530-019b-4373-89eb-f0c76fd786d2"
UNKNOWN = "0f0f0f0f-0000-4000-8000-0000000000ff"

FRESH = DeliveryInfo(timestamp=NOW)
REPLAYED = DeliveryInfo(timestamp=NOW, replayed=True)


def bank(agent: str, user: str = "") -> str:
    return f"paperclip::{COMPANY}::{agent}" + (f"::user::{user}" if user else "")


def started(run_id: str = RUN, **payload: Any) -> AgentRunStarted:
    """The recorded start of a run, with fields of the payload changed."""
    event = EVENTS["agent.run.started", run_id]
    parsed = parse({**event, "payload": {**event["payload"], **payload}})
    assert isinstance(parsed, AgentRunStarted)
    return parsed


def created(comment_id: str = AGENT_COMMENT, **payload: Any) -> IssueCommentCreated:
    """The recorded creation of a comment, with fields of the payload changed."""
    event = EVENTS["issue.comment.created", comment_id]
    parsed = parse({**event, "payload": {**event["payload"], **payload}})
    assert isinstance(parsed, IssueCommentCreated)
    return parsed


def deleted(comment_id: str = AGENT_COMMENT, **payload: Any) -> IssueCommentDeleted:
    """The deletion of a comment by the board, which names no agent."""
    event = created(comment_id).model_dump(by_alias=True)
    bare = {"commentId": comment_id, "agentId": None, **payload}
    parsed = parse({**event, "eventType": "issue.comment.deleted", "payload": bare})
    assert isinstance(parsed, IssueCommentDeleted)
    return parsed
