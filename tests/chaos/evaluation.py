"""Checks the sink's record of all calls."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tests.chaos.events import Version


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The outcome. All counts must be 0 but `repeats`: calls of an operation that was accepted before.

    Attributes:
        lost: versions that were never accepted.
        extra_operations: operations that belong to no version.
        order_breaks: versions that first arrived, or were first accepted, before an earlier one of their comment.
    """

    lost: int
    extra_operations: int
    order_breaks: int
    repeats: int


def evaluate(produced: Iterable[Version], record: Iterable[str]) -> Evaluation:
    """Compare the sink's record (the lines of its file) with the produced versions."""
    expected = {version.operation: version for version in produced if not version.forbidden}
    first: dict[str, dict[str, None]] = {"arrived": {}, "accepted": {}}  # a dict keeps the order
    repeats = 0
    for line in record:
        what, operation, _document = json.loads(line)
        if what == "arrived" and operation in first["accepted"]:
            repeats += 1
        first[what].setdefault(operation)
    return Evaluation(
        lost=len(expected.keys() - first["accepted"].keys()),
        extra_operations=len(first["arrived"].keys() - expected.keys()),
        order_breaks=sum(_breaks(expected, operations) for operations in first.values()),
        repeats=repeats,
    )


def accepted(record: Iterable[str]) -> int:
    """How many operations were accepted."""
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
