"""Repairs what an audit found. Only what Paperclip itself names is taken out of Hindsight."""

from collections.abc import Mapping
from contextlib import suppress

from consumer.errors import Permanent
from consumer.hindsight.client import HindsightClient
from consumer.paperclip.client import PaperclipClient
from consumer.reconcile.findings import Finding, Kind, Report
from consumer.relay.enrichment import Copies
from consumer.relay.event_builder import Announcement, Json, of_comment, of_vanished
from consumer.relay.publisher import Outbox


class Fix:
    """One repair of one company.

    Args:
        issues: by id, as the audit read them.
        repair: text that makes Hindsight work again what it knows: another for each repair.
    """

    def __init__(
        self,
        paperclip: PaperclipClient,
        hindsight: HindsightClient,
        outbox: Outbox,
        copies: Copies,
        issues: Mapping[str, Json],
        repair: str,
    ) -> None:
        self._paperclip = paperclip
        self._hindsight = hindsight
        self._outbox = outbox
        self._copies = copies
        self._issues = issues
        self._repair = repair

    async def run(self, report: Report) -> int:
        """Repair all findings; how many that was. Workers do the rest of it. Raises from `consumer.errors`."""
        announcements = []
        for finding in report.findings:
            if finding.kind is Kind.DOUBLED:
                for bank in finding.wrong:
                    await self._take_out(bank, finding.comment)
            else:
                with suppress(Permanent):  # its issue is shown no more
                    announcements += await self._announcement(finding)
        return await self._outbox.send(announcements) + len(report.of_kind(Kind.DOUBLED))

    async def _announcement(self, finding: Finding) -> list[Announcement]:
        """What tells the workers; nothing if the comment is gone by now, since the relay tells them that."""
        issue = self._issues.get(finding.issue) or await self._paperclip.issue_json(finding.issue)
        if issue is None:
            return []
        comment = await self._paperclip.comment_json(finding.issue, finding.comment)
        if finding.kind is Kind.LEFT_OVER:
            if comment is None:
                return [Announcement(of_vanished(finding.comment, issue, at=issue["updatedAt"]), replay=True)]
            return [Announcement(of_comment(comment, issue), replay=True)] if comment["deletedAt"] is not None else []
        if comment is None or comment["deletedAt"] is not None:
            return []
        then = self._copies.issue_then(issue)
        return [await self._copies.announce_read(comment, then, past=True, repair=self._repair)]

    async def _take_out(self, bank: str, comment: str) -> None:
        """Delete a document, and what would store it again."""
        for operation in await self._hindsight.unfinished_retains(bank, comment):
            await self._hindsight.cancel(bank, operation.id)
        await self._hindsight.delete_document(bank, comment)
