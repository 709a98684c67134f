"""Repairing what an audit found."""

import pytest

from consumer.memory.documents import Operation
from consumer.reconcile.report import render_text
from consumer.relay.event_builder import CREATED, DELETED
from schemas.timestamps import format_timestamp
from tests.support.fake_feed import FORBIDDEN, NOON
from tests.unit.reconcile.harness import ReconcileHarness


@pytest.fixture
def company() -> ReconcileHarness:
    return ReconcileHarness()


async def test_repair_publishes_missing_and_orphaned_comments_and_removes_duplicates(
    company: ReconcileHarness,
) -> None:
    issue = company.feed.add_issue(agent=company.ada)
    missing, duplicate, orphaned = (company.feed.add_comment(issue) for _ in range(3))
    bank, other = company.adas_bank, company.beas_bank
    company.hindsight.store(bank, duplicate)
    company.hindsight.store(other, duplicate)
    company.hindsight.store(other, orphaned)
    pending = Operation("op-1", "retain", "pending", duplicate, format_timestamp(NOON))
    company.hindsight.operations_by_bank[other] = [pending]
    company.feed.delete_comment(orphaned)
    report = await company.audit()
    company.feed.advance(10)
    company.feed.assign(issue, company.bea)
    company.feed.calls.clear()
    assert await company.repair(report) == 3
    assert company.feed.calls["issue_json"] == 0  # the audit has read it
    assert company.publisher.published == [(CREATED, missing), (DELETED, orphaned)]
    created = company.publisher.events[0]
    assert (created.replay, created.repair) == (True, "audit 1")
    assert created.embedded["issue"]["assigneeAgentId"] == company.ada  # who had it when the comment was made
    assert "comment" not in created.embedded
    assert company.hindsight.cancelled == ["op-1"]
    assert duplicate in company.hindsight.banks[bank]
    assert duplicate not in company.hindsight.banks[other]
    assert orphaned in company.hindsight.banks[other]  # a worker forgets it, in order with its other events
    assert "3 repaired" in render_text(report, 3)


async def test_comment_that_is_gone_by_now_is_not_published(company: ReconcileHarness) -> None:
    issue = company.feed.add_issue(agent=company.ada)
    unreadable, deleted, cancelled, existing = (company.feed.add_comment(issue) for _ in range(4))
    report = await company.audit()
    company.feed.delete_comment(deleted)
    company.feed.cancel_comment(cancelled)
    company.feed.failures["comment_json"].append(FORBIDDEN)
    assert [finding.comment for finding in report.findings] == [unreadable, deleted, cancelled, existing]
    assert await company.repair(report) == 1
    assert company.publisher.published == [(CREATED, existing)]
