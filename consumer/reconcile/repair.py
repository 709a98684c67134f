"""Repairs what an audit found. Only what Paperclip itself names as gone is removed from Hindsight."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from consumer.errors import Permanent
from consumer.memory.documents import Operation
from consumer.paperclip.models import Json
from consumer.reconcile.findings import Finding, Kind, Report
from consumer.relay.enrichment import EventEnricher
from consumer.relay.event_builder import OutgoingEvent, event_from_comment, event_from_vanished_comment
from consumer.relay.protocols import EventSink, PaperclipFeed


class DocumentRemover(Protocol):
    """The part of `HindsightClient` that removes documents."""

    async def unfinished_retains(self, bank: str, document_id: str) -> list[Operation]: ...

    async def cancel(self, bank: str, operation_id: str) -> bool: ...

    async def delete_document(self, bank: str, document_id: str) -> bool: ...


class Repair:
    """One repair of one company.

    Args:
        issues: by id, as the audit read them.
        repair: text that makes Hindsight process a known comment again; another for each repair.
    """

    def __init__(
        self,
        paperclip: PaperclipFeed,
        hindsight: DocumentRemover,
        publisher: EventSink,
        enricher: EventEnricher,
        issues: Mapping[str, Json],
        repair: str,
    ) -> None:
        self._paperclip = paperclip
        self._hindsight = hindsight
        self._publisher = publisher
        self._enricher = enricher
        self._issues = issues
        self._repair = repair

    async def run(self, report: Report) -> int:
        """Remove duplicates, and publish events for the other findings, which workers handle.

        Returns:
            the number of findings that were repaired or published. Raises from `consumer.errors`.
        """
        events = []
        for finding in report.findings:
            if finding.kind is Kind.DUPLICATE:
                for bank in finding.wrong_banks:
                    await self._remove(bank, finding.comment)
            else:
                with suppress(Permanent):  # the key is no longer shown its issue
                    events += await self._event(finding)
        return await self._publisher.publish(events) + len(report.of_kind(Kind.DUPLICATE))

    async def _event(self, finding: Finding) -> list[OutgoingEvent]:
        """The event that repairs a finding; none if the comment is gone by now, since the relay publishes that."""
        issue = self._issues.get(finding.issue) or await self._paperclip.issue_json(finding.issue)
        if issue is None:
            return []
        comment = await self._paperclip.comment_json(finding.issue, finding.comment)
        if finding.kind is Kind.ORPHANED:
            if comment is None:
                vanished = event_from_vanished_comment(finding.comment, issue, at=issue["updatedAt"])
                return [OutgoingEvent(vanished, replay=True)]
            if comment["deletedAt"] is None:
                return []
            return [OutgoingEvent(event_from_comment(comment, issue), replay=True)]
        if comment is None or comment["deletedAt"] is not None:
            return []
        history = self._enricher.issue_history(issue)
        return [await self._enricher.enrich_comment(comment, history, past=True, repair=self._repair)]

    async def _remove(self, bank: str, comment: str) -> None:
        """Delete a document, and cancel the retains that would store it again."""
        for operation in await self._hindsight.unfinished_retains(bank, comment):
            await self._hindsight.cancel(bank, operation.id)
        await self._hindsight.delete_document(bank, comment)
