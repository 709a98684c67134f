"""What the record of all calls says."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tests.chaos.events import Version


@dataclass(frozen=True, slots=True)
class Verdict:
    """What must hold: all of these are 0, but for `repeats`: calls of an operation that was accepted before.

    Attributes:
        lost: versions that were never accepted.
        extra_operations: accepted operations that are no version's.
        order_breaks: versions that first arrived, or were first accepted, before an earlier one of their comment.
    """

    lost: int
    extra_operations: int
    order_breaks: int
    repeats: int


def judge(produced: Iterable[Version], record: Iterable[str]) -> Verdict:
    """Hold a sink's record (lines of its file, in order) against what was produced."""
    expected = {version.operation: version for version in produced}
    first: dict[str, dict[str, None]] = {"arrived": {}, "accepted": {}}  # a dict keeps the order
    repeats = 0
    for line in record:
        what, operation, _document = json.loads(line)
        if what == "arrived" and operation in first["accepted"]:
            repeats += 1
        first[what].setdefault(operation)
    return Verdict(
        lost=len(expected.keys() - first["accepted"].keys()),
        extra_operations=len(first["arrived"].keys() - expected.keys()),
        order_breaks=sum(_breaks(expected, operations) for operations in first.values()),
        repeats=repeats,
    )


def accepted(record: Iterable[str]) -> int:
    """How many operations were accepted so far."""
    return len({line for line in record if line.startswith('["accepted"')})


def _breaks(expected: dict[str, Version], operations: Iterable[str]) -> int:
    newest: dict[str, int] = defaultdict(lambda: -1)
    breaks = 0
    for operation in operations:
        version = expected.get(operation)
        if version is not None:
            breaks += version.number < newest[version.comment]
            newest[version.comment] = max(newest[version.comment], version.number)
    return breaks
