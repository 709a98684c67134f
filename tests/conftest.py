"""What all tests share: their order, the broker of the session, a real Hindsight, a real Paperclip.

Unit tests start none. Servers are installed before the first test, outside its time limit, and start when a test first
asks for them.
"""

import os
import re
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer.embedded import hindsight as hindsight_server
from consumer.embedded.hindsight import Hindsight
from tests.support import kafka, kafka_jvm
from tests.support import paperclip as paperclip_server
from tests.support.kafka import Broker, Kind
from tests.support.paperclip import RECORDED, TODAY, Mode, Packages, Paperclip, Target
from tests.support.topics import Topics

ORDER = ("unit", "contract", "integration", "e2e")
HINDSIGHT_KEY = "test-key-of-hindsight"
_kind = pytest.StashKey[Kind]()
_hindsight = pytest.StashKey[Path]()
_paperclip = pytest.StashKey[dict[str, Packages]]()

PAPERCLIP = "PAPERCLIP_MEMORY_TEST_PAPERCLIP"
"""Environment variable: the Paperclips to test instead of the matrix, RELEASE or RELEASE:MODE, with commas between."""
FULL = (Target(RECORDED, Mode.LOCAL_TRUSTED), Target(TODAY, Mode.AUTHENTICATED))
"""All end-to-end tests run on these."""
PARTIAL = (Target(RECORDED, Mode.AUTHENTICATED), Target(TODAY, Mode.LOCAL_TRUSTED))
"""Tests marked `every_paperclip` run on these, too."""


def pytest_configure(config: pytest.Config) -> None:
    # SIGTERM ends the session as Ctrl-C does, so that its servers end too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a real Paperclip runs once on each of the matrix that it is for."""
    if "paperclip_target" not in metafunc.fixturenames:
        return
    named = [name.strip() for name in os.environ.get(PAPERCLIP, "").split(",") if name.strip()]
    marked = metafunc.definition.get_closest_marker("every_paperclip")
    targets = [Target.parse(name) for name in named] or [*FULL, *(PARTIAL if marked else ())]
    if metafunc.definition.get_closest_marker("authenticated"):
        targets = [target for target in targets if target.mode is Mode.AUTHENTICATED]
    metafunc.parametrize("paperclip_target", targets, ids=str, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Quick tests first; and those that need real Apache Kafka are skipped by name where there is none."""
    root = config.rootpath / "tests"

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(root).parts[0] if item.path.is_relative_to(root) else ""
        return ORDER.index(folder) if folder in ORDER else len(ORDER)

    items.sort(key=rank)
    if not _wanted(items, "broker"):
        return
    kind = config.stash[_kind] = kafka.choose()
    if kind.real:
        return
    if os.environ.get(kafka.REQUIRE_REAL):
        raise pytest.UsageError(
            f"{kafka.REQUIRE_REAL} is set, and there is no Apache Kafka: set {kafka.SERVERS}, start Docker, or install "
            "a JVM and Maven (apt-get install default-jre-headless maven)"
        )
    skip = pytest.mark.skip(reason=f"needs real Apache Kafka; here is the {kind.value}")
    for item in items:
        if item.get_closest_marker("real_kafka"):
            item.add_marker(skip)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    kind = config.stash.get(_kind, None)
    return [f"Kafka for these tests: {kind.value}"] if kind else []


def pytest_runtestloop(session: pytest.Session) -> None:
    """Install what the chosen tests need. Returns None: pytest's own loop follows."""
    config = session.config
    if config.option.collectonly or session.testsfailed:
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if config.stash.get(_kind, None) is Kind.JVM:
        kafka_jvm.install()
    if any(_wanted(session.items, name) for name in ("hindsight", "hindsight_with_key")):
        config.stash[_hindsight] = hindsight_server.install(
            lambda line: reporter.write_line(f"installing Hindsight: {line}") if reporter else None
        )
    specs = [item.callspec for item in session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    targets = [target for spec in specs if isinstance(target := spec.params.get("paperclip_target"), Target)]
    config.stash[_paperclip] = {
        version: paperclip_server.install(version) for version in sorted({target.version for target in targets})
    }


def _wanted(items: list[pytest.Item], fixture: str) -> bool:
    return any(fixture in getattr(item, "fixturenames", ()) for item in items)


@pytest.fixture(scope="session")
def server_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of all servers' logs; pytest keeps it for a while."""
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config, server_logs: Path) -> Iterator[Broker]:
    """The broker of the session."""
    with kafka.running(pytestconfig.stash[_kind], server_logs) as running:
        yield running


@pytest.fixture
def topics(broker: Broker, request: pytest.FixtureRequest) -> Topics:
    """Topic and group names that no other test has."""
    test = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:80]
    return Topics(broker, f"{test}.{uuid.uuid4().hex[:8]}")


@pytest.fixture(scope="session")
def hindsight(pytestconfig: pytest.Config, server_logs: Path) -> Iterator[Hindsight]:
    """A real Hindsight that needs no key. A test that stops it starts it again."""
    with Hindsight(pytestconfig.stash[_hindsight], server_logs) as server:
        yield server


@pytest.fixture(scope="session")
def hindsight_with_key(pytestconfig: pytest.Config, server_logs: Path) -> Iterator[Hindsight]:
    """A real Hindsight that demands `HINDSIGHT_KEY`."""
    with Hindsight(pytestconfig.stash[_hindsight], server_logs, api_key=HINDSIGHT_KEY) as server:
        yield server


@pytest.fixture(scope="session")
def paperclip_target(request: pytest.FixtureRequest) -> Target:
    """The release and mode of Paperclip that this test runs on."""
    target: Target = request.param
    return target


@pytest.fixture(scope="session")
def paperclip_packages(pytestconfig: pytest.Config, paperclip_target: Target) -> Packages:
    """The installed release, with the SDK of its plugins."""
    return pytestconfig.stash[_paperclip][paperclip_target.version]


@pytest.fixture(scope="session")
def paperclip(paperclip_packages: Packages, paperclip_target: Target, server_logs: Path) -> Iterator[Paperclip]:
    """A real Paperclip. A test makes its own companies; one that stops it starts it again."""
    with Paperclip(paperclip_packages, server_logs, paperclip_target.mode) as server:
        yield server
