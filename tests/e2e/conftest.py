"""What end-to-end tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer.embedded.hindsight import Hindsight
from tests.support.installation import Installation, open_installation
from tests.support.kafka import Broker


@pytest.fixture
def installation(broker: Broker, hindsight: Hindsight, tmp_path: Path) -> Iterator[Installation]:
    """Topics, groups and a company of this test's own, on a Hindsight that needs no key."""
    with open_installation(broker, hindsight, tmp_path) as opened:
        yield opened
