"""One runtime under both hosts, measured in the same rounds: what the host language costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from ftax.errors import InvalidArgumentError
from ftax.records.result import Result
from ftax.timing.differences import compute_difference, find_doubt_of
from ftax.timing.measurement import Measurement
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import format_interval, format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class HostComparison(Result):
    """A runtime driven from Python and from C++; unpacks as ``python, cpp``."""

    kind: ClassVar[str] = "host-comparison"

    python: Measurement
    cpp: Measurement

    def check(self) -> None:
        """Raise InvalidArgumentError unless both are of one runtime and of the same rounds."""
        cells = [(item.cell.model, item.cell.runtime, item.mode) for item in self]
        hosts = [item.cell.host for item in self]
        rounds = [len(item.samples_ns) for item in self]
        if cells[0] != cells[1] or hosts != ["python", "cpp"] or rounds[0] != rounds[1]:
            raise InvalidArgumentError(
                f"these are {cells[0]} with host {hosts[0]} and {rounds[0]} rounds, and {cells[1]} "
                f"with host {hosts[1]} and {rounds[1]}; a comparison of hosts needs python and cpp "
                "of one runtime, from the same rounds"
            )

    def __iter__(self) -> Iterator[Measurement]:
        yield self.python
        yield self.cpp

    def with_label(self, label: str) -> Self:
        """The same, both measurements under another label."""
        return replace(self, python=self.python.with_label(label), cpp=self.cpp.with_label(label))

    @property
    def overhead_ns(self) -> float:
        """Latency called from Python minus latency called from C++."""
        return compute_difference((self.python, self.cpp), 0, 1)[0]

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """Interval of the overhead, rounds paired; None below two rounds."""
        return compute_difference((self.python, self.cpp), 0, 1)[1]

    def describe(self) -> str:
        """The overhead as a sentence."""
        cell, interval = self.python.cell, self.interval_ns
        what = f"calling {cell.runtime} on {cell.model} from Python"
        total = format_time(self.python.latency_ns)
        if doubt := find_doubt_of([*self]):
            return f"The cost of {what} is {NOT_RESOLVED}: {doubt}."
        if interval is None or interval[0] <= 0 <= interval[1]:
            return f"The cost of {what} is not resolved: {format_interval(interval)} of {total}."
        share = self.overhead_ns / self.python.latency_ns
        if self.overhead_ns < 0:
            slower = f"{format_time(-self.overhead_ns)} ({-share:.1%})"
            return f"C++ is slower than {what}, by {slower}."
        return (
            f"{what[0].upper()}{what[1:]} costs {format_time(self.overhead_ns)} of {total} "
            f"({share:.1%}; {format_interval(interval)})."
        )
