"""What the checks found, as a record that a results file can hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from ftax.machines.environment import Device
from ftax.records.record import Name, Record
from ftax.records.result import Result

Status = Literal["passed", "failed", "skipped"]
_STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Record):
    """How one check ended; ``reason`` says why it failed or was skipped, in one line."""

    name: Name
    status: Status
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformance(Result):
    """What all checks found of one library on one model and device."""

    kind: ClassVar[str] = "conformance"

    plugin: Name  # the library's file name
    config: str
    model: Name
    device: Device
    findings: tuple[Finding, ...]

    def describe(self) -> str:
        """How many checks passed, failed and were skipped."""
        counts = Counter(finding.status for finding in self.findings)
        found = ", ".join(f"{counts[status]} {status}" for status in _STATUSES)
        return f"{self.plugin} on {self.model}, {self.device}: {found}"

    @property
    def conforms(self) -> bool:
        """Whether no check failed. A check that was skipped says nothing."""
        return all(finding.status != "failed" for finding in self.findings)
