"""The demo: plays the recording through a broker, a worker, Hindsight and a stand-in for Paperclip."""

import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from aiokafka.errors import KafkaError

from consumer.embedded import hindsight as hindsight_server
from consumer.embedded.broker import TansuBroker
from consumer.embedded.hindsight import Hindsight
from consumer.embedded.supervise import ServerError, wait_until
from consumer.errors import ExitCode
from demo import recording
from demo import services as commands
from demo.kafka import publish, wait_for_recall
from demo.measurements import HindsightContents, WorkerMetrics
from demo.messages import LaterRun, Message, counts, later_run, to_message, topic
from demo.screen import Screen, Step
from demo.services import Service
from demo.standin import StandIn, in_thread

DEADLINE = 120.0  # seconds for the worker, and then for Hindsight, to finish the recording


def main() -> int:
    """Run the demo; returns the exit code."""
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # SIGTERM acts as Ctrl-C; a script's `&` ignores SIGINT
        signal.signal(number, signal.default_int_handler)
    screen = Screen()
    logs = Path(tempfile.mkdtemp(prefix="paperclip-memory-demo-"))
    started = time.monotonic()
    try:
        with ExitStack() as stack:
            Demo(screen, logs, stack).run()
            screen.heading("Stopping everything.")
    except ServerError as error:
        screen.text(f"\n✗ {error}\n\nAll logs: {logs}", style="red")
        return ExitCode.FAILED
    except KeyboardInterrupt:
        screen.text("\nInterrupted; everything that was started has been stopped.")
        shutil.rmtree(logs)
        return ExitCode.INTERRUPTED
    shutil.rmtree(logs)
    screen.text(f"Done in {time.monotonic() - started:.0f} s.")
    return 0


class Demo:
    """One run of the demo; the stack ends what it starts.

    Args:
        logs: an empty directory for the servers' logs.
    """

    def __init__(self, screen: Screen, logs: Path, stack: ExitStack) -> None:
        self._screen = screen
        self._logs = logs
        self._stack = stack
        self._events = recording.events()

    def run(self) -> None:
        """Run all steps in order. Raises `ServerError` from the one that fails."""
        broker, hindsight, standin = self._services()
        settings = {
            "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "KAFKA_ENABLE_IDEMPOTENCE": "false",
            "HINDSIGHT_API_URL": hindsight.url,
            "PAPERCLIP_API_URL": standin.url,
            "LOG_FORMAT": "console",
        }
        worker = self._worker(settings)
        metrics, memories = WorkerMetrics(worker.url), HindsightContents(hindsight.url)
        before = metrics.read()

        self._play_recording(broker, worker, metrics)
        self._show_memories(worker, memories)
        later = later_run(standin.runs.values(), self._events)
        standin.runs[later.run["id"]] = later.run
        self._play_later_run(broker, worker, later)

        self._screen.heading("The worker's metrics that changed")
        self._screen.table(["counter", "before", "now"], metrics.changes(before, metrics.read()))
        self._print_next_steps(settings)

    def _services(self) -> tuple[TansuBroker, Hindsight, StandIn]:
        screen = self._screen
        screen.heading("Servers, all on 127.0.0.1")
        with self._step("Install Hindsight (about 1.2 GB, once)") as step:
            environment = hindsight_server.install(step)
            step.result = str(environment)
        with self._step("Start the broker (Tansu, in memory)") as step:
            broker = self._stack.enter_context(TansuBroker(self._logs))
            step.result = broker.bootstrap_servers
        with self._step("Start Hindsight (no language model, own PostgreSQL)") as step:
            hindsight = self._stack.enter_context(Hindsight(environment, self._logs, llm="none"))
            step.result = hindsight.url
        with self._step("Start a stand-in for Paperclip's API") as step:
            standin = self._stack.enter_context(in_thread(StandIn()))
            step.result = standin.url
        return broker, hindsight, standin

    def _worker(self, settings: Mapping[str, str]) -> Service:
        self._screen.heading("paperclip-memory, as its users start it")
        with self._step("paperclip-memory topics"):
            commands.run("creating the topics", ["topics"], settings, self._logs / "topics.log")
        with self._step("paperclip-memory worker") as step:
            worker = self._stack.enter_context(Service("worker", settings, self._logs / "worker.log"))
            step.result = f"{worker.url}/metrics"
        return worker

    def _play_recording(self, broker: TansuBroker, worker: Service, metrics: WorkerMetrics) -> None:
        screen = self._screen
        screen.heading(f"A recording of a real Paperclip: {len(self._events)} events")
        screen.table(["event", "times"], [(kind, str(number)) for kind, number in counts(self._events)])
        with self._step("Publish them to Kafka"):
            publish(broker.bootstrap_servers, [to_message(event) for event in self._events])
        with self._step("The worker handles them") as step:
            total = len(self._events)
            self._wait(worker, step, "events handled", lambda: (metrics.handled(), total))
            step.result = f"{total} events"

    def _show_memories(self, worker: Service, memories: HindsightContents) -> None:
        with self._step("Hindsight processes the retained comments") as step:
            self._wait(worker, step, "operations done", memories.progress)
            agents = memories.by_agent()
            step.result = f"{sum(len(agent.texts) for agent in agents)} documents"
        if not any(agent.texts for agent in agents):
            raise ServerError("finding the memories", "no document was stored", log=self._logs / "worker.log")
        self._screen.heading("Memories stored: one bank for each agent, one document for each existing comment")
        for agent in agents:
            self._screen.text(f"  {agent.agent}: {len(agent.texts)} documents in {agent.bank}")
            self._show(agent.texts)
        deleted = [comment for comment in recording.comments() if comment["deletedAt"]]
        self._screen.text(f"  Not stored: {len(deleted)} comment that was deleted after its event.")

    def _play_later_run(self, broker: TansuBroker, worker: Service, later: LaterRun) -> None:
        run_id = later.run["id"]
        self._screen.heading("A later run: the agent works on the same issue again")
        with self._step("Publish agent.run.started, and wait for its recall") as step:
            publish(broker.bootstrap_servers, [Message(topic("agent_runs"), run_id, later.event)])
            record = wait_for_recall(broker.bootstrap_servers, topic("recalls"), run_id, deadline=30)
            worker.server.check()
            if record is None or not record.memories:
                why = "no record on the recalls topic" if record is None else f"the recall's status is {record.status}"
                raise ServerError("recalling for a later run", why, log=self._logs / "worker.log")
            step.result = f"{len(record.memories)} memories on {topic('recalls')}"
        self._screen.text(f"  query: {' '.join(record.query.split())}")
        self._show(record.memories)

    def _show(self, texts: Iterable[str], width: int = 100) -> None:
        for text, times in Counter(" ".join(text.split()) for text in texts).items():
            cut = text if len(text) <= width else f"{text[:width]}…"
            self._screen.text(f"    - {cut}{f' ({times} times)' if times > 1 else ''}")

    def _print_next_steps(self, settings: Mapping[str, str]) -> None:
        self._screen.heading("Next steps, with your own Kafka, Hindsight and Paperclip")
        for name in ("KAFKA_BOOTSTRAP_SERVERS", "HINDSIGHT_API_URL", "PAPERCLIP_API_URL"):
            self._screen.text(f"  export {commands.PREFIX}{name}=…  # here: {settings[name]}")
        for command, meaning in (
            ("check", "check the settings and probe the services"),
            ("topics", "create the topics"),
            ("worker", "run the worker; its /metrics are on port 9464"),
            ("settings", "list all settings"),
        ):
            self._screen.text(f"  paperclip-memory {command:<10} # {meaning}")

    def _wait(self, worker: Service, step: Step, unit: str, look: Callable[[], tuple[int, int]]) -> None:
        """Wait until the first number that `look` returns has reached the second."""
        last = (0, 0)

        def done() -> bool:
            nonlocal last
            worker.server.check()
            last = look()
            step(f"{last[0]} of {last[1]} {unit}")
            return last[0] >= last[1]

        if not wait_until(done, DEADLINE):
            raise ServerError(
                step.title, f"{last[0]} of {last[1]} {unit} after {DEADLINE:.0f} s", log=self._logs / "worker.log"
            )

    @contextmanager
    def _step(self, title: str) -> Iterator[Step]:
        with self._screen.step(title) as step:
            try:
                yield step
            except (OSError, httpx.HTTPError, KafkaError) as error:
                raise ServerError(title, f"{type(error).__name__}: {error}", log=self._logs / "worker.log") from error
