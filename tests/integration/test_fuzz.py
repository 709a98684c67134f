"""10,000 records of every kind through real lanes: each comes to an end that has a name, and nothing stands still."""

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from consumer.errors import DeadLetterReason
from consumer.settings.model import Settings
from consumer.stream.hooks import AttemptOutcome
from demo import recording
from tests.support import lanes
from tests.support.scripted import ScriptedHindsight, until
from tests.support.topics import Topics, read_all

pytestmark = pytest.mark.timeout(300)

COMMENTS, RUNS = 7_000, 3_000
HUGE = 300
"""One record in so many is huge."""
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 3.5, 1e308, 10**30, "", " ", "x", "\ud83d", "\x00", "\u200b", "ü" * 300, [], {}),
    *([None], {"id": 5}, "a" * 5_000, "not-a-uuid", "../../etc/passwd", "2026-13-45T99:99:99Z", "Ⅷ", "٣"),
)

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


class Maker:
    """Makes records; the same for the same seed."""

    def __init__(self, seed: int, events: list[dict[str, Any]]) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - the same records each time
        self._events = events
        self._values: list[Callable[[], bytes | None]] = [
            *(self.event, self.event, self.event, self.mutated, self.mutated, self.mutated, self.mutated),
            *(self.noise, self.cut, self.deep, self.doubled, self.other, self.scalar, self.odd_bytes, lambda: None),
        ]

    def records(self, count: int) -> list[Record]:
        return [self._record(number) for number in range(count)]

    def _record(self, number: int) -> Record:
        rng = self.rng
        value = self.huge() if number % HUGE == 0 else rng.choice(self._values)()
        key: bytes | None = rng.choice([b"", b"one key", rng.randbytes(4), b"\xff\xfe", str(rng.random()).encode()])
        if rng.random() < 0.1 and value is not None:  # aiokafka does not send a record of nothing
            key = None
        return key, value, self.headers()

    def headers(self) -> list[tuple[str, bytes | None]]:
        names = ["replay", "repair", "dead-letter-reason", "", "ü", "trace"]
        values = [b"", b"x", b"\xff\xfe", None, b"0" * 1000]
        count = self.rng.choice([0, 0, 0, 1, 3])
        return [(self.rng.choice(names), self.rng.choice(values)) for _ in range(count)]

    def event(self) -> bytes:
        return json.dumps(self._fresh()).encode()

    def mutated(self) -> bytes:
        """An event with a few fields that are gone, or other than they should be."""
        event = self._fresh()
        for _ in range(self.rng.choice([1, 1, 2, 5])):
            place: Any = event
            while isinstance(place, (dict, list)) and place:
                at = self.rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
                inner = place[at]
                if not isinstance(inner, (dict, list)) or not inner or self.rng.random() < 0.3:
                    if self.rng.random() < 0.2:
                        del place[at]
                    else:
                        place[at] = self.rng.choice(ODD)
                    break
                place = inner
        return json.dumps(event).encode()

    def noise(self) -> bytes:
        return self.rng.randbytes(self.rng.randrange(300))

    def cut(self) -> bytes:
        whole = self.event()
        return whole[: self.rng.randrange(len(whole))]

    def deep(self) -> bytes:
        depth = self.rng.choice([50, 900, 5_000, 80_000])
        opening, closing = self.rng.choice([(b"[", b"]"), (b'{"payload":', b"}")])
        return opening * depth + b"1" + closing * self.rng.choice([depth, 0])

    def doubled(self) -> bytes:
        return self.event()[:-1] + b',"eventType":"issue.comment.created","companyId":"' + self.rng.randbytes(3) + b'"}'

    def other(self) -> bytes:
        return json.dumps(self._fresh() | {"eventType": self.rng.choice(["goal.created", "", "agent.run", 7])}).encode()

    def scalar(self) -> bytes:
        return self.rng.choice([b"null", b"0", b'"text"', b"[]", b"{}", b"NaN", b"-Infinity", b"9" * 5_000, b"", b" "])

    def odd_bytes(self) -> bytes:
        text = self.event().decode()
        return self.rng.choice([text.encode("utf-16"), b"\xef\xbb\xbf" + text.encode(), text.encode() + b"\x00"])

    def huge(self) -> bytes:
        event = self._fresh()
        event["payload"][self.rng.choice(["bodySnippet", "new", "comment"])] = "\U0001f980" * 70_000
        return json.dumps(event).encode()

    def _fresh(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(json.dumps(self.rng.choice(self._events)))
        return event | {"eventId": str(uuid.UUID(int=self.rng.getrandbits(128), version=4))}


def comment_events() -> list[dict[str, Any]]:
    """The recorded ones, and some with the comment in them: also deleted ones, and half an emoji."""
    recorded = [event for event in recording.events() if event["eventType"].startswith("issue.comment.")]
    comments = {comment["id"]: comment for comment in recording.comments()}
    whole = []
    for event in recorded:
        if comment := comments.get(event["payload"]["commentId"]):
            whole.append(event | {"payload": event["payload"] | {"comment": comment | {"body": "caf\ud83d"}}})
            whole.append(event | {"eventType": "issue.comment.deleted"})
    return recorded + whole


def run_events() -> list[dict[str, Any]]:
    return [event for event in recording.events() if event["eventType"].startswith("agent.run.")]


async def dead_letters(of: Settings) -> list[dict[str, bytes | None]]:
    """The headers of all dead letters."""
    return [dict(record.headers) for record in await read_all(of, of.topic_dead_letters)]


async def test_each_of_10_000_records_comes_to_an_end(topics: Topics) -> None:
    async with ScriptedHindsight() as hindsight:
        of = await lanes.settings(topics, hindsight.url, recall_deadline=10_000)
        comments = Maker(1, comment_events()).records(COMMENTS)
        runs = Maker(2, run_events()).records(RUNS)
        await lanes.publish(of, of.topic_issue_comments, comments)
        await lanes.publish(of, of.topic_agent_runs, runs)

        async with lanes.lane(of, "retain") as retain, lanes.lane(of, "recall") as recall:
            await until(lambda: len(retain.finished()) >= COMMENTS and len(recall.finished()) >= RUNS, 240)
            await lanes.all_committed(of, of.topic_issue_comments, of.group_retain)
            await lanes.all_committed(of, of.topic_agent_runs, of.group_recall)

    assert hindsight.violations == []
    finished = [*retain.finished(), *recall.finished()]
    places = Counter((each.facts["topic"], each.facts["partition"], each.facts["offset"]) for each in finished)
    assert set(places.values()) == {1}
    assert len(places) == COMMENTS + RUNS
    outcomes = Counter(each.outcome for each in finished)
    assert set(outcomes) == {
        AttemptOutcome.SUCCEEDED,
        AttemptOutcome.SKIPPED,
        AttemptOutcome.IGNORED,
        AttemptOutcome.DEAD_LETTERED,
    }
    assert all(
        each.reason for each in finished if each.outcome in (AttemptOutcome.SKIPPED, AttemptOutcome.DEAD_LETTERED)
    )
    assert all(attempt.outcome is not AttemptOutcome.RETRIED for attempt in retain.attempts() + recall.attempts())
    buried = await dead_letters(of)
    assert len(buried) == outcomes[AttemptOutcome.DEAD_LETTERED]
    reasons = Counter((headers["dead-letter-reason"] or b"").decode() for headers in buried)
    assert set(reasons) == {DeadLetterReason.UNDECODABLE, DeadLetterReason.INVALID}
