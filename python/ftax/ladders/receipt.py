"""The receipt: where the microseconds of one inference go, and what other runtimes would give back.

A receipt stores measurements; its lines are computed from their raw samples each time they are
asked for, so the file cannot say one thing and its samples another. Advice stands above it, and is
found by name, as what draws a record is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

from ftax.errors import InvalidArgumentError
from ftax.instruments.energy import EnergyLine, compute_energy_tax
from ftax.instruments.phases import Phase
from ftax.instruments.python_samples import PythonSamples
from ftax.instruments.readings import GpuReadings
from ftax.instruments.trace.timeline import Timeline
from ftax.ladders.evidence import RungEvidence
from ftax.ladders.ladder import EAGER, Ladder, find_ladder
from ftax.ladders.lines import Line, check_stored_lines, compute_lines
from ftax.ladders.rows import RuntimeRow, compute_rows
from ftax.ladders.skew import CollectiveTime, find_other_ranks
from ftax.records.fields import FrozenMap
from ftax.records.kinds import find
from ftax.records.record import Count, Name, Record
from ftax.records.result import Result
from ftax.steps.feeds import LOADER
from ftax.tape.waits import Wait
from ftax.timing.candidate import Placed
from ftax.timing.differences import compute_difference
from ftax.timing.measurement import (
    Measurement,
    describe_doubts,
    describe_page_faults,
    describe_slow_calls,
    format_measured,
)
from ftax.timing.trust import NOT_RESOLVED

FIRST = "first"  # of the preparation: what a reader has to know before any number
_MOST_OF_TAPE = 2.0  # that operator calls take, looked at one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCost(Record):
    """Host time of one operator call of the tape: medians, ns; each part includes a clock read."""

    index: Count  # in the order of execution
    operator: Name
    module: str  # path of the module whose forward made the call; "" for the model itself
    build_ns: float  # arguments onto the stack
    call_ns: float  # the call; on the CPU that is dispatch and kernel together
    release_ns: float  # results stored, dead tensors freed

    @property
    def total_ns(self) -> float:
        """All three parts."""
        return self.build_ns + self.call_ns + self.release_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable(Placed, Record):
    """A rung or an alternative that could not be measured, and why: in one line, and in full."""

    runtime: Name
    host: Literal["python", "cpp"]
    reason: str
    error: str = ""  # the whole chain of errors, or "" if nothing was tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(Result):
    """Rungs and alternatives of one model, measured in the same interleaved rounds, and what was
    looked at closer afterwards.

    Attributes:
        ladder_name: whose rungs these are.
        rungs: from the first one down; at least one.
        others: the alternatives, in the order of measurement.
        evidence: on a GPU, what each rung and alternative ran there, gathered after the rounds.
        outside_ns: of a function, how long a call is outside of torch, in rounds of its own; empty
            where it is next to nothing.
        collectives: of a step that communicates, how long each rung is in its collectives, with
            the other ranks; empty for others.
        throughputs: the same runtimes with requests back to back, if that was asked for.
        unavailable: what could not be measured.
        operator_costs: host time per operator call of the tape; empty if there is no tape.
        python_samples: where Python eager's Python spends its time, by line and module; None where
            that was not sampled.
        waits: on a GPU, where Python eager waits for the device.
        phases: of a step that trains, in Python eager; empty for others.
        readings: energy, utilisation and memory of each runtime, if they were asked for.
        floors_ns: what the machine itself costs (`ftax doctor`), ns by name.
        preparation: seconds spent before and after the rounds, by step.
    """

    kind: ClassVar[str] = "receipt"

    ladder_name: Name = EAGER.name
    rungs: tuple[Measurement, ...]
    others: tuple[Measurement, ...] = ()
    evidence: tuple[RungEvidence, ...] = ()
    outside_ns: tuple[float, ...] = ()
    collectives: tuple[CollectiveTime, ...] = ()
    throughputs: tuple[Measurement, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()
    operator_costs: tuple[OperatorCost, ...] = ()
    python_samples: PythonSamples | None = None
    phases: tuple[Phase, ...] = ()
    waits: tuple[Wait, ...] = ()
    readings: tuple[GpuReadings, ...] = ()
    floors_ns: Mapping[str, float] = field(default_factory=lambda: FrozenMap({}))
    preparation: Mapping[str, object] = field(default_factory=lambda: FrozenMap({}))
    warnings: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise InvalidArgumentError unless the rungs are rungs, in order, of the same rounds."""
        ladder = self.ladder
        places = [ladder.rungs.index(ladder.find(rung.place)) for rung in self.rungs]
        if not places or places[0] != 0 or places != sorted(set(places)):
            raise InvalidArgumentError(
                f"the rungs are {places}; a receipt starts with {ladder.top} and goes down the "
                "ladder"
            )
        rounds = {len(item.samples_ns) for item in (*self.rungs, *self.others)}
        if len(rounds) != 1:
            raise InvalidArgumentError(
                f"the measurements have {sorted(rounds)} rounds; a receipt needs the same rounds"
            )
        if any(item.mode != "throughput" for item in self.throughputs):
            raise InvalidArgumentError(
                "a measurement among Receipt.throughputs has mode 'latency'; it belongs into others"
            )

    @property
    def ladder(self) -> Ladder:
        """Whose rungs these are."""
        return find_ladder(self.ladder_name)

    @property
    def latency_ns(self) -> float:
        """Latency of the first rung."""
        return self.rungs[0].latency_ns

    @property
    def lines(self) -> tuple[Line, ...]:
        """Parts of the latency, top to bottom; their times sum to it exactly."""
        return compute_lines(
            self.rungs,
            self.evidence,
            ladder=self.ladder,
            outside_ns=self.outside_ns,
            collectives=self.collectives,
        )

    @property
    def work_problem(self) -> str:
        """How calls of the first rung differed while they were timed; "" if that was not seen."""
        return self.rungs[0].work_problem

    @property
    def python_tax_ns(self) -> tuple[float, tuple[float, float] | None] | None:
        """The first rung minus the first without Python (`compute_step`); None if that was not
        measured, and if the first one's calls were not all the same work."""
        places = [rung.place for rung in self.rungs]
        without = self.ladder.without_python
        if self.work_problem or without not in places:
            return None
        return self.compute_step(0, places.index(without))

    def compute_step(self, upper: int, lower: int) -> tuple[float, tuple[float, float] | None]:
        """The latency of one rung minus another's, ns, with its interval; less what other ranks
        cost the one more."""
        time_ns, interval_ns = compute_difference(self.rungs, upper, lower)
        others = find_other_ranks(self.rungs, self.collectives)
        if others is None:
            return time_ns, interval_ns
        return others.subtract(time_ns, interval_ns, upper, lower)

    @property
    def label(self) -> str:
        """What the user calls it: "before"."""
        return self.rungs[0].label

    def with_label(self, label: str) -> Self:
        """The same, all measurements under another label."""
        labelled = {
            name: tuple(item.with_label(label) for item in getattr(self, name))
            for name in ("rungs", "others", "throughputs")
        }
        return replace(self, **labelled)  # type: ignore[arg-type]  # of the fields' own types

    def describe(self) -> str:
        """The latency and the share of each line, in a line."""
        cell, top = self.rungs[0].cell, self.rungs[0]
        name = f"{self.label}: " if self.label else ""
        parts = ", ".join(
            f"{line.name} {NOT_RESOLVED if line.doubt else f'{line.share_ratio:.0%}'}"
            for line in self.lines
        )
        return (
            f"{name}{cell.model}, {cell.device}, {cell.dtype}, batch {cell.batch}: "
            f"{format_measured(top)}, of which {parts}; "
            f"{len(self.rungs) + len(self.others)} runtimes"
        )

    @property
    def runtimes(self) -> tuple[RuntimeRow, ...]:
        """Rungs and alternatives, fastest first: what each saves, and of what."""
        return compute_rows(
            (*self.rungs, *self.others),
            self.evidence,
            self.throughputs,
            ladder=self.ladder,
        )

    @property
    def alternatives(self) -> tuple[RuntimeRow, ...]:
        """The runtimes beside the ladder, fastest first."""
        return tuple(row for row in self.runtimes if not row.is_rung)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended its rounds, or what was looked at afterwards."""
        after = self.preparation.get("interrupted") is True
        return after or self.rungs[0].stop_reason == "interrupted"

    def with_preparation(self, **found: object) -> Self:
        """The same, with more of what was before and after the rounds."""
        return replace(self, preparation={**self.preparation, **found})

    @property
    def recommendation(self) -> str:
        """What the numbers advise, in sentences."""
        return str(find("ftax.ladders.advice:recommend")(self))

    @property
    def adoption(self) -> str:
        """Python code without ftax, from ``model`` and ``inputs`` (the tensors of one request) to
        ``outputs``: it adopts the fastest of the runtimes that are faster for certain and give the
        model's outputs. "" if there is none."""
        return str(find("ftax.ladders.advice:adopt")(self))

    @property
    def loader_ns(self) -> float:
        """What batches cost beside a step, in which each run had the same one; 0 without a
        loader."""
        return sum(phase.host_ns for phase in self.phases if phase.name == LOADER)

    def collect_warnings(self) -> list[str]:
        """Warnings of the receipt and of its measurements, each once."""
        found = [*self.warnings]
        for measurement in (*self.rungs, *self.others):
            found += measurement.warnings
        for describe in (describe_doubts, describe_slow_calls):
            found += describe((*self.rungs, *self.others))
            found += [f"throughput: {text}" for text in describe(self.throughputs)]
        found += describe_page_faults((*self.rungs, *self.others))
        return list(dict.fromkeys(found))

    def energy_tax(self) -> tuple[EnergyLine, ...]:
        """What each step down the ladder saves of one inference's energy; () if not read."""
        read = {item.place: item.energy for item in self.readings}
        rungs = [
            (str(rung.place), energy)
            for rung in self.rungs
            if (energy := read.get(rung.place)) is not None
        ]
        return compute_energy_tax(rungs)

    def timeline(self) -> tuple[Timeline, ...]:
        """Where the wall time of traced inferences went, a runtime each; tracing slows them."""
        return tuple(item.timeline for item in self.evidence if item.timeline is not None)

    def operators(self) -> tuple[OperatorCost, ...]:
        """Host time per operator call, dearest first: the answer to "which operator?"."""
        return tuple(sorted(self.operator_costs, key=lambda cost: -cost.total_ns))

    @property
    def operator_doubt(self) -> str:
        """Why `operator_costs` are not to go by; "" if they are. They sum to the latency of the
        tape without Python, but for the clock that is read between them."""
        tape = next((r for r in self.rungs if r.place == self.ladder.without_python), None)
        if tape is None or not self.operator_costs:
            return ""
        ratio = sum(cost.total_ns for cost in self.operator_costs) / tape.latency_ns
        if not tape.doubt and ratio > _MOST_OF_TAPE:
            return (
                f"looked at one by one the calls took {ratio:.1f} times as long as in the rounds, "
                "so something else had the CPU"
            )
        return tape.doubt

    def to_dict(self) -> dict[str, object]:
        """Plain dicts, lists and scalars; the lines are stored for other readers of the file."""
        return {**Record.to_dict(self), "lines": [line.to_dict() for line in self.lines]}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """Build the receipt that `to_dict` described.

        Raises:
            ResultsError: a field is missing, unknown or refused, or the stored lines are not those
                of the samples.
        """
        fields = {"python_samples": None, "collectives": [], **data}  # files of before have none
        stored = fields.pop("lines", None)
        # Named, not bare: slots=True makes a new class, which a bare super() does not know.
        receipt = super(Receipt, cls).from_dict(fields)
        check_stored_lines(stored, receipt.lines)
        return receipt
