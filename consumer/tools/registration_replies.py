"""Reads Paperclip's replies to `connect`, and explains in words what went wrong. Pure."""

from typing import Any

Json = dict[str, Any]

NAME = "paperclip-memory"
CREDENTIAL = "authorization"
GRANT_PATH = f"credentials.{CREDENTIAL}"
"""Where a grant's secret stands for the connection's credential of this name."""
REFUSED = "oauth_challenge"
"""Paperclip's code when the tools answer its listing with 401."""


def single(value: Any) -> Json:
    return {**value, "id": str(value["id"])}


def rows(value: Any) -> list[Json]:
    return [single(row) for row in value]


def connections(value: Any) -> list[Json]:
    return rows(value["connections"])


def grants(value: Any) -> list[Json]:
    return rows(value["grants"])


def agents(value: Any) -> list[Json]:
    return rows(value["agents"])


def installs(value: Any) -> list[Json]:
    return [dict(row) for row in value["installs"]]


def refers_to(holder: Json, secret_id: str) -> bool:
    """Whether a grant or a connection names the secret for our credential."""
    references = holder.get("credentialSecretRefs") or []
    return any(ref["configPath"] == GRANT_PATH and ref["secretId"] == secret_id for ref in references)


def listing_problem(value: Any) -> str:
    code = value.get("code") or (value.get("details") or {}).get("code")
    return REFUSED if code == REFUSED else str(value["error"])


def catalog(value: Any) -> list[Json]:
    return rows(value["catalog"] if isinstance(value, dict) else value)


def describe_catalog(value: Any) -> str:
    states = ", ".join(f"{entry['toolName']} {entry['status']}" for entry in value["catalog"])
    return f"tools: {states}; health {value['connection']['healthStatus']}"


def explain_listing(problem: str, url: str) -> str:
    if problem == REFUSED:
        return f"the tools at {url} refuse the secret: start them with this tools_shared_secret, then connect again"
    return f"Paperclip cannot list the tools at {url}: {problem}; are they running, is tools_url right for Paperclip?"


def call_problem(answer: Json) -> str | None:
    """Why a test call gave no result; None if it gave one.

    Paperclip answers with the result, with an error, or with the decision that kept the call back.
    """
    if "result" in answer:
        return None
    error = answer.get("error")
    if error is None:
        return f"Paperclip's policies say {answer['decision']!r}: allow the tools for this agent in Paperclip"
    message = error if isinstance(error, str) else f"{error['message']} ({error['reasonCode']})"
    return (
        f"{message}. Paperclip can list the tools, but agents cannot call them: look at the log of the tools, then "
        f"run connect again; if that does not help, delete {NAME!r} among the company's apps and run it once more"
    )


def access_problem(value: Any) -> str | None:
    """Which tools an agent is not offered, and why; None if all are allowed."""
    refused = [tool for tool in value["access"]["tools"] if tool["decision"] != "allowed"]
    if not refused:
        return None
    decisions = ", ".join(f"{tool['toolName']} {tool['decision']} ({tool['reasonCode']})" for tool in refused)
    return f"Paperclip does not offer this agent every tool: {decisions}. Allow them among the company's apps"


def connection_problem(connection: Json) -> str | None:
    """Why agents cannot use a connection that Paperclip lists; None if nothing speaks against it."""
    if connection.get("status") != "active" or not connection.get("enabled"):
        return f"the connection is turned off in Paperclip (status {connection.get('status')})"
    health = connection.get("healthStatus")
    if health in ("ok", "healthy", "unknown", None):
        return None
    return f"agents do not see the tools: the connection is in state {health!r}: {connection.get('healthMessage')}"
