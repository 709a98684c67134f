"""Renders an audit's reports: ids and reasons only, no bodies. Pure."""

import json
from collections.abc import Sequence
from typing import Any

from consumer.memory.sanitize import printable
from consumer.reconcile.findings import BankOperation, Finding, Kind, Report, first_line

LISTED = 20
"""Findings of a kind that the text lists; JSON has all."""

_TITLES = {
    Kind.MISSING: "missing: no bank holds the document of these comments",
    Kind.STALE: "stale: the document's text differs from the comment's",
    Kind.DUPLICATE: "duplicate: more than one bank holds the document",
    Kind.ORPHANED: "orphaned: the comment was deleted or cancelled",
}


def render_text(report: Report, repaired: int | None) -> str:
    """A company's report for people. `repaired`: the number of repaired findings; None without `--fix`."""
    lines = [
        f"company {report.company}: {report.comments} comments; {report.stored} stored"
        + (f" ({report.elsewhere} in another bank than the settings choose today)" if report.elsewhere else "")
        + (f", {report.waiting} waiting for Hindsight" if report.waiting else "")
    ]
    if report.skipped:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(report.skipped.items()))
        lines.append(f"  skipped: {reasons}")
    for kind, title in _TITLES.items():
        if findings := report.of_kind(kind):
            lines.append(f"  {len(findings)} {title}")
            lines += [f"    {_finding_text(finding)}" for finding in findings[:LISTED]]
            if len(findings) > LISTED:
                lines.append(f"    … and {len(findings) - LISTED} more (--json has all)")
    for title, operations in (("failed", report.failed), ("stalled", report.stalled)):
        lines += [f"  {_operation_text(operation, title)}" for operation in operations[:LISTED]]
    if report.unknown:
        lines.append(f"  {len(report.unknown)} documents of comments that Paperclip does not show: left alone")
    lines += [f"  note: {note}" for note in report.notes]
    if report.clean:
        lines.append("  nothing to repair")
    elif repaired is not None:
        lines.append(f"  {repaired} repaired or sent to the workers: run the audit again when they are done")
    else:
        lines.append("  repair it with --fix")
    return "\n".join(map(printable, lines))


def render_json(reports: Sequence[tuple[Report, int | None]]) -> str:
    """All reports for scripts."""
    companies = [_report_json(report) | {"repaired": repaired} for report, repaired in reports]
    return json.dumps({"clean": all(report.clean for report, _ in reports), "companies": companies}, indent=2)


def _finding_text(finding: Finding) -> str:
    where = f"belongs in {finding.bank}" if finding.bank is not None else "belongs in no bank"
    wrong = f", is in {', '.join(finding.wrong_banks)}" if finding.wrong_banks else ""
    reason = f"; {finding.reason}" if finding.reason else ""
    return f"{finding.comment} of issue {finding.issue}: {where}{wrong}{reason}"


def _operation_text(listed: BankOperation, title: str) -> str:
    operation = listed.operation
    why = first_line(operation.error) or operation.status
    return f"operation {operation.id} {title}: {operation.type} of {operation.document_id}, bank {listed.bank}, {why}"


def _report_json(report: Report) -> dict[str, Any]:
    return {
        "company": report.company,
        "comments": report.comments,
        "stored": report.stored,
        "elsewhere": report.elsewhere,
        "waiting": report.waiting,
        "skipped": {reason.value: count for reason, count in sorted(report.skipped.items())},
        **{kind.value: [_finding_json(finding) for finding in report.of_kind(kind)] for kind in Kind},
        "failed_operations": [_operation_json(operation) for operation in report.failed],
        "stalled_operations": [_operation_json(operation) for operation in report.stalled],
        "unknown_documents": report.unknown,
        "notes": report.notes,
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "comment": finding.comment,
        "issue": finding.issue,
        "bank": finding.bank,
        "wrong_banks": list(finding.wrong_banks),
        "reason": finding.reason,
    }


def _operation_json(listed: BankOperation) -> dict[str, Any]:
    operation = listed.operation
    return {
        "bank": listed.bank,
        "id": operation.id,
        "document": operation.document_id,
        "since": operation.created_at,
        "error": first_line(operation.error),
    }
