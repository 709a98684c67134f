"""The evaluation of a chaos run finds lost, extra and reordered calls."""

import json

from tests.chaos.evaluation import Evaluation, accepted, evaluate
from tests.chaos.events import Version, seeded_rng, versions

PRODUCED = list(versions(200, seeded_rng(5, "verdict")))


def lines(*calls: tuple[str, str]) -> list[str]:
    return [json.dumps([what, operation, "document"]) for what, operation in calls]


def handled(version: Version) -> list[str]:
    return lines(("arrived", version.operation), ("accepted", version.operation))


def test_complete_record_has_no_faults() -> None:
    record = [line for version in PRODUCED for line in handled(version)]
    assert evaluate(PRODUCED, record) == Evaluation(lost=0, extra_operations=0, order_breaks=0, repeats=0)
    assert accepted(record) == len(PRODUCED)


def test_version_that_only_arrived_is_lost() -> None:
    record = [line for version in PRODUCED[1:] for line in handled(version)]
    assert evaluate(PRODUCED, record + lines(("arrived", PRODUCED[0].operation))).lost == 1


def test_operation_of_no_version_is_extra() -> None:
    assert evaluate([], handled(PRODUCED[0])).extra_operations == 1


def test_later_version_before_an_earlier_one_breaks_the_order() -> None:
    comment = next(version.comment for version in PRODUCED if version.number > 0)
    first, second = [version for version in PRODUCED if version.comment == comment][:2]
    # Both the arrival and the acceptance count.
    assert evaluate([first, second], handled(second) + handled(first)).order_breaks == 2
    calls = [("arrived", first), ("arrived", second), ("accepted", second), ("accepted", first)]
    record = lines(*((what, version.operation) for what, version in calls))
    assert evaluate([first, second], record).order_breaks == 1


def test_repeated_call_is_counted_as_a_repeat_only() -> None:
    record = [line for version in PRODUCED for line in handled(version)] + handled(PRODUCED[0])
    assert evaluate(PRODUCED, record) == Evaluation(lost=0, extra_operations=0, order_breaks=0, repeats=1)


def test_same_seed_makes_the_same_events_ordered_by_comment() -> None:
    assert list(versions(200, seeded_rng(5, "verdict"))) == PRODUCED
    assert len({version.operation for version in PRODUCED}) == len(PRODUCED)
    newest: dict[str, int] = {}
    for version in PRODUCED:
        assert version.number == newest.get(version.comment, -1) + 1
        newest[version.comment] = version.number
