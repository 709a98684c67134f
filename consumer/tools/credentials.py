"""Who calls: what the headers of a request claim, and what of it is believed. Pure: nobody is asked here.

Identity is proven, never claimed. Either the caller shows its own Paperclip bearer (an agent key or a run's token), and
Paperclip says whose it is; or it is Paperclip's gateway, which shows the operator's shared secret, and only then are
the `x-paperclip-*` headers believed. No parameter of a tool can name another agent, company or bank.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from schemas.objects import UUID_PATTERN

AUTHORIZATION = "authorization"
COMPANY, AGENT = "x-paperclip-company-id", "x-paperclip-agent-id"
RUN, ISSUE = "x-paperclip-run-id", "x-paperclip-issue-id"
_UUID_HEADERS = (COMPANY, AGENT, RUN, ISSUE)
_TRUSTED = frozenset({AUTHORIZATION, *_UUID_HEADERS})
_BEARER = re.compile(r"bearer +([\x21-\x7e]{1,8192})", re.IGNORECASE)

NO_PROOF = (
    "Who you are is not proven: send `Authorization: Bearer …` with your own Paperclip key "
    "(PAPERCLIP_API_KEY inside a run)."
)
GATEWAY_NAMES_NO_AGENT = (
    "Paperclip's gateway did not say which agent calls: the tool connection must forward company_id and agent_id. "
    "The operator can run `paperclip-memory connect` again."
)


class Refused(Exception):
    """The call is refused.

    Args:
        words: for the agent; names what is wrong, never whose memory it was.
        status: for HTTP: 401 if it is not proven who calls, 403 if that agent may not, 400 and 413 for a wrong call.
    """

    def __init__(self, words: str, status: int = 401) -> None:
        super().__init__(words)
        self.words = words
        self.status = status


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
    """An agent that was proven to call.

    Attributes:
        run, issue: as the headers name them. With a bearer they count only once they have proved to be the agent's.
        bearer: the agent's own; None if Paperclip's gateway speaks for it.
    """

    company: str
    agent: str
    run: str | None = None
    issue: str | None = None
    bearer: str | None = field(default=None, repr=False)


def claims_of(headers: Iterable[tuple[bytes, bytes]]) -> Claims:
    """Read the claims of a request; a header that is empty counts as absent.

    Raises:
        Refused: no bearer; one of these headers twice; an id that is no UUID; or a name that only looks like one of
            them (`x_paperclip_agent_id`), which some proxy may take for it.
    """
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip()
        if name not in _TRUSTED:
            if name.replace("_", "-").strip() in _TRUSTED:
                raise Refused(f"The header {name!r} is not taken: it only looks like one that says who you are.")
            continue
        if name in found:
            raise Refused(f"The header {name} came more than once: it must say one thing.")
        found[name] = value
    bearer = _BEARER.fullmatch(found.get(AUTHORIZATION, ""))
    if bearer is None:
        raise Refused(NO_PROOF)
    ids = {name: found[name].lower() for name in _UUID_HEADERS if found.get(name)}
    for name, value in ids.items():
        if not re.fullmatch(UUID_PATTERN, value):
            raise Refused(f"The header {name} is no UUID.")
    return Claims(bearer[1], ids.get(COMPANY), ids.get(AGENT), ids.get(RUN), ids.get(ISSUE))


def is_secret(bearer: str, secret: str | None) -> bool:
    """Whether a bearer is the operator's shared secret; takes the same time whatever is wrong with it."""
    if not secret:
        return False
    return hmac.compare_digest(_digest(bearer), _digest(secret))


def spoken_for(claims: Claims) -> Agent:
    """The agent that Paperclip's gateway speaks for.

    Raises:
        Refused: it does not say which.
    """
    if claims.company is None or claims.agent is None:
        raise Refused(GATEWAY_NAMES_NO_AGENT)
    return Agent(claims.company, claims.agent, claims.run, claims.issue)


def own(claims: Claims, *, company: str, agent: str) -> Agent:
    """The agent that a bearer stands for, as Paperclip says.

    Raises:
        Refused: the headers claim that it is somebody else.
    """
    if claims.company not in (None, company) or claims.agent not in (None, agent):
        raise Refused(
            "The x-paperclip-* headers name another agent or company than your key: nobody can be named there."
        )
    return Agent(company, agent, claims.run, claims.issue, claims.bearer)


def in_run(agent: Agent, run: str) -> Agent:
    """The agent, in the run that a path names.

    Raises:
        Refused: the headers name another run; or it is no UUID (404).
    """
    run = run.lower()
    if not re.fullmatch(UUID_PATTERN, run):
        raise Refused("The run's id is no UUID.", 404)
    if agent.run not in (None, run):
        raise Refused("The header x-paperclip-run-id names another run than the path.")
    return replace(agent, run=run)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
