import json
from dataclasses import replace

import pytest
from rich.console import Console

from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.exporter.lag import Lag
from consumer.exporter.snapshot import HindsightSnapshot, KafkaSnapshot
from consumer.exporter.status import SHOWN, Letters, PaperclipState, Status, as_json, as_screen, take
from consumer.stream.records import Partition
from consumer.stream.source import committed_at
from tests.unit.exporter.samples import HINDSIGHT, KAFKA, NOW, RECALL, RETAIN

LETTERS = Letters({"rejected": 2, "undecodable": 1}, redriven=5)
PAPERCLIP = PaperclipState("2026.916.1", NOW + 6 * 86_400, {"c-1": "the connection is in state 'error'"})
ALL = Status(
    NOW, replace(KAFKA, groups=(replace(RECALL, last_commit=NOW - 3), RETAIN)), HINDSIGHT, LETTERS, PAPERCLIP, {}
)


def screen(status: Status) -> str:
    console = Console(width=160, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(as_screen(status))
    return capture.get()


def test_the_screen_shows_groups_partitions_hindsight_and_dead_letters() -> None:
    lines = [line.strip() for line in screen(ALL).splitlines()]
    assert lines[0] == "paperclip-memory, 2026-11-30 10:20:00 UTC"
    assert "recall: 2 members (stable), 2 records behind, the oldest for 12 s, last commit 3 s ago" in lines
    assert "retain: 0 members (empty), 4 records behind, the oldest for 1 min, no commit known" in lines
    rows = [line.split() for line in lines]
    assert ["runs", "0", "5", "7", "2", "12", "s"] in rows
    assert ["comments", "1", "none", "4", "4", "1", "min"] in rows
    assert "4 pending, 0 processing, 1 failed operations; the oldest unfinished is 33 s old" in lines
    assert "11 memories wait for consolidation, of 2 it failed" in lines
    assert "60 banks, 50 of them looked into; counts from /metrics" in lines
    assert "Dead letters: 3 open (2 rejected, 1 undecodable), 5 sent back" in lines
    assert "Paperclip: release 2026.916.1, our key ends in 6 d" in lines
    assert "✗ tools of company c-1: the connection is in state 'error'" in lines


def test_the_screen_leaves_out_an_end_of_the_key_that_is_not_known() -> None:
    output = screen(replace(ALL, paperclip=PaperclipState(None, None, {})))
    assert "Paperclip: release unknown\n" in output.replace(" \n", "\n").rstrip() + "\n"
    assert "Paperclip" not in screen(replace(ALL, paperclip=None))


def test_the_screen_of_a_caught_up_group_says_nothing_waits() -> None:
    caught_up = replace(RECALL, members=1, lags=(Lag(Partition("runs", 0), 7, 7, 0, 0.0),))
    output = screen(replace(ALL, kafka=replace(KAFKA, groups=(caught_up,)), letters=Letters({}, 0)))
    assert "recall: 1 member (stable), nothing waits" in output
    assert "Dead letters: 0 open, 0 sent back" in output


def test_the_screen_names_a_missing_topic() -> None:
    output = screen(replace(ALL, kafka=replace(KAFKA, groups=(replace(RECALL, lags=()),))))
    assert "✗ topic runs does not exist: run `paperclip-memory topics`" in output


def test_the_screen_shows_only_lagging_partitions_of_many() -> None:
    lags = tuple(Lag(Partition("runs", n), 5, 5 + (n % 10 == 0), int(n % 10 == 0), 1.0) for n in range(SHOWN + 18))
    output = screen(replace(ALL, kafka=replace(KAFKA, groups=(replace(RECALL, lags=lags),))))
    assert output.count(" runs ") + output.count("\nruns ") == 5
    assert f"{SHOWN + 13} more partitions are not shown" in output


def test_json_contains_every_partition_and_count() -> None:
    document = json.loads(as_json(ALL))
    assert (document["at"], document["silent"]) == ("2026-11-30T10:20:00Z", {})
    recall, retain = document["groups"]
    assert (recall["last_commit"], retain["last_commit"]) == ("2026-11-30T10:19:57Z", None)
    assert (retain["members"], retain["state"], retain["lag_records"], retain["lag_seconds"]) == (0, "empty", 4, 60.0)
    assert retain["partitions"][1] == {
        "topic": "comments",
        "partition": 1,
        "committed": None,
        "end": 4,
        "lag_records": 4,
        "lag_seconds": 60.0,
    }
    assert document["hindsight"] == {
        "origin": "/metrics",
        "pending": 4,
        "processing": 0,
        "failed": 1,
        "oldest_pending_seconds": 33.0,
        "consolidation_backlog": 11,
        "consolidation_failed": 2,
        "banks_known": 60,
        "banks_observed": 50,
    }
    assert document["dead_letters"] == {"by_reason": {"rejected": 2, "undecodable": 1}, "redriven": 5}
    assert document["paperclip"] == {
        "release": "2026.916.1",
        "key_expires": "2026-12-06T10:20:00Z",
        "tool_problems": {"c-1": "the connection is in state 'error'"},
    }


async def test_an_unavailable_source_is_named_and_the_others_are_shown() -> None:
    async def kafka() -> KafkaSnapshot:
        raise UpstreamDown("Kafka at x:9092: refused", upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE)

    async def hindsight() -> HindsightSnapshot:
        return HINDSIGHT

    async def letters() -> Letters:
        return LETTERS

    async def paperclip() -> PaperclipState | None:
        raise UpstreamDown("Paperclip refuses our key with 401", upstream=Upstream.PAPERCLIP, kind=DownKind.REFUSED)

    status = await take(kafka, hindsight, letters, paperclip, now=lambda: NOW)
    silent = {"kafka": "Kafka at x:9092: refused", "paperclip": "Paperclip refuses our key with 401"}
    assert status == Status(NOW, None, HINDSIGHT, LETTERS, None, silent)
    output = screen(status)
    assert "✗ kafka: Kafka at x:9092: refused" in output
    assert "✗ paperclip: Paperclip refuses our key with 401" in output
    assert "counts from /metrics" in output
    assert "behind" not in output
    assert json.loads(as_json(status))["groups"] is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3_605, "1 h 5 s"),
        (180_000, "2 d 2 h"),
    ],
)
def test_time_spans_have_their_two_largest_units(seconds: float, text: str) -> None:
    status = replace(ALL, hindsight=replace(HINDSIGHT, oldest_pending=seconds))
    assert f"the oldest unfinished is {text} old" in screen(status)


@pytest.mark.parametrize(
    ("note", "at"), [("2026-11-30T10:20:00.000+00:00", NOW), ("", None), ("another's metadata", None)]
)
def test_the_time_of_a_commit_is_read_from_its_metadata(note: str, at: float | None) -> None:
    assert committed_at(note) == at
