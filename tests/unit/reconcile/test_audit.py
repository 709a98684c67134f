"""The audit: what counts as stored, missing, stale, duplicate and orphaned."""

import json
from collections import Counter

import pytest

from consumer.errors import Permanent, Upstream
from consumer.handlers.results import SkipReason
from consumer.memory.documents import Operation
from consumer.memory.policy import BankPart
from consumer.reconcile.audit import SETTLE_TIME
from consumer.reconcile.findings import BankOperation, Finding, Kind, Report
from consumer.reconcile.report import render_json, render_text
from consumer.relay.event_builder import CREATED, event_id
from schemas.timestamps import format_timestamp
from tests.support.fake_feed import COMPANY, FORBIDDEN, NOON, new_id
from tests.unit.reconcile.harness import ReconcileHarness


def comments_of(report: Report, kind: Kind) -> list[str]:
    return [finding.comment for finding in report.of_kind(kind)]


@pytest.fixture
def company() -> ReconcileHarness:
    return ReconcileHarness()


async def test_document_in_any_of_the_banks_is_stored(company: ReconcileHarness) -> None:
    """Attribution changes; a comment stays in the bank that it was stored in."""
    issue = company.feed.add_issue(agent=company.ada)
    by_ada = company.feed.add_comment(issue, agent=company.ada)
    by_user, in_beas_bank = company.feed.add_comment(issue), company.feed.add_comment(issue)
    company.feed.advance(10)
    company.feed.assign(issue, company.bea)
    for comment in (by_ada, by_user):
        company.hindsight.store(company.adas_bank, comment)
    company.hindsight.store(company.beas_bank, in_beas_bank)
    report = await company.audit()
    assert report.clean
    assert (report.comments, report.stored, report.elsewhere) == (3, 3, 1)


async def test_every_kind_of_fault_is_found_with_its_reason(company: ReconcileHarness) -> None:
    issue = company.feed.add_issue(agent=company.ada)
    bank, other = company.adas_bank, company.beas_bank
    comments = [company.feed.add_comment(issue) for _ in range(8)]
    missing, dead, failed, stalled, stale, duplicate, deleted, cancelled = comments
    company.dead_letters[event_id(CREATED, dead)] = "rejected"
    long_ago, error = format_timestamp(NOON - 7_200), "RuntimeError: it broke\nTraceback: much"
    company.hindsight.operations_by_bank[bank] = [
        Operation("op-1", "retain", "failed", failed, format_timestamp(NOON), error),
        Operation("op-2", "retain", "processing", stalled, long_ago),
    ]
    company.hindsight.store(bank, stale, "Another text.")
    company.hindsight.store(bank, duplicate)
    for comment in (duplicate, deleted, cancelled):
        company.hindsight.store(other, comment)
    company.feed.delete_comment(deleted)
    company.feed.cancel_comment(cancelled)
    report = await company.audit()
    assert [(finding.comment, finding.reason) for finding in report.of_kind(Kind.MISSING)] == [
        (missing, ""),
        (dead, "it is a dead letter: rejected"),
        (failed, "its retain failed: RuntimeError: it broke"),
        (stalled, f"its retain is stalled since {long_ago}"),
    ]
    assert comments_of(report, Kind.STALE) == [stale]
    duplicates = report.of_kind(Kind.DUPLICATE)
    assert [(finding.comment, finding.bank, finding.wrong_banks) for finding in duplicates] == [
        (duplicate, bank, (other,))
    ]
    assert {finding.comment: finding.reason for finding in report.of_kind(Kind.ORPHANED)} == {
        deleted: "deleted in Paperclip",
        cancelled: "cancelled in Paperclip",
    }
    assert [listed.operation.id for listed in report.failed] == ["op-1"]
    assert [listed.operation.id for listed in report.stalled] == ["op-2"]
    assert not report.clean
    text = render_text(report, None)
    assert "4 missing" in text
    assert "Traceback" not in text + render_json([(report, None)])
    assert "repair it with --fix" in text


async def test_comment_with_a_pending_retain_is_waiting_not_missing(company: ReconcileHarness) -> None:
    comment = company.feed.add_comment(company.feed.add_issue(agent=company.ada))
    pending = Operation("op-1", "retain", "pending", comment, company.feed.time)
    company.hindsight.operations_by_bank[company.adas_bank] = [pending]
    report = await company.audit()
    assert (report.waiting, report.clean) == (1, True)


async def test_document_that_a_list_leaves_out_is_stored(company: ReconcileHarness) -> None:
    """Pages are numbered: a document that is written meanwhile moves another one out of them."""
    comment = company.feed.add_comment(company.feed.add_issue(agent=company.ada))
    company.hindsight.store(company.adas_bank, comment)
    company.hindsight.unlisted.add(comment)
    assert (await company.audit()).stored == 1


async def test_comments_that_the_policy_skips_are_counted_by_reason(company: ReconcileHarness) -> None:
    issue, unassigned = company.feed.add_issue(agent=company.ada), company.feed.add_issue()
    company.feed.add_comment(issue, authorType="system", authorUserId=None)
    company.feed.add_comment(issue, " ")
    company.feed.add_comment(issue, sourceTrust={"disposition": "quarantined"})
    company.feed.add_comment(unassigned)
    report = await company.audit()
    assert report.clean
    assert dict(report.skipped) == {
        SkipReason.SYSTEM_COMMENT: 1,
        SkipReason.BLANK_COMMENT: 1,
        SkipReason.QUARANTINED: 1,
        SkipReason.NO_AGENT: 1,
    }


async def test_documents_of_tools_and_of_unknown_comments_are_left_alone(company: ReconcileHarness) -> None:
    unknown = new_id()
    company.hindsight.store(company.adas_bank, "tool-1", "Saved.", commentId="")
    company.hindsight.store(company.adas_bank, unknown, "Who said that?")
    report = await company.audit()
    assert report.clean
    assert report.unknown == [unknown]
    assert await company.repair(report) == 0
    assert company.hindsight.banks[company.adas_bank].keys() == {"tool-1", unknown}


async def test_document_of_a_hidden_issues_comment_is_stored(company: ReconcileHarness) -> None:
    issue = company.feed.add_issue(agent=company.ada)
    comment = company.feed.add_comment(issue)
    company.feed.hidden.add(issue)
    company.hindsight.store(company.adas_bank, comment, issueId=issue)
    report = await company.audit()
    assert (report.stored, report.unknown) == (1, [])


async def test_comment_that_has_not_settled_is_not_compared(company: ReconcileHarness) -> None:
    company.feed.advance(100)
    company.feed.add_comment(company.feed.add_issue(agent=company.ada))
    company.feed.advance(-SETTLE_TIME - 1)
    assert (await company.audit()).comments == 0


async def test_comments_before_since_are_not_compared(company: ReconcileHarness) -> None:
    issue = company.feed.add_issue(agent=company.ada)
    company.feed.add_comment(issue)
    company.feed.advance(100)
    comment = company.feed.add_comment(issue)
    report = await company.audit(since=NOON + 50)
    assert comments_of(report, Kind.MISSING) == [comment]


async def test_cancelled_comment_is_unknown_without_the_audit_feed(company: ReconcileHarness) -> None:
    company.feed.audit_allowed = False
    issue = company.feed.add_issue(agent=company.ada)
    deleted, cancelled = company.feed.add_comment(issue), company.feed.add_comment(issue)
    for comment in (deleted, cancelled):
        company.hindsight.store(company.adas_bank, comment, issueId=issue)
    company.feed.delete_comment(deleted)
    company.feed.cancel_comment(cancelled)
    report = await company.audit()
    assert comments_of(report, Kind.ORPHANED) == [deleted]
    assert report.unknown == [cancelled]
    assert any("may not read the audit feed" in note for note in report.notes)


async def test_issue_that_cannot_be_read_is_a_note(company: ReconcileHarness) -> None:
    company.feed.add_comment(company.feed.add_issue(agent=company.ada))
    gone = Permanent("Issue not found", reason=FORBIDDEN.reason, upstream=Upstream.PAPERCLIP)
    company.feed.failures["comments"].append(gone)
    assert "could not be read" in (await company.audit()).notes[0]


async def test_document_in_a_users_bank_is_stored() -> None:
    company = ReconcileHarness(granularity=(BankPart.COMPANY, BankPart.AGENT, BankPart.USER))
    issue = company.feed.add_issue(agent=company.ada)
    company.feed.issues_by_id[issue]["originId"] = "mail::ada@example.com"
    comment = company.feed.add_comment(issue)
    company.hindsight.store(f"{company.adas_bank}::user::ada@example.com", comment)
    assert (await company.audit()).stored == 1


async def test_failed_operation_of_another_document_is_listed_and_no_fault(company: ReconcileHarness) -> None:
    failed = Operation("op-1", "retain", "failed", "tool-1", format_timestamp(NOON), "it broke")
    company.hindsight.operations_by_bank[company.adas_bank] = [failed]
    report = await company.audit()
    assert report.clean
    assert "operation op-1 failed: retain of tool-1" in render_text(report, None)


async def test_failed_operation_of_a_stored_or_still_pending_document_is_not_listed(
    company: ReconcileHarness,
) -> None:
    now = format_timestamp(company.feed.now + 60)
    company.hindsight.store(company.adas_bank, "stored")
    company.hindsight.operations_by_bank[company.adas_bank] = [
        Operation("op-1", "retain", "failed", "stored", now),
        Operation("op-2", "retain", "failed", "pending", now),
        Operation("op-3", "retain", "pending", "pending", now),
    ]
    report = await company.audit()
    assert (report.failed, report.stalled) == ([], [])


def test_text_report_has_a_line_for_everything() -> None:
    findings = [Finding(Kind.DUPLICATE, f"c-{number}", "i-1", "b-1", ("b-2",), "why") for number in range(21)]
    report = Report("acme", 30, 9, 1, 2, Counter({SkipReason.NO_AGENT: 3}), findings, ["d-1"])
    report.stalled = [BankOperation("b-1", Operation("op-1", "retain", "processing", "d-2"))]
    report.notes = ["issue i-2 could not be read: 403"]
    summary, *lines = render_text(report, 21).splitlines()
    assert summary.startswith("company acme: 30 comments; 9 stored (1 in another bank than the settings choose today)")
    assert summary.endswith(", 2 waiting for Hindsight")
    assert lines[:3] == [
        "  skipped: 3 no_agent",
        "  21 duplicate: more than one bank holds the document",
        "    c-0 of issue i-1: belongs in b-1, is in b-2; why",
    ]
    assert lines[22:] == [
        "    … and 1 more (--json has all)",
        "  operation op-1 stalled: retain of d-2, bank b-1, processing",
        "  1 documents of comments that Paperclip does not show: left alone",
        "  note: issue i-2 could not be read: 403",
        "  21 repaired or sent to the workers: run the audit again when they are done",
    ]


def test_text_report_of_a_clean_company_is_two_lines() -> None:
    report = Report("acme", comments=3, stored=3)
    assert render_text(report, None).splitlines() == ["company acme: 3 comments; 3 stored", "  nothing to repair"]


def test_json_report_has_the_counts() -> None:
    report = Report(COMPANY, comments=3, stored=2)
    rendered = json.loads(render_json([(report, None)]))
    assert rendered["clean"] is True
    assert rendered["companies"][0] | {"comments": 3, "stored": 2} == rendered["companies"][0]
