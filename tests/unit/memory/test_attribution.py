"""Users and authors. The plugin's own cases are in `test_plugin_vectors.py`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.memory.attribution import resolve_author, resolve_user
from consumer.memory.policy import MemoryPolicy, UserSource
from demo import recording
from schemas.paperclip import Comment, Issue

DEFAULT = MemoryPolicy().user_sources
ALL = frozenset(UserSource)
ADA, BEN, CID = (f"{number}0000000-0000-4000-8000-000000000000" for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("issue", "sources", "user"),
    [
        (Issue(creator_email="  ", origin_id="x::ada@e.com"), DEFAULT, "ada@e.com"),
        (Issue(creator_email="bo@e.com", origin_id="x::ada@e.com"), frozenset({UserSource.ORIGIN_ID}), "ada@e.com"),
        (Issue(creator_email="bo@e.com", origin_id="x::ada@e.com"), frozenset({UserSource.CREATOR_EMAIL}), "bo@e.com"),
        (Issue(origin_id="ada@e.com"), DEFAULT, "ada@e.com"),
        (Issue(origin_id="ada@e.com::bo@e.com::7"), DEFAULT, "bo@e.com"),
        (Issue(origin_id="ada@e.com:7"), DEFAULT, "ada@e.com:7"),
        (Issue(created_by_user_id="local-board"), DEFAULT, None),
        (Issue(created_by_user_id="local-board"), ALL, "local-board"),
        (Issue(created_by_user_id=" "), ALL, None),
        (Issue(created_by_user_id="local-board", origin_id="slack::7"), ALL, "local-board"),
        (Issue(), ALL, None),
    ],
)
def test_resolve_user(issue: Issue, sources: frozenset[UserSource], user: str | None) -> None:
    assert resolve_user(issue, sources) == user


@given(
    st.builds(Issue, creator_email=st.text(), origin_id=st.text(), created_by_user_id=st.text()),
    st.sets(st.sampled_from(list(UserSource))),
)
def test_a_user_is_never_blank_and_comes_from_the_issue(issue: Issue, sources: set[UserSource]) -> None:
    user = resolve_user(issue, sources)
    assert user is None or user.strip()
    assert user is None or user in f"{issue.creator_email} {issue.origin_id} {issue.created_by_user_id}"
    assert sources or user is None


@pytest.mark.parametrize(
    ("author", "derived", "event", "agent"),
    [(ADA, BEN, CID, ADA), (None, BEN, CID, BEN), (None, None, CID, CID), (None, None, None, None)],
)
def test_resolve_author(author: str | None, derived: str | None, event: str | None, agent: str | None) -> None:
    comment = Comment(id=ADA, author_agent_id=author, derived_author_agent_id=derived)
    assert resolve_author(comment, event) == agent


def test_every_agent_comment_of_the_recording_has_its_author() -> None:
    comments = [Comment.model_validate(comment) for comment in recording.comments()]
    for comment in comments:
        author = comment.author_agent_id if comment.author_type == "agent" else None
        assert resolve_author(comment, None) == author
