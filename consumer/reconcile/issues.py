"""The issues of a company that reconcile reads."""

from collections.abc import AsyncIterator

from consumer.paperclip.models import Json
from consumer.relay.protocols import PaperclipFeed
from schemas.timestamps import parse_timestamp


async def active_issues(
    paperclip: PaperclipFeed, company: str, since: float, issue_id: str | None = None
) -> AsyncIterator[Json]:
    """The company's issues with activity since, seconds since the epoch; or the one that is named."""
    if issue_id is not None:
        issue = await paperclip.issue_json(issue_id)
        if issue is not None and issue["companyId"] == company:
            yield issue
        return
    async for issue in paperclip.issues(company):
        if parse_timestamp(issue.get("lastActivityAt") or issue["updatedAt"]) >= since:
            yield issue
