"""`make chaos` in small: the same disturbances, fewer of them."""

from pathlib import Path

import pytest

from tests.chaos.run import Chaos, ChaosPlan
from tests.support import kafka_jvm

pytestmark = [pytest.mark.e2e, pytest.mark.real_kafka, pytest.mark.timeout(300)]


async def test_nothing_is_lost_and_nothing_is_out_of_order(tmp_path: Path) -> None:
    if not kafka_jvm.available():
        pytest.fail("needs an Apache Kafka that it can restart: a JVM and Maven")
    plan = ChaosPlan(seed=7, events=600, kills=3, terminations=1, additions=1, removals=1, pause=8, storm=2, outage=6)
    report = await Chaos(plan, tmp_path, print).run()
    assert report.kills == 3
    assert report.events >= 600  # traffic goes on until the forbidden records are dead letters
    assert report.lost == report.extra_operations == report.order_breaks == report.unclean == 0
    # Exactly the record that nobody can read, and those of the bank that the sink forbids.
    assert report.wrong_dead_letters == 0
    assert report.dead_letters > 0
