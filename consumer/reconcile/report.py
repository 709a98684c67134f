"""What backfill and audit print. Pure. No bodies; ids and reasons only."""

import json
from collections.abc import Sequence
from typing import Any

from consumer.reconcile.findings import Finding, Kind, Report, brief

SHOWN = 20
"""Findings of a kind that are listed for people; JSON has all."""

_TITLES = {
    Kind.MISSING: "missing: Hindsight holds no document of these comments",
    Kind.STALE: "stale: the document has another text than the comment",
    Kind.DOUBLED: "doubled: more than one bank holds the document",
    Kind.LEFT_OVER: "left over: the comment was deleted or cancelled",
}


def audit_text(report: Report, repaired: int | None) -> str:
    """A company's report for people. `repaired`: how many findings were; None if that was not asked for."""
    lines = [
        f"company {report.company}: {report.comments} comments; {report.held} held"
        + (f" ({report.elsewhere} where the rules would not put them today)" if report.elsewhere else "")
        + (f", {report.waiting} waiting for Hindsight" if report.waiting else "")
    ]
    if report.skipped:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(report.skipped.items()))
        lines.append(f"  skipped by the rules: {reasons}")
    for kind, title in _TITLES.items():
        if found := report.of_kind(kind):
            lines.append(f"  {len(found)} {title}")
            lines += [f"    {_finding(each)}" for each in found[:SHOWN]]
            lines += [f"    … and {len(found) - SHOWN} more (--json has all)"] if len(found) > SHOWN else []
    for title, operations in (("failed", report.failed), ("hung", report.hung)):
        lines += [
            f"  operation {op.id} {title}: {op.type} of {op.document_id}, bank {bank}, {brief(op.error) or op.status}"
            for bank, op in operations[:SHOWN]
        ]
    if report.unknown:
        lines.append(f"  {len(report.unknown)} documents of comments that Paperclip does not show: left alone")
    lines += [f"  note: {note}" for note in report.notes]
    if report.clean:
        lines.append("  nothing to repair")
    elif repaired is not None:
        lines.append(f"  {repaired} repaired or sent to the workers: look again when they are done")
    else:
        lines.append("  repair it with --fix")
    return "\n".join(lines)


def audit_json(reports: Sequence[tuple[Report, int | None]]) -> str:
    """All reports for scripts."""
    found = [_report(report) | {"repaired": repaired} for report, repaired in reports]
    return json.dumps({"clean": all(report.clean for report, _ in reports), "companies": found}, indent=2)


def _finding(each: Finding) -> str:
    where = f"belongs in {each.bank}" if each.bank is not None else "belongs nowhere"
    wrong = f", is in {', '.join(each.wrong)}" if each.wrong else ""
    return f"{each.comment} of issue {each.issue}: {where}{wrong}" + (f"; {each.reason}" if each.reason else "")


def _report(report: Report) -> dict[str, Any]:
    return {
        "company": report.company,
        "comments": report.comments,
        "held": report.held,
        "elsewhere": report.elsewhere,
        "waiting": report.waiting,
        "skipped": {reason.value: count for reason, count in sorted(report.skipped.items())},
        **{
            kind.value: [
                {
                    "comment": each.comment,
                    "issue": each.issue,
                    "bank": each.bank,
                    "wrong_banks": list(each.wrong),
                    "reason": each.reason,
                }
                for each in report.of_kind(kind)
            ]
            for kind in Kind
        },
        **{
            name: [
                {
                    "bank": bank,
                    "id": op.id,
                    "document": op.document_id,
                    "since": op.created_at,
                    "error": brief(op.error),
                }
                for bank, op in operations
            ]
            for name, operations in (("failed_operations", report.failed), ("hung_operations", report.hung))
        },
        "unknown_documents": report.unknown,
        "notes": report.notes,
    }
