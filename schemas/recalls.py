"""What stands on the recalls topic: the memories recalled for one run. Key: runId; a tombstone ends it."""

from enum import StrEnum

from schemas.paperclip import CamelModel, Uuid


class RecallStatus(StrEnum):
    """How the recall at the run's start ended."""

    RECALLED = "recalled"
    EMPTY = "empty"
    FAILED = "failed"


class RecallRecord(CamelModel):
    """The memories of one run. The last record of a run wins; `memories` are the texts, best first.

    `bank_id` is None only when the failure came before the bank was known.
    """

    run_id: Uuid
    company_id: Uuid
    agent_id: Uuid
    issue_id: Uuid
    bank_id: str | None
    user_id: str | None
    query: str
    status: RecallStatus
    memories: list[str]
    recalled_at: str
