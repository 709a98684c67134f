"""The result of a probe: what was found, and what to do about it."""

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
    """What a probe found; `fix` is what to do about it, "" if nothing needs to be done."""

    name: str
    mark: Mark
    text: str
    fix: str = ""

    @property
    def line(self) -> str:
        """The probe as a line for people."""
        return f"{_SIGNS[self.mark]} {self.name}: {self.text}" + (f". To do: {self.fix}" if self.fix else "")


def passed(probes: Sequence[Probe]) -> bool:
    """Whether no probe failed; warnings and what is not configured do not count."""
    return all(probe.mark is not Mark.FAILED for probe in probes)


def log_probes(logger: FilteringBoundLogger, probes: Sequence[Probe]) -> None:
    """A line of the log for each probe: errors for what failed, warnings for what is wanting."""
    levels = {Mark.FAILED: logger.error, Mark.WARNED: logger.warning, Mark.ABSENT: logger.warning}
    for probe in probes:
        log = levels.get(probe.mark, logger.info)
        fix = {"fix": probe.fix} if probe.fix else {}
        log("probe", probe=probe.name, mark=probe.mark, found=probe.text, **fix)


def failed(name: str, key: SecretStr | None, error: HandlingError) -> Probe:
    """The probe of an upstream whose request failed. `key`: the one that was sent, None if none is set."""
    url, setting = label(f"{name}_api_url"), label(f"{name}_api_key")
    match error:
        case UpstreamDown(kind=DownKind.REFUSED) if key is None:
            return Probe(name, Mark.FAILED, "asks for a key, and none is set", f"set {setting}")
        case UpstreamDown(kind=DownKind.REFUSED):
            fix = f"set {setting} to a key that is valid there: this one is wrong, revoked or expired"
        case UpstreamDown():
            fix = f"start it there, or correct {url}"
        case Transient():
            fix = f"look at its log; if nothing is wrong there, correct {url}"
        case _:
            fix = f"correct {url}: another server seems to answer there"
    return Probe(name, Mark.FAILED, str(error), fix)


def accepts(key: SecretStr | None) -> str:
    return "needs no key" if key is None else "accepts our key"


def numbers(version: str) -> tuple[int, ...]:
    """A version's numbers, which compare as versions do."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
