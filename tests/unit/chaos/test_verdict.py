"""The judge of a chaos run finds what must not be."""

import json

from tests.chaos.events import Version, seeded_rng, versions
from tests.chaos.verdict import Verdict, accepted, judge

PRODUCED = list(versions(200, seeded_rng(5, "verdict")))


def lines(*calls: tuple[str, str]) -> list[str]:
    return [json.dumps([what, operation, "document"]) for what, operation in calls]


def handled(version: Version) -> list[str]:
    return lines(("arrived", version.operation), ("accepted", version.operation))


def test_all_is_well() -> None:
    record = [line for version in PRODUCED for line in handled(version)]
    assert judge(PRODUCED, record) == Verdict(lost=0, extra_operations=0, order_breaks=0, repeats=0)
    assert accepted(record) == len(PRODUCED)


def test_what_only_arrived_is_lost() -> None:
    record = [line for version in PRODUCED[1:] for line in handled(version)]
    assert judge(PRODUCED, record + lines(("arrived", PRODUCED[0].operation))).lost == 1


def test_an_operation_of_no_version_is_extra() -> None:
    assert judge([], handled(PRODUCED[0])).extra_operations == 1


def test_a_later_version_first_breaks_the_order() -> None:
    comment = next(each.comment for each in PRODUCED if each.number > 0)
    first, second = [each for each in PRODUCED if each.comment == comment][:2]
    # Both the arrival and the acceptance count.
    assert judge([first, second], handled(second) + handled(first)).order_breaks == 2
    calls = [("arrived", first), ("arrived", second), ("accepted", second), ("accepted", first)]
    record = lines(*((what, version.operation) for what, version in calls))
    assert judge([first, second], record).order_breaks == 1


def test_a_repeated_call_is_counted_and_no_more() -> None:
    record = [line for version in PRODUCED for line in handled(version)] + handled(PRODUCED[0])
    assert judge(PRODUCED, record) == Verdict(lost=0, extra_operations=0, order_breaks=0, repeats=1)


def test_the_same_seed_makes_the_same_events_in_the_order_of_their_comments() -> None:
    assert list(versions(200, seeded_rng(5, "verdict"))) == PRODUCED
    assert len({each.operation for each in PRODUCED}) == len(PRODUCED)
    newest: dict[str, int] = {}
    for version in PRODUCED:
        assert version.number == newest.get(version.comment, -1) + 1
        newest[version.comment] = version.number
