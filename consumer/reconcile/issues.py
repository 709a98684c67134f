"""The issues of a company that reconcile reads."""

from collections.abc import AsyncIterator

from consumer.paperclip.models import Json
from consumer.relay.protocols import PaperclipFeed
from schemas.timestamps import format_timestamp, parse_timestamp


async def active_issues(
    paperclip: PaperclipFeed, company: str, since: float, issue_id: str | None = None
) -> AsyncIterator[Json]:
    """The company's issues with activity since, seconds since the epoch; or the one that is named.

    A list leaves out an issue that changes while its pages are read. So issues that changed meanwhile are listed again,
    until there is no other one among them.
    """
    if issue_id is not None:
        issue = await paperclip.issue_json(issue_id)
        if issue is not None and issue["companyId"] == company:
            yield issue
        return
    seen, changed_since, is_complete = set[str](), None, False
    while not is_complete:
        is_complete, newest = True, 0.0
        async for issue in paperclip.issues(company, changed_since):
            newest = max(newest, parse_timestamp(issue["updatedAt"]))
            if issue["id"] in seen:
                continue
            seen.add(issue["id"])
            is_complete = False
            if parse_timestamp(issue.get("lastActivityAt") or issue["updatedAt"]) >= since:
                yield issue
        changed_since = format_timestamp(newest - 0.001)
