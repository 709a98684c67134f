"""What end-to-end tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer.embedded.hindsight import Hindsight
from tests.e2e.site import Site, open_site
from tests.support.kafka import Broker


@pytest.fixture
def site(broker: Broker, hindsight: Hindsight, tmp_path: Path) -> Iterator[Site]:
    """Topics, groups and a company of this test's own, on a Hindsight that needs no key."""
    with open_site(broker, hindsight, tmp_path) as opened:
        yield opened
