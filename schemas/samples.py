"""One example of each message: captured where there is one, else made, from something captured, and saying so."""

from typing import Any

from demo import recording
from schemas.events import EVENT_TYPES

Json = dict[str, Any]
RECALL = "recall"


def samples() -> dict[str, Json]:
    """By event type, and `recall`: `origin` (captured or made), `from` (in the recording), and the `value` itself."""
    found: dict[str, Json] = {}
    for event_type in EVENT_TYPES:
        event = next((each for each in recording.events() if each["eventType"] == event_type), None)
        if event is not None:
            found[event_type] = _sample("captured", f"plugin-events.jsonl, eventId {event['eventId']}", event)
        else:
            found[event_type] = _made_from_the_audit_feed(event_type)
    return found | {RECALL: _recall(found["agent.run.started"]["value"])}


def _made_from_the_audit_feed(event_type: str) -> Json:
    """What the relay makes of an activity: its details and who acted become the payload, as in the plugin's own events.

    No cancelled comment was captured: its activity is taken to look like the deleted one's.
    """
    row = next(each for each in recording.audit_comments() if each["action"] == "issue.comment_deleted")
    details = {name: row["details"][name] for name in ("commentId", "identifier", "issueTitle")}
    note = ""
    if event_type == "issue.comment.deleted":
        details = row["details"]
    else:
        note = ", as if its action were issue.comment_cancelled"
    event = {
        "eventId": row["id"],
        "eventType": event_type,
        "occurredAt": row["createdAt"],
        "actorId": row["actorId"],
        "actorType": row["actorType"],
        "entityId": row["entityId"],
        "entityType": row["entityType"],
        "companyId": row["companyId"],
        "payload": details | {name: row[name] for name in ("agentId", "runId", "responsibleUserId")},
    }
    return _sample("made", f"audit-comments.json, id {row['id']}{note}", event)


def _recall(started: Json) -> Json:
    """What a worker publishes for the captured run, had Hindsight then answered as it did when it was asked."""
    exchange = recording.exchange("recall, close to the text")
    run = next(each for each in recording.runs() if each["id"] == started["payload"]["runId"])
    issue = run["contextSnapshot"]["paperclipWake"]["issue"]
    record = {
        "runId": run["id"],
        "companyId": run["companyId"],
        "agentId": run["agentId"],
        "issueId": issue["id"],
        "bankId": f"paperclip::{run['companyId']}::{run['agentId']}",
        "userId": None,
        "query": "\n".join((issue["title"], issue["description"])),
        "status": "recalled",
        "memories": [result["text"] for result in exchange.reply["results"]],
        "recalledAt": started["occurredAt"],
    }
    return _sample("made", f"runs.json, id {run['id']}; hindsight-exchanges.json, {exchange.name!r}", record)


def _sample(origin: str, source: str, value: Json) -> Json:
    return {"origin": origin, "from": source, "value": value}
