"""Paperclip's objects as its REST API returns them and events embed them; only fields that are read are declared."""

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

UUID_PATTERN = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"

Uuid = Annotated[str, StringConstraints(to_lower=True, pattern=UUID_PATTERN)]
"""A UUID in lower case. Paperclip answers 500, not 404, to any other text in its place."""


def is_uuid(value: object) -> bool:
    """Whether a value is a UUID, and so may be used as an id in a URL of Paperclip."""
    return isinstance(value, str) and re.fullmatch(UUID_PATTERN, value) is not None


class CamelModel(BaseModel):
    """camelCase outside, snake_case inside, unknown fields kept, immutable."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow", frozen=True)


class Presentation(CamelModel):
    """How Paperclip shows a comment; `kind` is `system_notice` for its own notices."""

    kind: str | None = None


class SourceTrust(CamelModel):
    """How far Paperclip trusts a text's source; `disposition` is `quarantined` when it does not."""

    preset: str | None = None
    disposition: str | None = None

    @property
    def is_quarantined(self) -> bool:
        """Whether Paperclip does not trust the source."""
        return self.disposition == "quarantined"


class Comment(CamelModel):
    """A comment. `derived_author_agent_id` can be set later than the comment; a deleted one keeps its row, bodyless."""

    id: Uuid
    company_id: Uuid | None = None
    issue_id: Uuid | None = None
    author_type: str | None = None
    author_agent_id: Uuid | None = None
    author_user_id: str | None = None
    derived_author_agent_id: Uuid | None = None
    created_by_run_id: Uuid | None = None
    derived_created_by_run_id: Uuid | None = None
    body: str | None = None
    presentation: Presentation | None = None
    source_trust: SourceTrust | None = None
    created_at: str | None = None
    updated_at: str | None = None
    deleted_at: str | None = None


class Issue(CamelModel):
    """An issue. No known server sends `creator_email`; `origin_id` is null, a UUID, or `key::…`."""

    id: Uuid | None = None
    company_id: Uuid | None = None
    title: str | None = None
    description: str | None = None
    assignee_agent_id: Uuid | None = None
    creator_email: str | None = None
    origin_id: str | None = None
    created_by_user_id: str | None = None
    updated_at: str | None = None


class WakeComment(CamelModel):
    """A comment that woke a run."""

    id: str | None = None
    body: str | None = None
    created_at: str | None = None
    source_trust: SourceTrust | None = None


class PaperclipWake(CamelModel):
    """What woke a run: the issue at that time, and the comments."""

    issue: Issue | None = None
    comments: list[WakeComment] = Field(default_factory=list)


class ContextSnapshot(CamelModel):
    """The context that Paperclip gave the run."""

    issue_id: str | None = None
    paperclip_wake: PaperclipWake | None = None


class Run(CamelModel):
    """A heartbeat run."""

    id: Uuid | None = None
    company_id: Uuid | None = None
    agent_id: Uuid | None = None
    status: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    context_snapshot: ContextSnapshot | None = None

    @property
    def wake(self) -> PaperclipWake | None:
        """What woke the run; None for timer and manual runs."""
        return self.context_snapshot.paperclip_wake if self.context_snapshot else None
