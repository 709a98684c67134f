"""Order by key, against a plain model."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from consumer.errors import Upstream
from consumer.stream.hooks import ParkReason
from consumer.stream.key_queues import KeyQueues
from consumer.stream.records import WorkItem
from tests.unit.stream.samples import item, record


def test_keys_take_turns_and_records_of_one_key_run_one_by_one() -> None:
    keys = KeyQueues()
    for offset, key in enumerate([b"a", b"a", b"b"]):
        keys.add(item(offset, key))
    first, second = keys.start(), keys.start()
    assert first
    assert second
    assert [first.record.offset, second.record.offset] == [0, 2]
    assert keys.start() is None
    keys.finish(first.key)
    third = keys.start()
    assert third
    assert third.record.offset == 1
    assert keys.running == 2


def test_records_without_a_key_run_side_by_side() -> None:
    keys = KeyQueues()
    keys.add(item(0, None))
    keys.add(item(1, None))
    assert keys.start() is not None
    assert keys.start() is not None


def test_records_with_an_empty_key_run_one_by_one() -> None:
    keys = KeyQueues()
    keys.add(item(0, b""))
    keys.add(item(1, b""))
    assert keys.start() is not None
    assert keys.start() is None


def test_the_same_key_in_two_partitions_runs_side_by_side() -> None:
    keys = KeyQueues()
    keys.add(WorkItem(record(0, b"a", partition=0), 0))
    keys.add(WorkItem(record(0, b"a", partition=1), 0))
    assert keys.start() is not None
    assert keys.start() is not None


def test_a_retried_key_goes_behind_the_others() -> None:
    keys = KeyQueues()
    keys.add(item(0, b"a"))
    keys.add(item(1, b"b"))
    first = keys.start()
    assert first
    keys.retry(first.key)
    second = keys.start()
    assert second
    assert second.record.key == b"b"


def test_a_parked_key_starts_when_it_is_due_and_not_before() -> None:
    keys = KeyQueues()
    keys.add(item(0, b"a"))
    started = keys.start()
    assert started
    keys.park(started.key, 10.0, ParkReason.RETRY)
    keys.unpark_due(9.9)
    assert keys.start() is None
    assert keys.next_due() == 10.0
    keys.unpark_due(10.0)
    assert keys.start() is started
    assert keys.next_due() is None


def test_unpark_failed_readies_only_retries_of_that_upstream_that_are_not_exempt() -> None:
    keys = KeyQueues()
    waits: list[tuple[bytes, ParkReason, Upstream | None, bool]] = [
        (b"a", ParkReason.RETRY, Upstream.HINDSIGHT, False),
        (b"b", ParkReason.RETRY, Upstream.HINDSIGHT, True),
        (b"c", ParkReason.RETRY, Upstream.PAPERCLIP, False),
        (b"d", ParkReason.RETRY, None, False),
        (b"e", ParkReason.NOT_YET, None, False),
    ]
    for offset, (key, reason, upstream, exempt_from_breaker) in enumerate(waits):
        keys.add(item(offset, key))
        head = keys.start()
        assert head
        head.exempt_from_breaker = exempt_from_breaker
        keys.park(head.key, 10.0 + offset, reason, upstream)
    assert [head.record.key for head in keys.unpark_failed(Upstream.HINDSIGHT)] == [b"a"]
    assert keys.ready == 1
    assert keys.parked() == {ParkReason.RETRY: 3, ParkReason.NOT_YET: 1, ParkReason.DEAD_LETTER_UNAVAILABLE: 0}
    assert keys.next_due() == 11.0  # what is no longer parked is not due
    keys.unpark_due(1_000.0)
    assert keys.ready == 5


def test_a_key_that_is_parked_again_is_due_at_its_new_time() -> None:
    keys = KeyQueues()
    keys.add(item(0, b"a"))
    head = keys.start()
    assert head
    keys.park(head.key, 10.0, ParkReason.RETRY, Upstream.HINDSIGHT)
    keys.unpark_failed(Upstream.HINDSIGHT)
    assert keys.start() is head
    keys.park(head.key, 20.0, ParkReason.RETRY, Upstream.HINDSIGHT)
    keys.unpark_due(15.0)
    assert keys.start() is None
    assert keys.next_due() == 20.0


class Machine(RuleBasedStateMachine):
    """Add, start, finish, retry, park and unpark in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = KeyQueues()
        self.waiting: dict[bytes, list[WorkItem]] = {}
        self.running: list[WorkItem] = []
        self.parked: dict[bytes, float] = {}
        self.offset = 0
        self.now = 0.0

    @rule(key=st.sampled_from([b"a", b"b", b"c"]))
    def add(self, key: bytes) -> None:
        added = item(self.offset, key)
        self.offset += 1
        self.waiting.setdefault(key, []).append(added)
        self.keys.add(added)

    @rule()
    def start(self) -> None:
        free = {key for key, queue in self.waiting.items() if queue and key not in self.parked}
        free -= {item.record.key for item in self.running if item.record.key}
        started = self.keys.start()
        if started is None:
            assert not free
            return
        key = started.record.key
        assert key in free
        assert started is self.waiting[key][0]
        self.running.append(started)

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 9))
    def finish(self, index: int) -> None:
        ended = self.running.pop(index % len(self.running))
        assert ended.record.key
        self.waiting[ended.record.key].remove(ended)
        self.keys.finish(ended.key)

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 9))
    def retry(self, index: int) -> None:
        self.keys.retry(self.running.pop(index % len(self.running)).key)

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 9), seconds=st.integers(1, 5))
    def park(self, index: int, seconds: int) -> None:
        ended = self.running.pop(index % len(self.running))
        assert ended.record.key
        self.parked[ended.record.key] = self.now + seconds
        self.keys.park(ended.key, self.now + seconds, ParkReason.RETRY, Upstream.HINDSIGHT)

    @rule(seconds=st.integers(0, 3))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.keys.unpark_due(self.now)
        self.parked = {key: due for key, due in self.parked.items() if due > self.now}

    @rule()
    def open_a_breaker(self) -> None:
        assert {item.record.key for item in self.keys.unpark_failed(Upstream.HINDSIGHT)} == self.parked.keys()
        self.parked.clear()

    @invariant()
    def counts_agree(self) -> None:
        assert self.keys.running == len(self.running)
        assert len(list(self.keys.items())) == sum(map(len, self.waiting.values()))
        assert self.keys.parked()[ParkReason.RETRY] == len(self.parked)
        assert self.keys.next_due() == min(self.parked.values(), default=None)


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestMachine = Machine.TestCase
