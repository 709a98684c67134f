"""The result of a probe and its remedy."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import SecretStr
from structlog.typing import FilteringBoundLogger

from consumer.errors import DownKind, HandlingError, Transient, UpstreamDown
from consumer.settings.types import label


class Mark(StrEnum):
    """How a probe ended."""

    OK = "ok"
    FAILED = "failed"
    WARNED = "warned"
    ABSENT = "absent"


_SIGNS = {Mark.OK: "✓", Mark.FAILED: "✗", Mark.WARNED: "!", Mark.ABSENT: "\N{EN DASH}"}


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of a probe; `fix` is the remedy, "" if none is needed."""

    name: str
    mark: Mark
    text: str
    fix: str = ""

    @property
    def line(self) -> str:
        """The probe as one line of text."""
        return f"{_SIGNS[self.mark]} {self.name}: {self.text}" + (f". To do: {self.fix}" if self.fix else "")


def passed(probes: Sequence[Probe]) -> bool:
    """Whether no probe failed; warnings and missing services do not count."""
    return all(probe.mark is not Mark.FAILED for probe in probes)


def log_probes(logger: FilteringBoundLogger, probes: Sequence[Probe]) -> None:
    """Log each probe: failures as errors, warnings and missing services as warnings."""
    levels = {Mark.FAILED: logger.error, Mark.WARNED: logger.warning, Mark.ABSENT: logger.warning}
    for probe in probes:
        log = levels.get(probe.mark, logger.info)
        fix = {"fix": probe.fix} if probe.fix else {}
        log("probe", probe=probe.name, mark=probe.mark, result=probe.text, **fix)


def failed(name: str, key: SecretStr | None, error: HandlingError) -> Probe:
    """The probe of an upstream whose request failed. `key`: the configured key, None if none is set."""
    url, setting = label(f"{name}_api_url"), label(f"{name}_api_key")
    match error:
        case UpstreamDown(kind=DownKind.REFUSED) if key is None:
            return Probe(name, Mark.FAILED, "requires a key, and none is set", f"set {setting}")
        case UpstreamDown(kind=DownKind.REFUSED):
            fix = f"set {setting} to a key that is valid there: this one is wrong, revoked or expired"
        case UpstreamDown():
            fix = f"start it there, or correct {url}"
        case Transient():
            fix = f"look at its log; if it shows nothing, correct {url}"
        case _:
            fix = f"correct {url}: another server seems to answer there"
    return Probe(name, Mark.FAILED, str(error), fix)


def accepts(key: SecretStr | None) -> str:
    return "needs no key" if key is None else "accepts our key"


def numbers(version: str) -> tuple[int, ...]:
    """A version as a tuple of numbers, which compares as versions do."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
