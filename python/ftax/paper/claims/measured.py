"""Results as claims read them: the cells of one machine, and draws of their latencies.

The draws of a cell depend on the cell alone and not on who asks: two claims about one cell see the
same resamples of it, in any order and in any company.
"""

from __future__ import annotations

import re
import statistics
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftax.paper.claims.arithmetic import Missing
from ftax.paper.claims.claim import Lookup, RequiredCell, find_cell
from ftax.paper.machine_view import (
    Drift,
    Place,
    View,
    find_drifting_share,
    find_kind,
    is_tiny,
    make_view,
    name_machine,
    split_by_kind,
)
from ftax.paper.reference import find_hardware, read_table
from ftax.sweeps.results import SweepResults
from ftax.sweeps.sweep_records import SweepCell

# The paper's names of GPUs in the names that drivers give them.
GPU_NAMES = {
    "1080Ti": r"1080 ?ti",
    "2080Ti": r"2080 ?ti",
    "3090": r"3090\b(?! ?ti)",
    "A100": r"\ba100\b",
    "A6000": r"\ba6000\b",
    "RTX-8000": r"rtx 8000\b",
    "TitanX": r"titan x\b",
    "V100": r"\bv100\b",
}

LATENCY = "latency_ms"
_FEWEST_ROUNDS = 2
_WORK = {"gmacs": ("macs", 1e-9), "modules": ("modules", 1.0)}
_OF_CELL = {
    "kernel_ms": ("kernel_ns", 1e-6, "summed kernel time"),
    "kernels": ("kernels", 1.0, "count of kernels"),
    "device_mb": ("device_bytes", 1e-6, "device memory"),
    "sms_active_pct": ("sm_active_ratio", 100.0, "share of active SMs"),
    "warp_occupancy_pct": ("sm_occupancy_ratio", 100.0, "occupancy of warps"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One kind of machine on its GPU; on its CPU where no GPU was measured.

    Attributes:
        label: the name of the GPU or CPU, with a number where kinds of machines share it.
        name: without it.
        cells: those of the view, or with the repeated ones in their places.
    """

    label: str
    name: str
    view: View
    cells: Mapping[Place, SweepCell]

    def choose_for(self, latencies: Iterable[RequiredCell]) -> Gpu:
        """This GPU with the repeated cells, if all the latencies that are wanted were repeated
        together: then their ratios are free of drift."""
        repeated = self.view.repeated
        chosen = [repeated.get(place) for place in latencies]
        sessions = {None if cell is None else cell.facts["session"] for cell in chosen}
        if len(sessions) != 1 or None in sessions:
            return self
        return replace(self, cells={**self.cells, **repeated})

    def is_a(self, paper_device: str) -> bool:
        """Whether it is the GPU that the paper calls so."""
        pattern = GPU_NAMES.get(paper_device)
        return pattern is not None and re.search(pattern, self.label.lower()) is not None

    def find(self, place: RequiredCell) -> SweepCell | Missing:
        """The measured cell behind a number."""
        cell = self.cells.get(place)
        if cell is None:
            return Missing(f"{place.label()} was not measured")
        if cell.status != "measured":
            return Missing(f"{place.label()}: {cell.status}, {cell.reason}")
        return cell

    def read(self, place: RequiredCell, column: str) -> float | Missing:
        """A column that has no rounds: counts of work, readings of the GPU, kernel time; "runs" is
        1 for a cell that was measured, 0 for one that its runtime cannot run."""
        cell = self.find(place)
        if column == "runs":
            return self._read_success(place, cell)
        if isinstance(cell, Missing):
            return cell
        if column in _WORK:
            return self._read_work(cell, *_WORK[column])
        if column == "samples" and cell.cell.sequence is not None:
            return float(cell.cell.sequence)
        name, factor, words = _OF_CELL.get(column, ("", 0.0, column))
        value = getattr(cell, name) if name else None
        if value is None:
            return Missing(f"{cell.cell.label()} has no {words}")
        return float(value) * factor

    def _read_success(self, place: RequiredCell, found: SweepCell | Missing) -> float | Missing:
        """A runtime that ran nothing else here says nothing about this model."""
        if not isinstance(found, Missing):
            return 1.0
        has_run = any(
            cell.status == "measured" and f"{cell.cell.runtime}/{cell.cell.host}" == place.framework
            for cell in self.cells.values()
        )
        return 0.0 if place in self.cells and has_run else found

    def _read_work(self, cell: SweepCell, name: str, factor: float) -> float | Missing:
        """Work is the model's and its size's: any cell that has them says it."""
        own = cell.cell
        size = (own.model, own.batch, own.sequence)
        for other in (cell, *self.cells.values()):
            value = getattr(other, name)
            place = other.cell
            if value is not None and (place.model, place.batch, place.sequence) == size:
                return float(value) * factor
        return Missing(f"{own.label()} has no count of {name}")

    def find_speed(self) -> float | None:
        """Peak rate in fp16 without Tensor Cores, TFLOP/s: of the paper's Table 2 for its GPUs,
        else the vendor's; None where neither is known here."""
        for row in read_table("table2_hardware.csv"):
            if self.is_a(row["gpu"]):
                return float(row["fp16_tflops"])
        stated = find_hardware(self.name)
        return float(stated["fp16_tflops"]) if stated else None


def list_gpus(results: SweepResults) -> tuple[Gpu, ...]:
    """The kinds of machines of results that measured anything, in the order of their cells. Tiny
    models are left out."""
    views = []
    for cells in split_by_kind(results):
        measured = {find_kind(cell.cell) for cell in cells if cell.status == "measured"}
        kind = "cuda" if "cuda" in measured else "cpu"
        own = [cell for cell in cells if find_kind(cell.cell) == kind and not is_tiny(cell.cell)]
        if measured and own:
            views.append(make_view(own, results.machines.get(cells[0].machine), kind))
    names = [name_machine(view.machine, view.device) for view in views]
    return tuple(
        Gpu(
            label=f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name,
            name=name,
            view=view,
            cells=view.cells,
        )
        for place, (name, view) in enumerate(zip(names, views, strict=True))
    )


def find_clock(cell: SweepCell) -> float | None:
    """Of the host's core while a cell was timed, in Hz."""
    found = cell.facts.get("core_hz")
    return float(found) if isinstance(found, int | float) and found > 0 else None


def bring_to_one_clock(gpu: Gpu) -> Gpu:
    """The same cells as if the host's core had always run at their middle clock.

    Only the part of a latency in which the device is idle goes with the clock. Cells without a
    known clock or busy time stay as they are.
    """
    clocks = [clock for cell in gpu.cells.values() if (clock := find_clock(cell)) is not None]
    if not clocks:
        return gpu
    middle, view = statistics.median(clocks), gpu.view
    cells = [_scale(cell, middle) for cell in view.every]
    steady = make_view(cells, view.machine, view.device)
    return replace(gpu, view=steady, cells=steady.cells)


def _scale(cell: SweepCell, to_hz: float) -> SweepCell:
    clock = find_clock(cell)
    if clock is None or cell.busy_ns is None or not cell.values_ns:
        return cell
    idle_share = max(0.0, 1 - cell.busy_ns / cell.latency_ns)
    factor = 1 + idle_share * (clock / to_hz - 1)
    return replace(cell, values_ns=tuple(value * factor for value in cell.values_ns))


class Sampler:
    """Means of resampled rounds, in ms; the same for a cell whenever it is asked for.

    With a drift of the machine each draw has another one, which cells of one session share, and in
    part those of one model.
    """

    def __init__(self, *, resamples: int, seed: int) -> None:
        self.resamples, self.seed = resamples, seed
        self._kept: dict[tuple[int, Drift | None], tuple[SweepCell, NDArray[np.float64]]] = {}

    def draw(self, cell: SweepCell, drift: Drift | None = None) -> NDArray[np.float64]:
        """``resamples`` means. Cells whose facts name one session share the rounds they draw."""
        kept = self._kept.get((id(cell), drift))
        if kept is None:
            kept = (cell, self._draw(cell) * self._draw_drift(cell, drift))
            self._kept[id(cell), drift] = kept  # with the cell, so that its id stays its own
        return kept[1]

    def _draw_drift(self, cell: SweepCell, drift: Drift | None) -> NDArray[np.float64]:
        """Factors of a latency: what is drawn for its model's worker and for its session, as far as
        the host has a share in it."""
        if drift is None:
            return np.ones(self.resamples)
        session = cell.facts.get("session") or cell.cell.key()
        moved = drift.between * self._draw_normal(f"{cell.machine} model {cell.cell.model}")
        moved += drift.within * self._draw_normal(f"{cell.machine} {session}")
        factors: NDArray[np.float64] = np.exp(find_drifting_share(cell) * moved)
        return factors

    def _draw_normal(self, name: str) -> NDArray[np.float64]:
        generator = np.random.default_rng([self.seed, 1, zlib.crc32(name.encode())])
        return generator.standard_normal(self.resamples)

    def _draw(self, cell: SweepCell) -> NDArray[np.float64]:
        values = np.asarray(cell.values_ns) / 1e6
        session: Any = cell.facts.get("session")
        name = cell.cell.key() if session is None else f"{session} {len(values)}"
        generator = np.random.default_rng(
            [self.seed, zlib.crc32(f"{cell.machine} {name}".encode())]
        )
        rounds = generator.integers(len(values), size=(self.resamples, len(values)))
        means: NDArray[np.float64] = values[rounds].mean(axis=1)
        return means


# Which machine stands for a GPU of the paper; why none does.
Choose = Callable[[str], Gpu | Missing]


class MeasuredNumbers:
    """A machine's, as measured, and with `draw` from 0 on as resampled rounds make them.

    Attributes:
        draw: the number of the resample, -1 as measured.
        short: cells that have too few rounds for a resample.
    """

    is_paper = False

    def __init__(self, choose: Choose, sampler: Sampler, gpus: Sequence[str] = ()) -> None:
        self.gpus, self.draw, self.short = gpus, -1, set[str]()
        self._choose, self._sampler = choose, sampler
        self._known: dict[Lookup, tuple[Any, Sequence[float] | None]] = {}
        gpu = choose("")
        drift = gpu.view.drift if isinstance(gpu, Gpu) else None
        self.drift = 0.0 if drift is None else drift.within

    def read(self, wanted: Lookup) -> Any:
        """The number of the cell, of this draw."""
        known = self._known.get(wanted)
        if known is None:
            known = self._known[wanted] = self._look(wanted)
        return known[0] if self.draw < 0 or known[1] is None else known[1][self.draw]

    def read_speed(self, gpu: str) -> float:
        """As Table 2 or the vendor has it; of GPUs without one no trend is followed."""
        found = self._choose(gpu)
        return (0.0 if isinstance(found, Missing) else found.find_speed()) or 0.0

    def _look(self, wanted: Lookup) -> tuple[Any, Sequence[float] | None]:
        gpu, place = self._choose(wanted.device), find_cell(*wanted[:5])
        if isinstance(gpu, Missing) or isinstance(place, Missing):
            return (place if isinstance(place, Missing) else gpu), None
        if wanted.column != LATENCY:
            return gpu.read(place, wanted.column), None
        cell = gpu.find(place)
        if isinstance(cell, Missing):
            return cell, None
        if len(cell.values_ns) < _FEWEST_ROUNDS:
            self.short.add(cell.cell.label())
        return cell.latency_ns / 1e6, self._sampler.draw(cell, gpu.view.drift).tolist()


class NoNumbers:
    """None, of anything: what was asked for is what a claim needs. ``cells`` are by column."""

    is_paper, drift = False, 0.0

    def __init__(self, gpus: Sequence[str]) -> None:
        self.gpus = gpus
        self.cells: dict[tuple[RequiredCell, str], None] = {}

    def read(self, wanted: Lookup) -> Missing:
        """Only remembers it."""
        place = find_cell(*wanted[:5])
        if isinstance(place, RequiredCell):
            self.cells[place, wanted.column] = None
        return Missing("nothing was measured")

    def read_speed(self, gpu: str) -> float:
        """No rate."""
        return 0.0
