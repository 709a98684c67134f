"""How long a run waits for its memories while thousands of retains wait."""

import asyncio
import json
import time
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from benchmarks import events, process
from benchmarks.measure import CUT, Result, percentile
from benchmarks.run import START_DEADLINE, Size, running
from benchmarks.systems import worker
from benchmarks.testbed import Testbed
from consumer.embedded.supervise import wait_until

PAPERCLIP_MS, RECALL_MS, RETAIN_MS = 20.0, 100.0, 50.0
RUNS_PER_SECOND = 20
RETAINS_IN_FLIGHT = 16
BENCH = "recall"


def measure(backend: str, testbed: Testbed, seconds: float) -> Result:
    """One worker with both lanes; runs start one after another, thousands of comments wait all the time."""
    load = process.load()
    with testbed.sink(RETAIN_MS, RECALL_MS, PAPERCLIP_MS) as sink:
        system = worker(backend, lane=None, PAPERCLIP_API_URL=sink.url)
        with running(system, testbed, sink, Size(RETAINS_IN_FLIGHT)) as pids:
            wait_until(lambda: sink.count() > 10 * RETAINS_IN_FLIGHT, START_DEADLINE)
            before = process.sample(pids, time.monotonic())
            waits = asyncio.run(_waits(testbed.bootstrap, list(events.runs(int(seconds * RUNS_PER_SECOND)))))
            after = process.sample(pids, time.monotonic())
            retained = sink.count()
    passed = after.at - before.at
    rate = (len(waits) + retained) / passed
    cut = int(len(waits) * CUT)
    middle = waits[cut : len(waits) - cut]
    return Result(
        bench=BENCH,
        system=system.name,
        in_flight=RETAINS_IN_FLIGHT,
        sink_ms=PAPERCLIP_MS + RECALL_MS,
        workers=1,
        events_per_second=rate,
        of_ideal=(PAPERCLIP_MS + RECALL_MS) / max(1.0, percentile(middle, 50) * 1000),
        cpu_us_per_event=(after.cpu - before.cpu) * 1e6 / max(1, len(waits) + retained),
        rss_mb=max(before.rss, after.rss),
        p50_ms=percentile(middle, 50) * 1000,
        p99_ms=percentile(middle, 99) * 1000,
        load=load,
    )


async def _waits(bootstrap: str, runs: Sequence[events.Produced]) -> list[float]:
    """Seconds from before each run's start was produced until its memories had come back from Kafka."""
    consumer = AIOKafkaConsumer(events.RECALLS, bootstrap_servers=bootstrap, auto_offset_reset="latest")
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    begun: dict[bytes, float] = {}
    waits: dict[bytes, float] = {}
    async with consumer, producer:
        await consumer.seek_to_end()

        async def read() -> None:
            async for record in consumer:
                if record.key in begun:
                    assert json.loads(record.value)["status"] == "recalled", record.value
                    waits.setdefault(record.key, time.monotonic() - begun[record.key])
                if len(waits) == len(runs):
                    return

        reading = asyncio.create_task(read())
        due = time.monotonic()
        for key, value in runs:
            begun[key] = time.monotonic()
            await producer.send(events.RUNS, value, key=key)
            due += 1 / RUNS_PER_SECOND
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        async with asyncio.timeout(30):
            await reading
    return [waits[key] for key in begun]
