"""Audit, its repairs, and backfill, on a Paperclip and a Hindsight on paper."""

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from consumer.errors import Permanent, Upstream
from consumer.handlers.results import SkipReason
from consumer.hindsight.models import Document
from consumer.memory.documents import Operation
from consumer.memory.policy import BankPart, MemoryPolicy
from consumer.reconcile import backfill
from consumer.reconcile import pass_ as module
from consumer.reconcile.backfill import Wanted, publish, survey
from consumer.reconcile.findings import Kind, Report
from consumer.reconcile.pass_ import Audit
from consumer.reconcile.repair import Fix
from consumer.reconcile.report import audit_json, audit_text
from consumer.relay.enrichment import Copies
from consumer.relay.event_builder import CREATED, DELETED, Announcement, Json, event_id
from consumer.relay.signals import RelaySignal
from consumer.relay.times import instant, iso
from consumer.relay.work import Progress
from tests.unit.relay.paper import COMPANY, FORBIDDEN, NOON, Paper, Post, new_id


@dataclass
class Shelf:
    """Documents and operations by bank."""

    banks: dict[str, dict[str, Document]] = field(default_factory=dict)
    work: dict[str, list[Operation]] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    hides: set[str] = field(default_factory=set)

    def hold(self, bank: str, id_: str, text: str, **about: str) -> None:
        digest = hashlib.sha256(text.encode()).hexdigest()
        metadata = {"commentId": id_, "companyId": COMPANY} | about
        document = Document(id=id_, content_hash=digest, document_metadata=metadata, updated_at=iso(NOON))
        self.banks.setdefault(bank, {})[id_] = document

    async def documents(self, bank: str) -> AsyncIterator[Document]:
        for document in self.banks.get(bank, {}).values():
            if document.id not in self.hides:
                yield document

    async def document(self, bank: str, id_: str) -> Document | None:
        return self.banks.get(bank, {}).get(id_)

    async def operations(self, bank: str, *, status: str, type: str) -> AsyncIterator[Operation]:  # noqa: A002
        for operation in self.work.get(bank, []):
            if operation.status == status:
                yield operation

    async def unfinished_retains(self, bank: str, document_id: str) -> list[Operation]:
        return [each for each in self.work.get(bank, []) if each.document_id == document_id]

    async def cancel(self, bank: str, operation_id: str) -> bool:
        self.cancelled.append(operation_id)
        return True

    async def delete_document(self, bank: str, document_id: str) -> bool:
        return self.banks.get(bank, {}).pop(document_id, None) is not None


class Desk:
    def __init__(self, **rules: object) -> None:
        self.paper, self.shelf, self.post, self.heard = Paper(), Shelf(), Post(), list[RelaySignal]()
        self.rules = MemoryPolicy(**rules)  # type: ignore[arg-type]
        self.ada, self.bea = self.paper.agents_
        self.copies = Copies(self.paper, self.heard.append, enabled=True, issues=False, now=lambda: self.paper.now)  # type: ignore[arg-type]
        self.letters: dict[str, str] = {}
        self.issues: dict[str, Json] = {}

    def bank(self, agent: str) -> str:
        return f"paperclip::{COMPANY}::{agent}"

    async def audit(self, since: float = 0.0) -> Report:
        def progress(_: str) -> Progress:
            return lambda *_: None

        self.paper.tick(module.SETTLING + 1)
        audit = Audit(self.paper, self.shelf, self.rules, self.letters, lambda: self.paper.now, progress)  # type: ignore[arg-type]
        report, self.issues = await audit.run(COMPANY, since)
        return report

    async def fix(self, report: Report, repair: str = "audit 1") -> int:
        fix = Fix(self.paper, self.shelf, self.post, self.copies, self.issues, repair)  # type: ignore[arg-type]
        return await fix.run(report)


def of(report: Report, kind: Kind) -> list[str]:
    return [each.comment for each in report.of_kind(kind)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_what_is_held_is_held_wherever_it_is(desk: Desk) -> None:
    """Attribution changes; a comment stays where it was stored, and so does one of an issue assigned since."""
    issue = desk.paper.open(agent=desk.ada)
    by_ada, by_user, old = desk.paper.say(issue, agent=desk.ada), desk.paper.say(issue), desk.paper.say(issue)
    desk.paper.tick(10)
    desk.paper.assign(issue, desk.bea)
    for comment in (by_ada, by_user):
        desk.shelf.hold(desk.bank(desk.ada), comment, "Said.")
    desk.shelf.hold(desk.bank(desk.bea), old, "Said.")
    report = await desk.audit()
    assert report.clean
    assert (report.comments, report.held, report.elsewhere) == (3, 3, 1)


async def test_each_kind_of_fault_with_its_reason(desk: Desk) -> None:
    issue = desk.paper.open(agent=desk.ada)
    bank, other = desk.bank(desk.ada), desk.bank(desk.bea)
    missing, dead, failed, hung, stale, doubled, gone, cancelled = (desk.paper.say(issue) for _ in range(8))
    desk.letters[event_id(CREATED, dead)] = "rejected"
    old, error = iso(NOON - 7_200), "RuntimeError: it broke\nTraceback: much"
    desk.shelf.work[bank] = [
        Operation("op-1", "retain", "failed", failed, iso(NOON), error),
        Operation("op-2", "retain", "processing", hung, old),
    ]
    desk.shelf.hold(bank, stale, "Another text.")
    desk.shelf.hold(bank, doubled, "Said.")
    desk.shelf.hold(other, doubled, "Said.")
    for comment in (gone, cancelled):
        desk.shelf.hold(other, comment, "Said.")
    desk.paper.delete(gone)
    desk.paper.cancel(cancelled)
    report = await desk.audit()
    assert of(report, Kind.MISSING) == [missing, dead, failed, hung]
    assert [each.reason for each in report.of_kind(Kind.MISSING)] == [
        "",
        "it is a dead letter: rejected",
        "its retain failed: RuntimeError: it broke",
        f"its retain hangs since {old}",
    ]
    assert of(report, Kind.STALE) == [stale]
    assert [(each.comment, each.bank, each.wrong) for each in report.of_kind(Kind.DOUBLED)] == [
        (doubled, bank, (other,))
    ]
    assert {each.comment: each.reason for each in report.of_kind(Kind.LEFT_OVER)} == {
        gone: "deleted in Paperclip",
        cancelled: "cancelled in Paperclip",
    }
    assert [operation.id for _, operation in report.failed] == ["op-1"]
    assert [operation.id for _, operation in report.hung] == ["op-2"]
    assert not report.clean
    text = audit_text(report, None)
    assert "4 missing" in text
    assert "Traceback" not in text + audit_json([(report, None)])
    assert "repair it with --fix" in text


async def test_what_waits_is_not_missing(desk: Desk) -> None:
    said = desk.paper.say(desk.paper.open(agent=desk.ada))
    pending = Operation("op-1", "retain", "pending", said, iso(desk.paper.now))
    desk.shelf.work[desk.bank(desk.ada)] = [pending]
    report = await desk.audit()
    assert (report.waiting, report.clean) == (1, True)


async def test_a_list_that_hides_a_document_is_not_believed(desk: Desk) -> None:
    """Pages are numbered: a document written meanwhile moves another one out of them."""
    said = desk.paper.say(desk.paper.open(agent=desk.ada))
    desk.shelf.hold(desk.bank(desk.ada), said, "Said.")
    desk.shelf.hides.add(said)
    assert (await desk.audit()).held == 1


async def test_what_the_rules_skip(desk: Desk) -> None:
    issue, nobodys = desk.paper.open(agent=desk.ada), desk.paper.open()
    desk.paper.say(issue, authorType="system", authorUserId=None)
    desk.paper.say(issue, " ")
    desk.paper.say(issue, sourceTrust={"disposition": "quarantined"})
    desk.paper.say(nobodys)
    report = await desk.audit()
    assert report.clean
    assert dict(report.skipped) == {
        SkipReason.SYSTEM_COMMENT: 1,
        SkipReason.BLANK_COMMENT: 1,
        SkipReason.QUARANTINED: 1,
        SkipReason.NO_AGENT: 1,
    }


async def test_documents_that_are_not_comments_or_not_known_are_left_alone(desk: Desk) -> None:
    desk.shelf.hold(desk.bank(desk.ada), "tool-1", "Saved.", commentId="")
    unknown = new_id()
    desk.shelf.hold(desk.bank(desk.ada), unknown, "Who said that?")
    report = await desk.audit()
    assert report.clean
    assert report.unknown == [unknown]
    assert await desk.fix(report) == 0
    assert desk.shelf.banks[desk.bank(desk.ada)].keys() == {"tool-1", unknown}


async def test_comments_of_hidden_issues_are_known_by_their_documents(desk: Desk) -> None:
    issue = desk.paper.open(agent=desk.ada)
    said = desk.paper.say(issue)
    desk.paper.hidden.add(issue)
    desk.shelf.hold(desk.bank(desk.ada), said, "Said.", issueId=issue)
    report = await desk.audit()
    assert (report.held, report.unknown) == (1, [])


async def test_comments_of_just_now_are_left_alone(desk: Desk) -> None:
    desk.paper.tick(100)
    desk.paper.say(desk.paper.open(agent=desk.ada))
    desk.paper.tick(-module.SETTLING - 1)
    assert (await desk.audit()).comments == 0


async def test_only_what_was_said_since(desk: Desk) -> None:
    issue = desk.paper.open(agent=desk.ada)
    desk.paper.say(issue)
    desk.paper.tick(100)
    said = desk.paper.say(issue)
    report = await desk.audit(since=NOON + 50)
    assert of(report, Kind.MISSING) == [said]


async def test_without_the_audit_feed_it_says_what_it_cannot_know(desk: Desk) -> None:
    desk.paper.auditable = False
    issue = desk.paper.open(agent=desk.ada)
    deleted, cancelled = desk.paper.say(issue), desk.paper.say(issue)
    for comment in (deleted, cancelled):
        desk.shelf.hold(desk.bank(desk.ada), comment, "Said.", issueId=issue)
    desk.paper.delete(deleted)
    desk.paper.cancel(cancelled)
    report = await desk.audit()
    assert of(report, Kind.LEFT_OVER) == [deleted]
    assert report.unknown == [cancelled]
    assert any("may not read the audit feed" in note for note in report.notes)


async def test_an_issue_that_cannot_be_read_is_noted(desk: Desk) -> None:
    desk.paper.say(desk.paper.open(agent=desk.ada))
    gone = Permanent("Issue not found", reason=FORBIDDEN.reason, upstream=Upstream.PAPERCLIP)
    desk.paper.failures["comments"].append(gone)
    assert "could not be read" in (await desk.audit()).notes[0]


async def test_banks_of_users_are_looked_into() -> None:
    desk = Desk(granularity=(BankPart.COMPANY, BankPart.AGENT, BankPart.USER))
    issue = desk.paper.open(agent=desk.ada)
    desk.paper.issues_[issue]["originId"] = "mail::ada@example.com"
    said = desk.paper.say(issue)
    desk.shelf.hold(f"{desk.bank(desk.ada)}::user::ada@example.com", said, "Said.")
    assert (await desk.audit()).held == 1


async def test_fix_publishes_what_is_missing_with_a_repair_and_takes_doubles_out(desk: Desk) -> None:
    issue = desk.paper.open(agent=desk.ada)
    missing, doubled, gone = desk.paper.say(issue), desk.paper.say(issue), desk.paper.say(issue)
    bank, other = desk.bank(desk.ada), desk.bank(desk.bea)
    desk.shelf.hold(bank, doubled, "Said.")
    desk.shelf.hold(other, doubled, "Said.")
    desk.shelf.hold(other, gone, "Said.")
    desk.shelf.work[other] = [Operation("op-1", "retain", "pending", doubled, iso(NOON))]
    desk.paper.delete(gone)
    report = await desk.audit()
    desk.paper.tick(10)
    desk.paper.assign(issue, desk.bea)
    assert await desk.fix(report) == 3
    assert desk.post.subjects == [(CREATED, missing), (DELETED, gone)]
    created = desk.post.sent[0]
    assert (created.replay, created.repair) == (True, "audit 1")
    assert created.copies["issue"]["assigneeAgentId"] == desk.ada  # whose it was when it was said
    assert "comment" not in created.copies
    assert desk.shelf.cancelled == ["op-1"]
    assert (doubled in desk.shelf.banks[bank], doubled in desk.shelf.banks[other]) == (True, False)
    assert gone in desk.shelf.banks[other]  # a worker forgets it, in order with its other events
    assert "3 repaired" in audit_text(report, 3)


async def test_fix_leaves_alone_what_is_gone_by_now(desk: Desk) -> None:
    issue = desk.paper.open(agent=desk.ada)
    unseen, deleted, cancelled, living = (desk.paper.say(issue) for _ in range(4))
    report = await desk.audit()
    desk.paper.delete(deleted)
    desk.paper.cancel(cancelled)
    desk.paper.failures["comment_json"].append(FORBIDDEN)
    assert [each.comment for each in report.findings] == [unseen, deleted, cancelled, living]
    assert await desk.fix(report) == 1
    assert desk.post.subjects == [(CREATED, living)]


def test_json_has_everything() -> None:
    report = Report(COMPANY, comments=3, held=2)
    found = json.loads(audit_json([(report, None)]))
    assert found["clean"] is True
    assert found["companies"][0] | {"comments": 3, "held": 2} == found["companies"][0]


class TestBackfill:
    """Past comments, the oldest first."""

    async def found(self, desk: Desk, **wanted: object) -> list[Announcement]:
        all_of_it = await survey(
            desk.paper,  # type: ignore[arg-type]
            desk.copies,
            Wanted(COMPANY, **wanted),  # type: ignore[arg-type]
            lambda *_: None,
        )
        return all_of_it.announcements

    async def test_over_all_issues_without_bodies_and_deleted_ones(self, desk: Desk) -> None:
        first, second = desk.paper.open(agent=desk.ada), desk.paper.open(agent=desk.ada)
        said = [desk.paper.say(issue, "x" * 5_000) for issue in (first, second, first, second)]
        desk.paper.delete(said.pop())
        found = await self.found(desk)
        assert [each.subject for each in found] == said
        for each in found:
            assert each.replay
            assert each.copies.keys() == {"issue"}
            assert len(json.dumps(each.value())) < 2_000

    async def test_since_and_of_one_issue(self, desk: Desk) -> None:
        first, second = desk.paper.open(), desk.paper.open()
        desk.paper.say(first)
        desk.paper.tick(100)
        said, other = desk.paper.say(first), desk.paper.say(second)
        assert [each.subject for each in await self.found(desk, since=NOON + 50)] == [said, other]
        assert [each.subject for each in await self.found(desk, since=NOON + 50, issue=first)] == [said]
        assert await self.found(desk, issue=new_id()) == []

    async def test_an_error_of_paperclip_is_raised_as_itself(self, desk: Desk) -> None:
        desk.paper.say(desk.paper.open())
        desk.paper.failures["comments"].append(ValueError("odd"))
        with pytest.raises(ValueError, match="odd"):
            await self.found(desk)

    async def test_it_notes_how_far_it_came(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(backfill, "SAVED_EVERY", 2)
        issue = desk.paper.open()
        for _ in range(5):
            desk.paper.say(issue)
        found = await self.found(desk)
        reached, progress = [], []

        async def save(at: float) -> None:
            reached.append((at, len(desk.post.sent)))

        await publish(found, desk.post, save, lambda *each: progress.append(each), None)  # type: ignore[arg-type]
        times = [instant(each.occurred_at) for each in found]
        assert reached == [(times[1], 2), (times[3], 4), (times[4], 5)]
        assert progress == [(2, 5), (4, 5), (5, 5)]

    async def test_a_rate_is_kept(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        monkeypatch.setattr("consumer.reconcile.backfill.asyncio.sleep", sleep)
        monkeypatch.setattr("consumer.reconcile.backfill.time.monotonic", lambda: 0.0)
        issue = desk.paper.open()
        for _ in range(4):
            desk.paper.say(issue)

        async def save(_: float) -> None: ...

        await publish(await self.found(desk), desk.post, save, lambda *_: None, 2.0)  # type: ignore[arg-type]
        assert slept == [1.0, 2.0]


async def test_somebody_elses_failed_operation_is_named_and_nothing_more(desk: Desk) -> None:
    bank = desk.bank(desk.ada)
    desk.shelf.work[bank] = [Operation("op-1", "retain", "failed", "tool-1", iso(NOON), "it broke")]
    report = await desk.audit()
    assert report.clean
    assert "operation op-1 failed: retain of tool-1" in audit_text(report, None)
