"""Caller identity: what the headers of a request claim, and which claims are believed. Pure: no I/O.

A caller proves its identity in one of two ways. An agent sends its own Paperclip bearer (an agent key or a run's
token), and Paperclip says whose it is. Paperclip's gateway sends the operator's shared secret, and only then are the
`x-paperclip-*` headers believed. No argument of a tool can name another agent, company or bank.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from schemas.paperclip import is_uuid

AUTHORIZATION = "authorization"
COMPANY, AGENT = "x-paperclip-company-id", "x-paperclip-agent-id"
RUN, ISSUE = "x-paperclip-run-id", "x-paperclip-issue-id"
_UUID_HEADERS = (COMPANY, AGENT, RUN, ISSUE)
_TRUSTED = frozenset({AUTHORIZATION, *_UUID_HEADERS})
_BEARER = re.compile(r"bearer +([\x21-\x7e]{1,8192})", re.IGNORECASE)
_PAPERCLIP_KEY = re.compile(r"pcp_[\w-]+|eyJ[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)  # a key; a run's token (JWT)

NOT_AUTHENTICATED = (
    "Not authenticated: send `Authorization: Bearer …` with your own Paperclip key (PAPERCLIP_API_KEY inside a run)."
)
GATEWAY_NAMES_NO_AGENT = (
    "Paperclip's gateway did not name the calling agent: the tool connection must forward company_id and agent_id. "
    "The operator can run `paperclip-memory connect` again."
)


class ToolError(Exception):
    """The call is refused.

    Args:
        message: for the agent; says what is wrong, never whose memory is concerned.
        status: for HTTP: 401 if the caller is not authenticated, 403 if the agent may not use memory, 429 for too many
            calls, 400, 408 and 413 for an invalid call.
        retry_after: seconds after which to try again.
    """

    def __init__(self, message: str, status: int = 401, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Claims:
    """What the headers of a request claim; ids are UUIDs in lower case."""

    bearer: str = field(repr=False)
    company: str | None = None
    agent: str | None = None
    run: str | None = None
    issue: str | None = None


@dataclass(frozen=True, slots=True)
class Agent:
    """An authenticated agent.

    Attributes:
        run, issue: as the headers name them. With a bearer they count only after a check that they are the agent's.
        bearer: the agent's own; None if Paperclip's gateway calls on its behalf.
    """

    company: str
    agent: str
    run: str | None = None
    issue: str | None = None
    bearer: str | None = field(default=None, repr=False)


def read_claims(headers: Iterable[tuple[bytes, bytes]]) -> Claims:
    """Read the claims of a request; an empty header counts as absent.

    Raises:
        ToolError: no bearer; a header sent twice; an id that is not a UUID; or a name that only resembles one of these
            headers (`x_paperclip_agent_id`), which some proxy may rewrite to it.
    """
    values: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip()
        if name not in _TRUSTED:
            if name.replace("_", "-").strip() in _TRUSTED:
                raise ToolError(f"The header {name!r} is not accepted: it only resembles an identity header.")
            continue
        if name in values:
            raise ToolError(f"The header {name} was sent more than once.")
        values[name] = value
    bearer = _BEARER.fullmatch(values.get(AUTHORIZATION, ""))
    if bearer is None:
        raise ToolError(NOT_AUTHENTICATED)
    ids = {name: values[name].lower() for name in _UUID_HEADERS if values.get(name)}
    for name, value in ids.items():
        if not is_uuid(value):
            raise ToolError(f"The header {name} is not a UUID.")
    return Claims(bearer[1], ids.get(COMPANY), ids.get(AGENT), ids.get(RUN), ids.get(ISSUE))


def matches_secret(bearer: str, secret: str | None) -> bool:
    """Whether a bearer is the operator's shared secret; takes the same time for every wrong bearer."""
    if not secret:
        return False
    return hmac.compare_digest(_digest(bearer), _digest(secret))


def is_paperclip_key(bearer: str) -> bool:
    """Whether a bearer has the form of an agent key or of a run's token."""
    return _PAPERCLIP_KEY.fullmatch(bearer) is not None


def agent_from_gateway(claims: Claims) -> Agent:
    """The agent on whose behalf Paperclip's gateway calls.

    Raises:
        ToolError: the headers do not name it.
    """
    if claims.company is None or claims.agent is None:
        raise ToolError(GATEWAY_NAMES_NO_AGENT)
    return Agent(claims.company, claims.agent, claims.run, claims.issue)


def agent_from_key(claims: Claims, *, company: str, agent: str) -> Agent:
    """The agent to which a bearer belongs, according to Paperclip.

    Raises:
        ToolError: the headers name another agent or company.
    """
    if claims.company not in (None, company) or claims.agent not in (None, agent):
        raise ToolError("The x-paperclip-* headers name another agent or company than your key.")
    return Agent(company, agent, claims.run, claims.issue, claims.bearer)


def with_run(agent: Agent, run: str) -> Agent:
    """The agent, in the run that a path names.

    Raises:
        ToolError: the headers name another run; or the id is not a UUID (404).
    """
    run = run.lower()
    if not is_uuid(run):
        raise ToolError("The run id is not a UUID.", 404)
    if agent.run not in (None, run):
        raise ToolError("The header x-paperclip-run-id names another run than the path.")
    return replace(agent, run=run)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
