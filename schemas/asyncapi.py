"""The AsyncAPI 3 document: the five topics, what stands on them, and who reads and writes them."""

from typing import Any

from schemas.recalls import RecallRecord

Json = dict[str, Any]
DAY = 24 * 60 * 60 * 1000  # milliseconds
DELIVERY = {
    "type": "object",
    "properties": {
        "replay": {
            "type": "string",
            "description": "Set on what was published before: a comment is then always fetched.",
        },
        "repair": {"type": "string", "description": "Makes Hindsight work again on what it was given before."},
    },
}
DEAD_LETTER = {
    "type": "object",
    "description": "The record's own headers, and these.",
    "properties": {
        f"dead-letter-{name}": {"type": "string", "description": description}
        for name, description in {
            "topic": "Where the record stood.",
            "partition": "Where the record stood.",
            "offset": "Where the record stood.",
            "timestamp": "Kafka's timestamp of the record, milliseconds since the epoch.",
            "reason": "Why it cannot be handled: one word of a closed list.",
            "error": "The last error, for people.",
            "attempts": "How often it was tried.",
            "first-failure": "When it failed first, milliseconds since the epoch.",
            "event-id": "The event's id, if it could be read.",
            "truncated-from": "Only on a record that was too large: how many bytes its value had.",
        }.items()
    },
}


def document(events: dict[str, type], schemas: Json, samples: dict[str, Json]) -> Json:
    """The document as a value.

    Args:
        events: the model of each event type.
        schemas: by name, of these models, the recall record and all they refer to.
        samples: as `schemas.samples.samples` gives them.
    """
    messages = {_camel(kind): _event(kind, model, samples[kind]["value"]) for kind, model in events.items()}
    messages["recall"] = {
        "name": "recall",
        "title": "Recalled memories",
        "summary": _summary(RecallRecord),
        "payload": {"$ref": f"#/components/schemas/{RecallRecord.__name__}"},
        "bindings": _key("runId"),
        "examples": [{"name": samples["recall"]["origin"], "payload": samples["recall"]["value"]}],
    }
    messages["recallEnded"] = {
        "name": "recallEnded",
        "title": "Tombstone",
        "summary": "The run has ended: its memories can go.",
        "payload": {"type": "null"},
        "bindings": _key("runId"),
    }
    messages["deadLetter"] = {
        "name": "deadLetter",
        "title": "Dead letter",
        "summary": "A record that cannot be handled: its own bytes and key.",
        "contentType": "application/octet-stream",
        "headers": DEAD_LETTER,
        "payload": {"description": "The bytes as they were: not always JSON, and cut where they were too large."},
    }
    messages["relayCheckpoint"] = {
        "name": "relayCheckpoint",
        "title": "Relay checkpoint",
        "summary": "How far the relay has read one company; its fields are the relay's own.",
        "payload": {"type": "object"},
        "bindings": _key("companyId"),
    }
    runs = [_camel(kind) for kind in events if kind.startswith("agent.run.")]
    comments = [_camel(kind) for kind in events if kind.startswith("issue.comment.")]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "paperclip-memory",
            "version": "1.0.0",
            "description": "Topics of paperclip-memory, with their default names. Values are JSON in ASCII: other"
            " characters are escaped, lone surrogates too.",
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "kafka": {
                "host": "{bootstrapServer}",
                "protocol": "kafka",
                "description": "Any Apache Kafka; with TLS and SASL as PAPERCLIP_MEMORY_KAFKA_* say.",
                "variables": {"bootstrapServer": {"default": "localhost:9092"}},
            }
        },
        "channels": {
            "agentRuns": _channel(
                "paperclip.agent.runs", runs, "Lifecycle of runs.", policy=["delete"], retention=7 * DAY, partitions=8
            ),
            "issueComments": _channel(
                "paperclip.issue.comments",
                comments,
                "Lifecycle of comments.",
                policy=["delete"],
                retention=7 * DAY,
                partitions=8,
            ),
            "recalls": _channel(
                "paperclip.memory.recalls",
                ["recall", "recallEnded"],
                "What was recalled for each run; the last record of a run wins.",
                policy=["compact", "delete"],
                retention=2 * DAY,
            ),
            "deadLetters": _channel(
                "paperclip.memory.dead-letters",
                ["deadLetter"],
                "Records that cannot be handled.",
                policy=["delete"],
                retention=14 * DAY,
            ),
            "relayCheckpoints": _channel(
                "paperclip.memory.relay-checkpoints",
                ["relayCheckpoint"],
                "How far the relay has read.",
                policy=["compact"],
            ),
        },
        "operations": {
            "relayRuns": _operation("send", "agentRuns", "The relay publishes what runs do."),
            "relayComments": _operation("send", "issueComments", "The relay publishes what happens to comments."),
            "handleRuns": _operation(
                "receive", "agentRuns", "Workers recall for a run, and end it.", "paperclip-memory-recall"
            ),
            "handleComments": _operation(
                "receive", "issueComments", "Workers retain and forget comments.", "paperclip-memory-retain"
            ),
            "publishRecalls": _operation("send", "recalls", "Workers publish what they recalled."),
            "serveRecalls": _operation(
                "receive", "recalls", "The tools serve it to agents; each instance reads all of it."
            ),
            "keepDeadLetters": _operation("send", "deadLetters", "Workers put away what they cannot handle."),
            "redriveDeadLetters": _operation(
                "receive", "deadLetters", "Operators look at dead letters and replay them."
            ),
            "saveCheckpoints": _operation("send", "relayCheckpoints", "The relay notes how far it has read."),
            "loadCheckpoints": _operation("receive", "relayCheckpoints", "The relay goes on where it was."),
        },
        "components": {"messages": messages, "schemas": schemas},
    }


def _event(kind: str, model: type, example: Json) -> Json:
    return {
        "name": kind,
        "title": model.__name__,
        "summary": _summary(model),
        "headers": DELIVERY,
        "payload": {"$ref": f"#/components/schemas/{model.__name__}"},
        "bindings": _key("runId" if kind.startswith("agent.run.") else "commentId"),
        "examples": [{"name": kind, "payload": example}],
    }


def _key(field: str) -> Json:
    return {"kafka": {"key": {"type": "string", "description": field}, "bindingVersion": "0.5.0"}}


def _channel(
    topic: str,
    messages: list[str],
    description: str,
    *,
    policy: list[str],
    retention: int | None = None,
    partitions: int | None = None,
) -> Json:
    configuration: Json = {"cleanup.policy": policy} | ({"retention.ms": retention} if retention else {})
    kafka: Json = {"topic": topic} | ({"partitions": partitions} if partitions else {})
    return {
        "address": topic,
        "description": description,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {"kafka": kafka | {"topicConfiguration": configuration, "bindingVersion": "0.5.0"}},
    }


def _operation(action: str, channel: str, summary: str, group: str | None = None) -> Json:
    operation: Json = {"action": action, "channel": {"$ref": f"#/channels/{channel}"}, "summary": summary}
    if group:
        group_id = {"type": "string", "enum": [group]}
        operation["bindings"] = {"kafka": {"groupId": group_id, "bindingVersion": "0.5.0"}}
    return operation


def _camel(kind: str) -> str:
    first, *rest = kind.split(".")
    return first + "".join(word.capitalize() for word in rest)


def _summary(model: type) -> str:
    return (model.__doc__ or "").split("\n")[0]
