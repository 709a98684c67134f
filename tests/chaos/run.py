"""One run: produce events, inject faults, wait until everything is committed, check the outcome."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from consumer.embedded.supervise import ServerProcess, free_port, listening
from consumer.kafka.topic_reader import read_topic
from demo.services import run
from tests.chaos.evaluation import accepted, evaluate
from tests.chaos.events import Version, seeded_rng, versions
from tests.chaos.fleet import Fleet
from tests.chaos.sink import HANG, FaultMode
from tests.support.kafka_jvm import JvmKafka
from tests.support.unreadable import send_unreadable

TOPIC, DEAD_LETTERS, GROUP = "paperclip.issue.comments", "paperclip.memory.dead-letters", "paperclip-memory-retain"
PARTITIONS = 8
WORKERS = 3
BURST = 100
LATENCY = 0.15
"""Mean duration in seconds of a call that does not fail."""


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """The faults of a run. Times are in seconds.

    Attributes:
        pause: longest wait between two faults of the workers.
        storm: how long a fault mode of the sink lasts. outage: how long the sink is down.
        backend: the workers' `http_backend`.
    """

    seed: int
    events: int = 5_000
    kills: int = 20
    terminations: int = 6
    additions: int = 4
    removals: int = 4
    restarts: int = 1
    pause: float = 16.0
    storm: float = 6.0
    outage: float = 60.0
    backend: str = "httpx"


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome. `unclean`: SIGTERMs that did not end a worker in time with exit code 0."""

    events: int
    lost: int
    extra_operations: int
    order_breaks: int
    dead_letters: int
    wrong_dead_letters: int
    kills: int
    seconds: float
    repeated_calls: int
    terminations: int
    unclean: int
    seed: int
    backend: str

    @property
    def line(self) -> str:
        """The report as one line of JSON."""
        return json.dumps({"bench": "chaos", **asdict(self)})

    @property
    def holds(self) -> bool:
        """Whether all guarantees held."""
        wrong = (self.lost, self.extra_operations, self.order_breaks, self.wrong_dead_letters, self.unclean)
        return not any(wrong)


class Chaos:
    """One run and its servers."""

    def __init__(self, plan: ChaosPlan, directory: Path, echo: Callable[[str], None]) -> None:
        self._plan = plan
        self._record = directory / "calls.jsonl"
        self._record.write_text("")
        self._begun = time.monotonic()
        self._echo = echo
        self._kafka = JvmKafka(directory)
        port = free_port()
        self._sink_url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "tests.chaos.sink", str(port), str(self._record), str(plan.seed)]
        self._sink = ServerProcess("starting the sink", command, lambda: listening(port), directory / "sink.log")
        self._topics_log = directory / "topics.log"
        self._settings = {
            "KAFKA_BOOTSTRAP_SERVERS": self._kafka.bootstrap_servers,
            "HINDSIGHT_API_URL": self._sink_url,
            "HTTP_BACKEND": plan.backend,
            "HTTP_TIMEOUT": str(HANG - 1),
            "HEALTH_TIMEOUT": "1",
            "RETRY_FIRST_DELAY": "0.5",
            "RETRY_MAX_DELAY": "10",
            "WORKER_PORT": "0",
        }
        self._fleet = Fleet(self._settings, directory, seeded_rng(plan.seed, "fleet"))
        self._produced: list[Version] = []
        self._unreadable = -1
        self._broker_up = asyncio.Lock()

    def _log(self, text: str) -> None:
        self._echo(f"{time.monotonic() - self._begun:6.1f} s  {text}")

    async def run(self) -> Report:
        """Run everything. Raises if a server does not start, or if records stay uncommitted in the end."""
        plan = self._plan
        async with self._servers():
            try:
                disturbed = asyncio.gather(self._disturb_workers(), self._disturb_sink())
                watching = asyncio.create_task(self._watch())
                await asyncio.gather(self._produce(disturbed), disturbed)
                await self._fault_mode(FaultMode.KIND)
                await self._all_committed(180)
                watching.cancel()
                await self._fleet.terminate_all()
            finally:
                self._fleet.kill_all()
            dead_letters = await self._dead_letters()
        expected = {(version.key, "forbidden") for version in self._produced if version.forbidden}
        expected.add((str(self._unreadable).encode(), "unreadable"))
        evaluation = evaluate(self._produced, self._record.read_text().splitlines())
        for problem in self._fleet.unclean:
            self._log(problem)
        return Report(
            events=len(self._produced),
            lost=evaluation.lost,
            extra_operations=evaluation.extra_operations,
            order_breaks=evaluation.order_breaks,
            dead_letters=len(dead_letters),
            wrong_dead_letters=len(dead_letters ^ expected),
            kills=self._fleet.kills,
            seconds=round(time.monotonic() - self._begun, 1),
            repeated_calls=evaluation.repeats,
            terminations=self._fleet.terminations,
            unclean=len(self._fleet.unclean),
            seed=plan.seed,
            backend=plan.backend,
        )

    @asynccontextmanager
    async def _servers(self) -> AsyncIterator[None]:
        with self._kafka:
            self._sink.start()
            try:
                await asyncio.to_thread(run, "creating the topics", ["topics"], self._settings, self._topics_log)
                await self._fault_mode(FaultMode.FAIR)
                for _ in range(WORKERS):
                    await self._fleet.add()
                yield
            finally:
                self._sink.kill()

    # Records in

    async def _produce(self, disturbed: "asyncio.Future[tuple[None, None]]") -> None:
        """Produce in bursts while faults are injected; after the last fault, produce the rest at once."""
        plan = self._plan
        rng = seeded_rng(plan.seed, "events")
        every = self._disturbed_for() / (plan.events / BURST)
        burst: list[Version] = []
        for version in versions(plan.events, rng):
            burst.append(version)
            if len(burst) == BURST:
                await self._send(burst)
                if self._unreadable < 0:
                    await self._send_unreadable()
                burst = []
                await _first(disturbed, every * rng.uniform(0.5, 1.5))
        await self._send(burst)

    def _disturbed_for(self) -> float:
        plan = self._plan
        acts = plan.kills + plan.terminations + plan.additions + plan.removals + plan.restarts
        return acts * plan.pause * 0.7

    async def _send(self, burst: Sequence[Version]) -> None:
        async with self._broker_up:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._kafka.bootstrap_servers, acks="all", enable_idempotence=True
            )
            await producer.start()
            try:
                sent = [await producer.send(TOPIC, version.value, key=version.key) for version in burst]
                await asyncio.gather(*sent)
            finally:
                await producer.stop()
        self._produced += burst

    async def _send_unreadable(self) -> None:
        """Produce a record to partition 0 that aiokafka cannot read: a header name that is not UTF-8."""
        producer = AIOKafkaProducer(bootstrap_servers=self._kafka.bootstrap_servers, acks="all")
        async with self._broker_up, producer:
            self._unreadable = await send_unreadable(producer, TOPIC)

    # Faults

    async def _disturb_workers(self) -> None:
        plan, fleet = self._plan, self._fleet
        acts: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            *[("SIGKILL", fleet.kill)] * plan.kills,
            *[("SIGTERM", fleet.replace)] * plan.terminations,
            *[("adding a worker", fleet.add)] * plan.additions,
            *[("removing a worker", fleet.remove)] * plan.removals,
            *[("restarting the broker", self._restart_broker)] * plan.restarts,
        ]
        rng = seeded_rng(plan.seed, "workers")
        rng.shuffle(acts)
        await asyncio.sleep(plan.pause / 2)
        for name, act in acts:
            if act == fleet.remove and len(fleet) < 2:
                await fleet.add()
            self._log(name)
            await act()
            await asyncio.sleep(rng.uniform(0.2, 1.0) * plan.pause)

    async def _restart_broker(self) -> None:
        async with self._broker_up:
            await asyncio.to_thread(self._kafka.stop)
            await asyncio.to_thread(self._kafka.start)

    async def _disturb_sink(self) -> None:
        plan = self._plan
        rng = seeded_rng(plan.seed, "sink")
        modes: list[FaultMode | None] = [
            None,
            *(mode for mode in FaultMode if mode not in (FaultMode.KIND, FaultMode.FAIR)),
        ]
        rng.shuffle(modes)
        rest = (self._disturbed_for() - plan.outage - plan.storm * len(modes)) / (len(modes) + 1)
        for mode in modes:
            await asyncio.sleep(max(2.0, rest * rng.uniform(0.5, 1.5)))
            if mode is None:
                self._log(f"the sink is down for {plan.outage:.0f} s")
                await asyncio.to_thread(self._sink.kill)
                await asyncio.sleep(plan.outage)
                await asyncio.to_thread(self._sink.start)
            else:
                self._log(f"the sink answers: {mode}")
                await self._fault_mode(mode)
                await asyncio.sleep(plan.storm)
            await self._fault_mode(FaultMode.FAIR)
            self._log("the sink recovers")

    async def _fault_mode(self, mode: FaultMode) -> None:
        async with aiohttp.request("PUT", f"{self._sink_url}/mode/{mode}/{LATENCY}") as reply:
            reply.raise_for_status()

    # Progress

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(10)
            done = await asyncio.to_thread(lambda: accepted(self._record.read_text().splitlines()))
            self._log(f"produced {len(self._produced)}, accepted {done}, workers {len(self._fleet)}")

    async def _all_committed(self, deadline: float) -> None:
        """Wait until everything is committed."""
        self._log("waiting until everything is committed")
        ends = await self._ends(TOPIC)
        async with asyncio.timeout(deadline):
            while (committed := await self._committed()) != ends:
                self._log(f"lag {sum(ends.values()) - sum(committed.values())}")
                await asyncio.sleep(2)

    async def _ends(self, topic: str) -> dict[TopicPartition, int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._kafka.bootstrap_servers)
        await consumer.start()
        try:
            partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            return dict(await consumer.end_offsets(partitions))
        finally:
            await consumer.stop()

    async def _dead_letters(self) -> set[tuple[bytes | None, str]]:
        """Key and reason of each dead letter; for one without a key, the offset of its record in place of the key."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self._kafka.bootstrap_servers, auto_offset_reset="earliest")
        async with consumer:
            found = [message async for message in read_topic(consumer, DEAD_LETTERS)]
        headers = [dict(message.headers) for message in found]
        return {
            (message.key or own["dead-letter-offset"], own["dead-letter-reason"].decode())
            for message, own in zip(found, headers, strict=True)
        }

    async def _committed(self) -> dict[TopicPartition, int]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._kafka.bootstrap_servers)
        await admin.start()
        try:
            offsets = await admin.list_consumer_group_offsets(GROUP)
        finally:
            await admin.close()
        return {tp: metadata.offset for tp, metadata in offsets.items()}


async def _first(done: "asyncio.Future[tuple[None, None]]", seconds: float) -> None:
    """Sleep until `seconds` have passed or `done` is done."""
    await asyncio.wait({done}, timeout=seconds)
