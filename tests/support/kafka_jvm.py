"""Apache Kafka itself, without Docker: its jars by Maven, one KRaft node in one JVM."""

import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from consumer.embedded.directories import cache_directory, exclusive_lock, make_home
from consumer.embedded.managed import ManagedServerWithHome
from consumer.embedded.supervise import ServerError, ServerProcess, free_port, listening

VERSION = "4.1.1"
POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>paperclip-memory.tests</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.24.3</version>
    </dependency>
  </dependencies>
</project>
"""
LOGGING = """\
Configuration:
  status: warn
  Appenders:
    Console:
      name: out
      PatternLayout:
        pattern: "%d %p %c{1} %m%n"
  Loggers:
    Root:
      level: warn
      AppenderRef:
        - ref: out
"""
JVM = ["-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData"]


def available() -> bool:
    """Whether this machine has what is needed: a JVM, and Maven or the jars."""
    return shutil.which("java") is not None and (_installed() or shutil.which("mvn") is not None)


def install() -> Path:
    """The directory of Kafka's jars; fetched once. Raises `ServerError`."""
    with exclusive_lock("kafka"):
        path = _jars()
        if not _installed():
            path.mkdir(parents=True, exist_ok=True)
            (path / "pom.xml").write_text(POM)
            command = ["mvn", "--batch-mode", "--no-transfer-progress", "-f", str(path / "pom.xml")]
            command += ["dependency:copy-dependencies", f"-DoutputDirectory={path}"]
            _run("fetching Apache Kafka", command, path / "mvn.log")
            (path / "complete").touch()
        return path


@dataclass(frozen=True, slots=True)
class Listener:
    """One more listener of a broker.

    Attributes:
        name: in capitals; unlike the others' and PLAINTEXT.
        protocol: SSL, SASL_SSL or SASL_PLAINTEXT.
        config: Kafka's properties of this listener, without the prefix `listener.name.…`.
    """

    name: str
    protocol: str
    config: Mapping[str, str]


class JvmKafka(ManagedServerWithHome):
    """A one-node Apache Kafka; it keeps its ports and its data from `start` to `start`.

    Args:
        listeners: listeners besides the one of `bootstrap_servers`, which asks for nothing.
        scram: credentials of users, as `kafka-storage format --add-scram` takes them.

    Attributes:
        bootstrap_servers: where clients connect; `servers_of`: where they find the other listeners, by name.
    """

    name = f"Apache Kafka {VERSION} (JVM)"

    def __init__(self, logs: Path, listeners: Sequence[Listener] = (), scram: Sequence[str] = ()) -> None:
        port, controller = free_port(), free_port()
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self.servers_of = {listener.name: f"127.0.0.1:{free_port()}" for listener in listeners}
        self._scram = [option for credential in scram for option in ("--add-scram", credential)]
        self.home = make_home("kafka", None)
        self._config = self.home / "server.properties"
        self._config.write_text(_properties(port, controller, self.home / "data", listeners, self.servers_of))
        (self.home / "log4j2.yaml").write_text(LOGGING)
        self._log = logs / f"{self.home.name}.log"
        self._java = ["java", *JVM, f"-Dlog4j2.configurationFile={self.home}/log4j2.yaml", "-cp", f"{install()}/*"]
        self.server = ServerProcess(
            step="starting Apache Kafka",
            command=[*self._java, "kafka.Kafka", str(self._config)],
            ready=lambda: listening(port),
            log=self._log,
            cwd=self.home,
            deadline=90,
            grace=20,
        )

    def start(self) -> None:
        """Start it, again too, and return when it accepts connections; raises `ServerError`."""
        if not (self.home / "data").exists():
            cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            tool = [*self._java, "kafka.tools.StorageTool", "format", "--standalone", f"--cluster-id={cluster}"]
            _run("formatting Kafka's storage", [*tool, *self._scram, "-c", str(self._config)], self._log)
        super().start()


def _jars() -> Path:
    return cache_directory() / f"kafka-{VERSION}"


def _installed() -> bool:
    return (_jars() / "complete").exists()


def _run(step: str, command: list[str], log: Path) -> None:
    with log.open("ab") as out:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise ServerError(step, f"exit code {done.returncode}", command=command, log=log)


def _properties(port: int, controller: int, data: Path, more: Sequence[Listener], servers: Mapping[str, str]) -> str:
    where = [f"PLAINTEXT://127.0.0.1:{port}", *(f"{each.name}://{servers[each.name]}" for each in more)]
    protocols = ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *(f"{each.name}:{each.protocol}" for each in more)]
    own = {f"listener.name.{each.name.lower()}.{key}": value for each in more for key, value in each.config.items()}
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "listeners": ",".join([*where, f"CONTROLLER://127.0.0.1:{controller}"]),
        "advertised.listeners": ",".join(where),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(protocols),
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "broker.session.timeout.ms": "3000",  # how long a killed broker's next life waits to be let in
        "broker.heartbeat.interval.ms": "500",
        "auto.create.topics.enable": "false",
        "log.segment.bytes": str(64 * 1024 * 1024),
        **own,
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())
