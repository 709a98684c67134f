"""The records of the recalls topic: the memories recalled for a run. The key is the runId; a tombstone ends it."""

from enum import StrEnum

from schemas.paperclip import CamelModel, Uuid


class RecallStatus(StrEnum):
    """How the recall at the run's start ended."""

    RECALLED = "recalled"
    EMPTY = "empty"
    FAILED = "failed"


class RecallRecord(CamelModel):
    """The memories of one run. The last record of a run counts; `memories` are texts, the best first.

    `bank_id` is None only if the recall failed before the bank was determined.
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
