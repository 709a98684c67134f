"""A Paperclip with users and keys: what an operator sees of keys, rights and the tools' connection."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from consumer.embedded.hindsight import Hindsight
from tests.support.installation import gauge
from tests.support.kafka import Broker
from tests.support.paperclip import OWNER, PASSWORD, Paperclip, Person, email_of, sign_up
from tests.support.paperclip_company import PaperclipCompany, eventually, paperclip_company
from tests.support.relay_installation import RelayInstallation

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.authenticated,
    pytest.mark.every_paperclip,
    pytest.mark.real_kafka,
    pytest.mark.timeout(300),
]


@pytest.fixture
def acme(paperclip: Paperclip) -> Iterator[PaperclipCompany]:
    with paperclip_company(paperclip, "Operated") as opened:
        yield opened


@pytest.fixture
def installation(broker: Broker, hindsight: Hindsight, tmp_path: Path, acme: PaperclipCompany) -> RelayInstallation:
    return RelayInstallation(broker, hindsight, tmp_path, acme)


def key_ending_in(days: float, paperclip: Paperclip) -> str:
    """Another board key of the owner, which ends then."""
    ends = (datetime.now(UTC) + timedelta(days=days)).isoformat()
    with httpx.Client(base_url=paperclip.url, headers={"Origin": paperclip.url}, timeout=60) as browser:
        owner = {"email": email_of(OWNER), "password": PASSWORD}
        browser.post("/api/auth/sign-in/email", json=owner).raise_for_status()
        made = browser.post("/api/board-api-keys", json={"name": "short", "expiresAt": ends}).raise_for_status()
    return str(made.json()["token"])


def line(output: str, name: str) -> str:
    """The line of `check` about something; "" if it has none."""
    return next((found for found in output.splitlines() if found[2:].startswith(f"{name}: ")), "")


def test_check_without_a_key_says_that_none_is_set(installation: RelayInstallation) -> None:
    said = line(installation.command("check", expect=1, PAPERCLIP_API_KEY=""), "paperclip")
    assert said.startswith("✗ paperclip: requires a key, and none is set. To do: set paperclip_api_key")


def test_check_names_release_and_end_of_the_owners_key_and_warns_of_nothing(
    installation: RelayInstallation, paperclip: Paperclip
) -> None:
    output = installation.command("check")
    assert f"accepts our key; release {paperclip.version}; the key is a board member's" in line(output, "paperclip")
    assert line(output, "paperclip key").startswith("✓ paperclip key: expires in 30 days, on ")
    assert [found for found in output.splitlines() if found.startswith(("✗", "!"))] == []


def test_a_key_in_its_last_week_is_a_warning_and_a_metric(
    installation: RelayInstallation, paperclip: Paperclip
) -> None:
    key = key_ending_in(3, paperclip)
    said = line(installation.command("check", PAPERCLIP_API_KEY=key), "paperclip key")
    assert said.startswith("! paperclip key: expires in 3 days, on ")
    ends = datetime.now(UTC).timestamp() + 3 * 86_400
    with installation.worker(PAPERCLIP_API_KEY=key) as metrics:
        name = "paperclip_key_expires_timestamp_seconds"
        eventually("the worker knows the end of its key", lambda: gauge(metrics, name, {}) > 0)
        assert abs(gauge(metrics, name, {}) - ends) < 300


def test_status_shows_a_refused_key(installation: RelayInstallation) -> None:
    status = json.loads(installation.command("status", "--json", expect=1, PAPERCLIP_API_KEY="pcp_board_wrong"))
    assert "Paperclip refuses our key with 401" in status["silent"]["paperclip"]


@pytest.mark.parametrize("role", ["operator", "viewer"])
def test_a_member_without_the_audit_permission_relays_comments_and_deletions(
    installation: RelayInstallation, acme: PaperclipCompany, role: str
) -> None:
    member: Person = acme.member(role)
    assert member.key is not None
    warning = line(installation.command("check", PAPERCLIP_API_KEY=member.key), "audit feed")
    assert warning.startswith("! audit feed: the key may not read it in 1 of 1 companies")
    quiet = acme.issue("Think", acme.agent("Ada"))
    with installation.relay(PAPERCLIP_API_KEY=member.key, RELAY_COMPANIES=""):
        said, deleted = acme.say(quiet, "One."), acme.say(quiet, "Two.")
        created = {("issue.comment.created", said), ("issue.comment.created", deleted)}
        eventually("comments are published", lambda: created <= installation.published())
        acme.delete(quiet, deleted)
        gone = ("issue.comment.deleted", deleted)
        eventually("the deletion is published", lambda: gone in installation.published())


def test_connect_by_a_member_who_may_not_manage_tools_says_so(
    installation: RelayInstallation, acme: PaperclipCompany
) -> None:
    member = acme.member("viewer")
    output = installation.command(
        "connect", "--company", acme.id, expect=1, PAPERCLIP_API_KEY=str(member.key), TOOLS_SHARED_SECRET="a-secret" * 4
    )
    assert "must be that of a person who may manage this company's tools" in output


def test_a_stranger_without_membership_sees_no_company(installation: RelayInstallation, paperclip: Paperclip) -> None:
    stranger = sign_up(paperclip.url, f"Sam {installation.prefix.rpartition('.')[2]}")
    said = line(installation.command("check", PAPERCLIP_API_KEY=str(stranger.key)), "paperclip")
    assert said.startswith("! paperclip: ")
    assert "shows no company" in said
