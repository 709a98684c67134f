"""A lane's scheduler against a model of Kafka: nothing lost, nothing out of order, nothing committed too early."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from consumer.errors import DeadLetterReason, DownKind, NotYet, Permanent, Transient, Upstream, UpstreamDown
from consumer.handlers.results import Done, Skipped, SkipReason
from consumer.stream.backpressure import BackpressureLimits
from consumer.stream.hooks import AttemptOutcome
from consumer.stream.records import Partition, Record, WorkItem
from consumer.stream.retry import RetryPolicy
from consumer.stream.scheduler import LaneScheduler

LIMIT = 3
PARTITIONS = (Partition("t", 0), Partition("t", 1))
KEYS = st.sampled_from([b"a", b"b", b"c", None])
FAILURES = st.sampled_from(
    [
        Transient("500", upstream=Upstream.HINDSIGHT),
        Transient("429", upstream=Upstream.HINDSIGHT, retry_after=2.0),
        Transient("500", upstream=Upstream.PAPERCLIP),
        NotYet("unfinished", upstream=Upstream.HINDSIGHT),
        UpstreamDown("refused", upstream=Upstream.HINDSIGHT, kind=DownKind.UNREACHABLE),
        UpstreamDown("401", upstream=Upstream.PAPERCLIP, kind=DownKind.REFUSED),
        KeyError("a bug"),
    ]
)
ALL = frozenset(Upstream)


class Broker:
    """One partition: a log with holes, what is committed, and the consumer's position."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.end = 0
        self.committed = 0
        self.position = 0


class Machine(RuleBasedStateMachine):
    """Produce, leave a hole, poll, fail a poll, tick, start, end in every way, commit in every way, rebalance."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = LaneScheduler(
            LIMIT, RetryPolicy(max_attempts=3), BackpressureLimits(records=6, bytes=10_000, pending=8)
        )
        self.brokers = {partition: Broker() for partition in PARTITIONS}
        self.now = 1_000.0
        self.running: list[WorkItem] = []
        self.writing: list[WorkItem] = []
        self.foreign: list[WorkItem] = []
        self.done: set[tuple[Partition, int]] = set()
        self.known: set[tuple[Partition, int]] = set()
        self.begun: set[tuple[Partition, int]] = set()
        self.attempts: dict[tuple[Partition, int], int] = {}
        self.asked: dict[Partition, tuple[int, int | None, int]] = {}
        self.held: set[Partition] = set()
        self.in_commit: tuple[int, dict[Partition, int]] | None = None

    @initialize(records=st.lists(st.tuples(st.sampled_from(PARTITIONS), KEYS), min_size=4, max_size=12))
    def join(self, records: list[tuple[Partition, bytes | None]]) -> None:
        """There is always something to do: else most runs would find nothing."""
        self.rebalance(PARTITIONS)
        for partition, key in records:
            self.produce(partition, key, 1)
        self.poll(5)
        self.start(0.0)

    def rebalance(self, partitions: tuple[Partition, ...]) -> None:
        tried = {(item.partition, item.record.offset): item.attempts for item in self.scheduler.keys.items()}
        self.scheduler.revoke()
        self.attempts = {at: n for at, n in (self.attempts | tried).items() if at[0] in partitions}
        self.foreign += self.running + self.writing
        self.running, self.writing = [], []
        self.scheduler.assign(partitions)
        self.held = set(partitions)
        self.known = {at for at in self.known if at[0] in self.held}
        self.begun = set()
        for broker in self.brokers.values():
            broker.position = broker.committed

    # Kafka

    @rule(partition=st.sampled_from(PARTITIONS), key=KEYS, count=st.integers(1, 4))
    def produce(self, partition: Partition, key: bytes | None, count: int) -> None:
        broker = self.brokers[partition]
        for _ in range(count):
            broker.records.append(Record("t", partition.number, broker.end, int(self.now * 1000), key, b"v"))
            broker.end += 1

    @rule(partition=st.sampled_from(PARTITIONS))
    def leave_a_hole(self, partition: Partition) -> None:
        self.brokers[partition].end += 1

    @rule(most=st.integers(1, 5))
    def poll(self, most: int) -> None:
        paused = self.scheduler.paused()
        for partition in sorted(self.held - paused):
            broker = self.brokers[partition]
            records = [r for r in broker.records if r.offset >= broker.position][:most]
            left = [r.offset for r in broker.records if records and r.offset > records[-1].offset]
            broker.position = (records[-1].offset + 1 if left else broker.end) if records else broker.end
            if self.scheduler.is_behind(partition, records):
                assert broker.end >= self.scheduler.trackers[partition].position, "the log is whole"
                self.scheduler.poll_failed()
            self.scheduler.deliver(partition, records, broker.position)

    @rule(partition=st.sampled_from(PARTITIONS))
    def the_consumer_goes_back(self, partition: Partition) -> None:
        """It could not read the committed offset, and resets its position to the log's start."""
        self.brokers[partition].position = 0

    @rule()
    def a_poll_raises(self) -> None:
        """It moves the positions over records that nobody gets; each partition is then rewound by itself."""
        self.scheduler.poll_failed()
        for partition in self.held:
            self.brokers[partition].position = self.brokers[partition].end

    @precondition(lambda self: self.scheduler.in_doubt() - self.asked.keys())
    @rule(index=st.integers(0, 9))
    def begin_a_rewind(self, index: int) -> None:
        """Ask for a partition's position or committed offset; anything may happen until the answer comes."""
        partitions = sorted(self.scheduler.in_doubt() - self.asked.keys())
        partition = partitions[index % len(partitions)]
        located = partition in self.scheduler.trackers
        self.asked[partition] = (self.scheduler.epoch, 0 if located else None, self.brokers[partition].committed)

    @precondition(lambda self: self.asked)
    @rule(index=st.integers(0, 9))
    def end_a_rewind(self, index: int) -> None:
        """The position is the consumer's at the time of the answer."""
        partition = sorted(self.asked)[index % len(self.asked)]
        epoch, position, start = self.asked.pop(partition)
        broker = self.brokers[partition]
        target = self.scheduler.rewind(epoch, partition, None if position is None else broker.position, start)
        if target is not None:
            assert partition in self.held
            broker.position = target

    def rewind_all(self) -> None:
        while self.scheduler.in_doubt() - self.asked.keys():
            self.begin_a_rewind(0)
        while self.asked:
            self.end_a_rewind(0)

    @rule()
    def tick(self) -> None:
        """What the committer does before it commits: where partitions begin, and positions that moved by themselves."""
        for partition in self.held:
            tracker = self.scheduler.locate(partition, self.brokers[partition].committed)
            if not tracker.pending_count and partition not in self.scheduler.in_doubt():
                tracker.advance(self.brokers[partition].position)

    # Work

    @rule(seconds=st.sampled_from([0.0, 0.3, 1.0, 10.0, 400.0]))
    def start(self, seconds: float) -> None:
        self.now += seconds
        while (item := self.scheduler.start(self.now)) is not None:
            at = (item.partition, item.record.offset)
            assert all(other.key != item.key for other in self.running + self.writing), "two of one key at once"
            before = [
                r.offset
                for r in self.brokers[item.partition].records
                if r.key == item.record.key and r.key is not None and r.offset < item.record.offset
            ]
            assert all((item.partition, offset) in self.done for offset in before), "overtook its own key"
            assert at not in self.known, "started again although it is done and known to be"
            assert at not in self.begun, "started twice in one epoch"
            if (attempts := self.attempts.pop(at, None)) is not None:
                # Between its delivery and its start, an opening breaker can only have refunded the last attempt.
                assert item.attempts in (attempts, attempts - 1), "attempts started anew after a rebalance"
            self.begun.add(at)
            (self.writing if item.dead_letter_reason else self.running).append(item)
        assert len(self.running) + len(self.writing) <= LIMIT

    def finish(self, index: int, result: object, answered: frozenset[Upstream]) -> None:
        item = self.running.pop(index % len(self.running))
        decision = self.scheduler.finish(item, result, answered, self.now)  # type: ignore[arg-type]
        assert decision is not None
        if decision.outcome is AttemptOutcome.RETRIED:
            self.begun.discard((item.partition, item.record.offset))
        if decision.dead_letter:
            self.writing.append(item)
        elif not isinstance(result, Exception):
            self.completed(item)

    def completed(self, item: WorkItem) -> None:
        self.done.add((item.partition, item.record.offset))
        self.known.add((item.partition, item.record.offset))

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 9), result=st.sampled_from([Done(), Skipped(SkipReason.NO_ISSUE), None]))
    def succeed(self, index: int, result: object) -> None:
        self.finish(index, result, frozenset({Upstream.HINDSIGHT}) if isinstance(result, Done) else frozenset())

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 9), error=FAILURES)
    def fail(self, index: int, error: Exception) -> None:
        self.finish(index, error, frozenset())

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 9), upstream=st.sampled_from([None, Upstream.HINDSIGHT]))
    def fail_for_ever(self, index: int, upstream: Upstream | None) -> None:
        self.finish(index, Permanent("no", reason=DeadLetterReason.REJECTED, upstream=upstream), frozenset())

    @precondition(lambda self: self.writing)
    @rule(index=st.integers(0, 9), taken=st.booleans())
    def write_dead_letter(self, index: int, taken: bool) -> None:
        item = self.writing.pop(index % len(self.writing))
        if taken:
            assert self.scheduler.dead_letter_written(item)
            self.completed(item)
        else:
            assert self.scheduler.dead_letter_failed(item, self.now) is not None
            self.begun.discard((item.partition, item.record.offset))

    @precondition(lambda self: self.foreign)
    @rule()
    def a_foreign_result_comes(self) -> None:
        item = self.foreign.pop()
        before = self.scheduler.committable()
        assert self.scheduler.finish(item, Done(), ALL, self.now) is None
        assert not self.scheduler.dead_letter_written(item)
        assert self.scheduler.dead_letter_failed(item, self.now) is None
        assert self.scheduler.committable() == before

    # Commits

    @rule(arrives=st.booleans(), acknowledged=st.booleans())
    def commit(self, arrives: bool, acknowledged: bool) -> None:
        """A commit arrives or not, and is acknowledged or not: failed, unknown, or committed."""
        epoch, offsets = self.scheduler.epoch, self.scheduler.committable()
        if arrives:
            for partition, offset in offsets.items():
                assert offset >= self.brokers[partition].committed, "a commit that rewinds"
                self.brokers[partition].committed = offset
            if acknowledged:
                self.scheduler.mark_committed(epoch, offsets)

    @rule()
    def begin_commit(self) -> None:
        self.in_commit = self.scheduler.epoch, self.scheduler.committable()

    @precondition(lambda self: self.in_commit)
    @rule()
    def a_late_answer_to_a_commit(self) -> None:
        assert self.in_commit
        epoch, offsets = self.in_commit
        if epoch != self.scheduler.epoch:
            before = {p: t.committed for p, t in self.scheduler.trackers.items()}
            self.scheduler.mark_committed(epoch, offsets)
            assert {p: t.committed for p, t in self.scheduler.trackers.items()} == before
        self.in_commit = None

    # Rebalances

    @rule(partitions=st.sampled_from([PARTITIONS, PARTITIONS[:1], PARTITIONS[1:], ()]))
    def reassign(self, partitions: tuple[Partition, ...]) -> None:
        self.rebalance(partitions)

    @rule()
    def stop_starting(self) -> None:
        """The drain of a revoke, and then all partitions come back."""
        self.scheduler.stop()
        assert self.scheduler.start(self.now) is None
        self.rebalance(tuple(self.held))

    @invariant()
    def commits_only_the_completed_prefix(self) -> None:
        for partition, broker in self.brokers.items():
            assert all((partition, r.offset) in self.done for r in broker.records if r.offset < broker.committed)
        assert self.scheduler.committable().keys() <= self.held, "a commit for a partition that is not ours"
        for partition, offset in self.scheduler.committable().items():
            records = self.brokers[partition].records
            assert all((partition, r.offset) in self.done for r in records if r.offset < offset)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        unfinished = {(item.partition, item.record.offset) for item in self.scheduler.keys.items()}
        for partition, tracker in self.scheduler.trackers.items():
            broker = self.brokers[partition]
            for record in broker.records:
                if broker.committed <= record.offset < tracker.position:
                    assert (partition, record.offset) in unfinished | self.done

    @invariant()
    def counts_agree(self) -> None:
        assert self.scheduler.keys.running == len(self.running) + len(self.writing)
        assert self.scheduler.buffered() == len(list(self.scheduler.keys.items())) - self.scheduler.keys.running

    def teardown(self) -> None:
        """With every upstream well again everything completes, in this epoch if all is ours, and lag is 0."""
        if self.held != set(PARTITIONS):
            self.rebalance(PARTITIONS)
        self.rewind_all()
        for _ in range(200):
            self.rewind_all()
            self.poll(5)
            self.tick()
            self.now += 400.0
            self.start(0.0)
            while self.running:
                self.finish(0, Done(), ALL)
            while self.writing:
                self.write_dead_letter(0, taken=True)
            self.commit(arrives=True, acknowledged=True)
            if all(broker.committed == broker.end for broker in self.brokers.values()):
                return
        raise AssertionError(f"lag is left: {[(b.committed, b.end) for b in self.brokers.values()]}")


Machine.TestCase.settings = settings(max_examples=500, stateful_step_count=60, deadline=None)
TestMachine = Machine.TestCase
