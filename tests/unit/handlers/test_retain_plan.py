"""`plan_retain` and `needs_issue`; the handler is tested in `test_retain.py`."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.handlers.results import Skipped, SkipReason
from consumer.handlers.retain_plan import LoadedComment, RetainPlan, needs_issue, plan_retain
from consumer.memory.documents import Memory
from consumer.memory.policy import BankPart, MemoryPolicy, UserSource
from schemas.paperclip import Comment, Issue
from tests.unit.handlers.samples import ADA, AGENT_COMMENT, BEN, COMMENTS, COMPANY, RUN, bank

ISSUE = COMMENTS[AGENT_COMMENT]["issueId"]
WITH_USER = MemoryPolicy(
    granularity=(BankPart.COMPANY, BankPart.AGENT, BankPart.USER),
    user_sources=frozenset({UserSource.CREATED_BY_USER_ID}),
)


def loaded(event_agent: str | None = None, **changes: Any) -> LoadedComment:
    """A loaded comment by Ada, with fields of the comment changed."""
    comment = Comment.model_validate({**COMMENTS[AGENT_COMMENT], **changes})
    return LoadedComment(comment, COMPANY, ISSUE, event_agent, RUN, "2026-11-30T10:00:00Z")


def test_a_plan_names_bank_document_and_metadata() -> None:
    comment = COMMENTS[AGENT_COMMENT]
    metadata = {
        "agentId": ADA,
        "companyId": COMPANY,
        "issueId": ISSUE,
        "commentId": AGENT_COMMENT,
        "runId": comment["createdByRunId"],
        "authorType": "agent",
    }
    memory = Memory(AGENT_COMMENT, comment["body"], comment["createdAt"], metadata)
    assert plan_retain(loaded(), None, MemoryPolicy()) == RetainPlan(bank(ADA), memory)


def test_the_event_fills_in_run_and_time_that_the_comment_lacks() -> None:
    plan = plan_retain(loaded(createdByRunId=None, createdAt=None), None, MemoryPolicy())
    assert isinstance(plan, RetainPlan)
    assert (plan.memory.metadata["runId"], plan.memory.timestamp) == (RUN, "2026-11-30T10:00:00Z")


def test_auto_retain_off_plans_nothing() -> None:
    assert plan_retain(loaded(), None, MemoryPolicy(auto_retain=False)) == Skipped(SkipReason.AUTO_RETAIN_OFF)


@pytest.mark.parametrize(
    ("comment", "policy", "needed"),
    [
        (loaded(), MemoryPolicy(), False),
        (loaded(authorAgentId=None), MemoryPolicy(), True),
        (loaded(BEN, authorAgentId=None), MemoryPolicy(), False),
        (loaded(authorAgentId=None, body=" "), MemoryPolicy(), False),
        (loaded(authorAgentId=None, authorType="system"), MemoryPolicy(), False),
        (loaded(), WITH_USER, True),
        (loaded(authorAgentId=None), WITH_USER, True),
        (loaded(), MemoryPolicy(granularity=WITH_USER.granularity, enabled_agents=frozenset({BEN})), False),
        (loaded(), MemoryPolicy(static_bank="shared", granularity=WITH_USER.granularity), False),
    ],
)
def test_the_issue_is_needed_for_the_assignee_or_the_user_only(
    comment: LoadedComment, policy: MemoryPolicy, needed: bool
) -> None:
    assert needs_issue(comment, policy) is needed


@given(
    st.fixed_dictionaries(
        {
            "authorAgentId": st.sampled_from([None, ADA]),
            "authorType": st.sampled_from(["agent", "system", None]),
            "body": st.sampled_from([None, " ", "Said."]),
        }
    ),
    st.sets(st.sampled_from(list(BankPart)), min_size=1),
    st.sampled_from([None, frozenset({ADA}), frozenset({BEN})]),
    st.booleans(),
)
def test_an_issue_that_is_not_needed_does_not_change_the_plan(
    changes: dict[str, Any], parts: set[BankPart], enabled: frozenset[str] | None, user_required: bool
) -> None:
    policy = MemoryPolicy(
        granularity=tuple(parts),
        user_sources=WITH_USER.user_sources,
        user_required=user_required,
        enabled_agents=enabled,
    )
    issue = Issue(id=ISSUE, assignee_agent_id=BEN, created_by_user_id="local-board")
    comment = loaded(**changes)
    if not needs_issue(comment, policy):
        assert plan_retain(comment, issue, policy) == plan_retain(comment, None, policy)
