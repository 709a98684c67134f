"""Real Paperclip, Hindsight and Apache Kafka: backfill, audit and its repairs."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from consumer.embedded import embedder
from consumer.embedded.hindsight import Hindsight
from consumer.http.transport import quote_segment
from tests.support.kafka import Broker
from tests.support.paperclip import Paperclip
from tests.support.paperclip_company import Json, PaperclipCompany, eventually, paperclip_company
from tests.support.relay_installation import FULL_SIZE, RelayInstallation, retain

pytestmark = [pytest.mark.e2e, pytest.mark.real_kafka, pytest.mark.timeout(300)]

PAST = 600 if FULL_SIZE else 100
"""Comments of the backfill."""


@pytest.fixture
def acme(paperclip: Paperclip) -> Iterator[PaperclipCompany]:
    with paperclip_company(paperclip) as opened:
        yield opened


@pytest.fixture
def installation(broker: Broker, hindsight: Hindsight, tmp_path: Path, acme: PaperclipCompany) -> RelayInstallation:
    return RelayInstallation(broker, hindsight, tmp_path, acme)


@contextmanager
def failing(hindsight: Hindsight) -> Iterator[None]:
    """Hindsight's retains fail for good while the block lasts: its embeddings have a wrong size."""

    class Wrong(embedder.Handler):
        protocol_version = "HTTP/1.0"  # no connection outlives the server

        def do_POST(self) -> None:  # noqa: N802 - the base class's name
            inputs = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["inputs"]
            self._answer([[0.5] * 10 for _ in inputs])

    hindsight._embedder.stop()
    server = ThreadingHTTPServer(("127.0.0.1", int(hindsight._embedder.command[-1])), Wrong)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        hindsight._embedder.start()


def forget(installation: RelayInstallation, bank: str, document: str) -> None:
    url = f"{installation.hindsight.url}/v1/default/banks/{quote_segment(bank)}/documents/{document}"
    httpx.delete(url, timeout=60).raise_for_status()


def test_audit_names_what_is_wrong_and_fix_repairs_it(
    installation: RelayInstallation, acme: PaperclipCompany, hindsight: Hindsight
) -> None:
    """A failed operation, a deleted document, a stale, a duplicate and an orphaned one; documents of others stay."""
    ada, bea = acme.agent("Ada"), acme.agent("Bea")
    issue = acme.issue("Think", ada)
    acme.pause(ada)
    banks = [acme.bank(ada), acme.bank(bea)]
    with installation.relay(), installation.worker():
        kept, lost, stale, doubled = (acme.say(issue, text) for text in ("Kept.", "Lost.", "Stale.", "Doubled."))
        eventually("they are held", lambda: len(installation.documents(banks[0])) == 4)
        with failing(hindsight):
            failed = acme.say(issue, "It fails.")
            # A consolidation can fail before it.
            eventually(
                "its retain fails", lambda: failed in _documents(installation.operations(banks[0], status="failed"))
            )
        gone = acme.say(issue, "Goes.")
        acme.delete(issue, gone)
        eventually("the deletion is published", lambda: ("issue.comment.deleted", gone) in installation.published())
        installation.wait_digested(banks)

        forget(installation, banks[0], lost)
        retain(installation, banks[0], stale, "Another text.")
        retain(installation, banks[1], doubled, "Doubled.")
        retain(installation, banks[1], gone, "Goes.", commentId=gone, companyId=acme.id)
        retain(installation, banks[0], "hindsight_retain:1", "A tool's own.")

        found = eventually("all are old enough", lambda: _report(installation, acme, comments=5), every=2.0)
        named = {
            kind: [each["comment"] for each in found[kind]] for kind in ("missing", "stale", "duplicate", "orphaned")
        }
        assert sorted(named.pop("missing")) == sorted([lost, failed])
        assert named == {"stale": [stale], "duplicate": [doubled], "orphaned": [gone]}
        reasons = {each["comment"]: each["reason"] for each in found["missing"]}
        assert "its retain failed: RuntimeError: embedding 0 has dimension 10" in reasons[failed]
        assert [each["document"] for each in found["failed_operations"]] == [failed]

        installation.audit("--fix", expect=1)
        installation.wait_digested(banks)
        eventually("nothing is left to repair", lambda: _is_clean(installation, acme), every=2.0)
    assert set(installation.documents(banks[0])) == {kept, lost, stale, doubled, failed, "hindsight_retain:1"}
    assert installation.documents(banks[1]) == {}


def _report(
    installation: RelayInstallation, acme: PaperclipCompany, *, comments: int
) -> "dict[str, list[dict[str, str]]] | None":
    """The audit's report, once it judges so many comments; those of the last seconds it leaves alone."""
    found = json.loads(installation.command("audit", "--json", "--company", acme.id, expect=1))["companies"][0]
    return found if found["comments"] == comments else None


def _is_clean(installation: RelayInstallation, acme: PaperclipCompany) -> bool:
    return bool(installation.audit()[acme.id]["stored"] == 5)


def test_a_backfill_twice_stores_once(installation: RelayInstallation, acme: PaperclipCompany) -> None:
    """History goes to the bank of who was assigned when it was said; the second time makes no operation."""
    ada, bea = acme.agent("Ada"), acme.agent("Bea")
    key, first = acme.key(ada), acme.issue("Issue 0", ada, status="todo")
    run = eventually("Ada runs", lambda: acme.run_of(ada, first))
    acme.pause(ada)
    issues = [first, *(acme.issue(f"Issue {number}", ada) for number in range(1, 10))]
    for number in range(PAST):
        who = (key, run) if number % 10 == 0 else (None, None)
        acme.say(issues[number % 10], f"Note {number} of the past.", *who)
    for issue in issues[:5]:
        acme.assign(issue, bea)
    assert f"company {acme.id}: " in installation.command("backfill", "--company", acme.id, "--dry-run")
    assert installation.published() == set()
    with installation.worker():
        installation.command("backfill", "--company", acme.id)
        installation.wait_digested([acme.bank(ada)])
        before = installation.get(f"{quote_segment(acme.bank(ada))}/operations", limit=1)["total"]
        installation.command("backfill", "--company", acme.id)
        installation.wait_digested([acme.bank(ada)])
    assert installation.get(f"{quote_segment(acme.bank(ada))}/operations", limit=1)["total"] == before
    assert installation.get(f"{quote_segment(acme.bank(bea))}/documents", limit=1) is None

    def judged() -> Json | None:
        """The report, once no comment is so young that the audit leaves it alone."""
        report = installation.audit()[acme.id]
        return report if report["comments"] - report["skipped"].get("system_comment", 0) == PAST else None

    report = eventually("all comments are judged", judged, deadline=120, every=3.0)
    assert (report["stored"], report["elsewhere"]) == (PAST, 0)


def _documents(operations: list[Json]) -> set[str | None]:
    """The documents that operations are about."""
    return {operation["document_id"] for operation in operations}
