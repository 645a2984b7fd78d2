"""What a sweep writes: one line a cell, and one line for each machine that measured cells.

A cell keeps one number a round and not its raw samples. A sweep has thousands of cells; the rounds
are what its intervals come from, and a cell that needs a closer look is one `ftax bench` away.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, Self

from ftax.errors import InvalidArgumentError
from ftax.machines.environment import Environment
from ftax.machines.host import UtcTime
from ftax.records.fields import FrozenMap, Rule
from ftax.records.record import Count, JsonScalar, Name, PositiveInt
from ftax.records.result import Stored
from ftax.timing.call_inputs import CallInput
from ftax.timing.cell import Cell
from ftax.timing.statistics import compute_interval, compute_mean
from ftax.timing.trust import find_disturbance, find_doubt_of_mean

REPETITION = "repetition"  # the option that tells a cell from the same cell measured once more
EVERY_MACHINE = "every_machine"  # the fact of a cell that each machine measures
GPU = "gpu"  # the option of a cell that wants a kind of GPU: a part of its name

_RESAMPLES = 2000
_CONFIDENCE = 0.95

_MOST = 2.0**63  # as of nanoseconds
Amount = Annotated[float, Rule("a number from 0 to 2**63", lambda value: 0 <= value < _MOST)]
RoundTime = Annotated[float, Rule("a time in ns, 0.001 to 2**63", lambda ns: 1e-3 <= ns < _MOST)]
Status = Literal["measured", "failed", "unavailable"]


def drop_options(cell: Cell, *names: str) -> Cell:
    """The cell without these options, such as the one measured once that was measured once more."""
    kept = {name: value for name, value in cell.options.items() if name not in names}
    return replace(cell, options=FrozenMap(kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepMachine(Stored):
    """A machine with its software; cells name it by its id."""

    kind: ClassVar[str] = "sweep-machine"

    id: Name
    environment: Environment

    @classmethod
    def of(cls, environment: Environment) -> Self:
        """The machine of ``environment``.

        Machines have one id if these are equal: name, CPU, GPU, driver, versions
        and threads. Load, clocks of the moment and the commit of ftax do not count.
        """
        identity = _identify(environment)
        if environment.machine:
            identity["name"] = environment.machine
        return cls(id=_hash(identity), environment=environment)

    @property
    def alike(self) -> str:
        """One text for all machines that differ in their names alone: the same hardware and
        software."""
        return _hash(_identify(self.environment))


def _identify(environment: Environment) -> dict[str, object]:
    host, gpu = environment.host, environment.gpu
    return {
        "host": [host.cpu_model, host.architecture, host.usable_cpus],
        "gpu": None if gpu is None else [gpu.name, gpu.driver, gpu.memory_bytes, gpu.mig],
        "kind": environment.device.partition(":")[0],
        "software": environment.software.to_dict(),
        "threads": environment.settings.num_threads,
    }


def _hash(identity: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRun(Stored):
    """One run of a sweep into a folder: what was asked for, and the seed of the order."""

    kind: ClassVar[str] = "sweep-run"

    utc: UtcTime  # of its begin
    seed: Count
    grids: tuple[Mapping[str, object], ...]
    settings: Mapping[str, object]
    cells: Count  # of the grids
    missing: Count  # of them, when it began


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTimes(Stored):
    """Where the time of one run went, over all its devices: seconds of each step."""

    kind: ClassVar[str] = "sweep-times"

    utc: UtcTime  # of the run's begin
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepExport(Stored):
    """What was exported for a cell before anything was timed; ``reason``: why it could not be."""

    kind: ClassVar[str] = "sweep-export"

    cell: Cell
    seconds: Amount  # with building the model, for the first of its cells; little if it was cached
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCell(Stored):
    """One cell of a sweep: measured, or why it is not.

    Attributes:
        machine: the id of the `SweepMachine` that measured it.
        reason: why it failed or is unavailable, in a line; empty for a measured cell.
        values_ns: one number a round, the median of its kept samples; rounds beside a busy
            neighbour are left out where enough others are left.
        busy_ns, kernel_ns, kernels: device busy time, summed kernel time and kernels of one
            inference, from a trace taken after the rounds; None without a reliable one.
        sm_active_ratio, sm_occupancy_ratio: over a run of synchronised requests; None where it was
            not asked for or the GPU does not say.
        peak_device_bytes: what one inference adds at its peak to the tensors that were there before
            it, by torch's allocator; None on a CPU.
        device_bytes: what the device has to have free for this runtime of this model, in all
            allocators: what is held after requests, with nothing else of this process there, and
            what a request adds; None where it was not asked for.
        macs, operators, modules: multiply-accumulates, operator calls and leaf-module calls of one
            inference of the whole batch.
        facts: of the preparation, such as its seconds.
    """

    kind: ClassVar[str] = "sweep-cell"

    cell: Cell
    machine: Name
    status: Status
    reason: str = ""
    values_ns: tuple[RoundTime, ...] = ()
    busy_ns: Amount | None = None
    kernel_ns: Amount | None = None
    kernels: Count | None = None
    sm_active_ratio: Amount | None = None
    sm_occupancy_ratio: Amount | None = None
    peak_device_bytes: Count | None = None
    device_bytes: Count | None = None
    macs: Count | None = None
    operators: Count | None = None
    modules: Count | None = None
    parameter_count: PositiveInt | None = None
    inputs: tuple[CallInput, ...] = ()  # of a request
    seconds: Amount = 0.0  # of wall time that the cell took
    facts: Mapping[str, JsonScalar] = field(default_factory=lambda: FrozenMap({}))
    warnings: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise InvalidArgumentError unless there are rounds, or a reason instead."""
        measured = self.status == "measured"
        if measured != bool(self.values_ns) or measured == bool(self.reason):
            raise InvalidArgumentError(
                f"SweepCell of {self.cell.label()} is {self.status!r} with {len(self.values_ns)} "
                f"rounds and the reason {self.reason!r}; it has to have rounds, or a reason"
            )

    @property
    def latency_ns(self) -> float:
        """The mean over rounds. Raises InvalidArgumentError for a cell without any."""
        if not self.values_ns:
            raise InvalidArgumentError(f"{self.cell.label()} was not measured: {self.reason}")
        return compute_mean(self.values_ns)

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """95 % interval of `latency_ns` from resampled rounds; None for fewer than two."""
        return compute_interval(
            self.values_ns, confidence=_CONFIDENCE, resamples=_RESAMPLES, seed=0
        )

    @property
    def doubt(self) -> str:
        """Why `latency_ns` is not to go by; "" if it is. See `ftax.timing.trust`."""
        queued = self.facts.get("queued_ratio")
        return find_doubt_of_mean(
            self.values_ns,
            self.interval_ns,
            queued_ratio=queued if isinstance(queued, float) else None,
        )

    @property
    def disturbance(self) -> str:
        """That its rounds were measured beside others; "" if they were not."""
        return find_disturbance(self.warnings)

    @property
    def overhead_share(self) -> float | None:
        """Share of the latency in which the device was idle (the paper, Figure 3)."""
        if self.busy_ns is None or not self.values_ns:
            return None
        return max(0.0, 1.0 - self.busy_ns / self.latency_ns)
