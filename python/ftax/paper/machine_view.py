"""What figures, tables and claims read of results: the cells of one machine, and points of them.

Tiny models count only where no full-sized one was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ftax.errors import InvalidArgumentError
from ftax.paper.drift import Drift, find_drift, is_repetition, join_repetitions
from ftax.paper.sheet import Point
from ftax.sweeps.results import SweepResults
from ftax.sweeps.sweep_records import SweepCell, SweepMachine
from ftax.timing.cell import Cell

_QUANTILE = 1.96  # of a normal distribution, of which 95 % lie within it

# Model, with what is run of it where that is no forward pass; "runtime/host", dtype, batch and
# sequence.
Place = tuple[str, str, str, int, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The cells of one kind of device, measured by one machine or by several that are alike.

    Attributes:
        label: what the machine is called in a legend: its GPU, or its CPU; tiny models with it.
        tiny: whether these are the zoo's tiny models.
        cells: by place; of two that differ in options alone, the one with fewer, and of two
            machines the first.
        every: all of these, as they were measured.
        repetitions: what was measured once more of them; ``repeated``: each such cell with a round
            for each repetition, by place.
        drift: of the machine between sessions, and of machines that are alike between each other;
            None if too little was measured once more.
        machine: the first; None where the results do not say what it was.
        machines: how many measured.
    """

    label: str
    device: str  # "cpu" or "cuda"
    tiny: bool
    cells: Mapping[Place, SweepCell]
    every: tuple[SweepCell, ...] = ()
    repetitions: tuple[SweepCell, ...] = ()
    repeated: Mapping[Place, SweepCell] = field(default_factory=dict)
    drift: Drift | None = None
    machine: SweepMachine | None = None
    machines: int = 1

    def find(
        self, model: str, runtime: str, dtype: str, batch: int, sequence: int | None = None
    ) -> SweepCell | None:
        """The cell there, measured or not. Without a sequence it is the only one there is.

        Raises:
            InvalidArgumentError: no sequence is given, and there are several.
        """
        if sequence is not None:
            return self.cells.get((model, runtime, dtype, batch, sequence))
        lengths = {place[4] for place in self._list_places(model, runtime, dtype)}
        if len(lengths) > 1:
            raise InvalidArgumentError(
                f"{model} {runtime} {dtype} was measured with the sequences "
                f"{sorted(lengths, key=str)}; say which one is meant"
            )
        return self.cells.get((model, runtime, dtype, batch, next(iter(lengths), None)))

    def find_batches(
        self, model: str, runtime: str, dtype: str, sequence: int | None = None
    ) -> tuple[int, ...]:
        """The batches with such a cell, ascending."""
        places = self._list_places(model, runtime, dtype)
        return tuple(sorted({place[3] for place in places if sequence in (None, place[4])}))

    def find_sequences(self, model: str, runtime: str, dtype: str, batch: int) -> tuple[int, ...]:
        """The sequences with such a cell, ascending."""
        places = self._list_places(model, runtime, dtype)
        return tuple(sorted(place[4] for place in places if place[3] == batch and place[4]))

    def _list_places(self, model: str, runtime: str, dtype: str) -> list[Place]:
        return [place for place in self.cells if place[:3] == (model, runtime, dtype)]


def split_views(results: SweepResults) -> tuple[View, ...]:
    """One view for each kind of machine and of device, in the order in which they measured.
    Machines that differ in their names alone are of one kind."""
    views = [
        make_view(cells, results.machines.get(cells[0].machine), kind)
        for part in split_by_kind(results)
        for kind, cells in _split_by_device(part).items()
    ]
    return tuple(_tell_apart(views))


def split_by_kind(results: SweepResults) -> list[list[SweepCell]]:
    """The cells of each kind of machine, in the order in which they measured first."""
    found: dict[str, list[SweepCell]] = {}
    for cell in results.cells:
        machine = results.machines.get(cell.machine)
        found.setdefault(machine.alike if machine else cell.machine, []).append(cell)
    return [*found.values()]


def _split_by_device(cells: Iterable[SweepCell]) -> dict[str, list[SweepCell]]:
    found: dict[str, list[SweepCell]] = {}
    for cell in cells:
        found.setdefault(find_kind(cell.cell), []).append(cell)
    return found


def group_views(views: Iterable[View]) -> list[tuple[View, ...]]:
    """Views that stand in one picture: those of one kind of device, tiny models apart."""
    found: dict[tuple[str, bool], list[View]] = {}
    for view in views:
        found.setdefault((view.device, view.tiny), []).append(view)
    return [tuple(group) for group in found.values()]


def find_kind(cell: Cell) -> str:
    """ "cpu" or "cuda": GPUs of one machine are alike."""
    return cell.device.split(":")[0]


def find_place(cell: Cell) -> Place:
    """Where a view keeps the cell."""
    model = cell.model if cell.step == "forward" else f"{cell.model} {cell.step}"
    return (model, f"{cell.runtime}/{cell.host}", cell.dtype, cell.batch, cell.sequence)


def is_tiny(cell: Cell) -> bool:
    """Whether the cell is of the tiny form of its model."""
    return cell.options.get("tiny") is True


def find_interval(cell: SweepCell, drift: Drift | None) -> tuple[float, float] | None:
    """The 95 % interval of a latency, ns: of its rounds, and of the drift between sessions."""
    interval = cell.interval_ns
    if interval is None or drift is None:
        return interval
    apart, middle = _QUANTILE * drift.widen(cell), cell.latency_ns
    low, high = (math.hypot(math.log(middle / end), apart) for end in interval)
    return middle * math.exp(-low), middle * math.exp(high)


def make_point(cell: SweepCell, x: float, drift: Drift | None = None) -> Point:
    """The latency of a measured cell, its interval and its busy time, in ms."""
    interval = find_interval(cell, drift)
    return Point(
        x=x,
        latency_ms=cell.latency_ns / 1e6,
        low_ms=None if interval is None else interval[0] / 1e6,
        high_ms=None if interval is None else interval[1] / 1e6,
        busy_ms=None if cell.busy_ns is None else cell.busy_ns / 1e6,
        doubt=cell.doubt or cell.disturbance,
    )


def name_machine(machine: SweepMachine | None, kind: str) -> str:
    """Its GPU for "cuda", otherwise its CPU; "this machine" where the record does not say."""
    if machine is None:
        return "this machine"
    gpu, host = machine.environment.gpu, machine.environment.host
    name = (gpu.name if gpu else None) if kind == "cuda" else host.cpu_model
    return (name or f"this machine's {kind}").removeprefix("NVIDIA ")


def make_view(cells: Sequence[SweepCell], machine: SweepMachine | None, kind: str) -> View:
    """The view of cells of one kind of machine and device."""
    tiny = all(is_tiny(cell.cell) for cell in cells)
    own = [cell for cell in cells if is_tiny(cell.cell) == tiny]
    kept: dict[Place, SweepCell] = {}
    for cell in own:
        place = find_place(cell.cell)
        if _is_better(cell, kept.setdefault(place, cell)):
            kept[place] = cell
    return View(
        label=name_machine(machine, kind) + (", tiny models" if tiny else ""),
        device=kind,
        tiny=tiny,
        cells=kept,
        every=tuple(own),
        repetitions=tuple(cell for cell in own if is_repetition(cell.cell)),
        repeated={find_place(cell): found for cell, found in join_repetitions(own).items()},
        drift=find_drift(own),
        machine=machine,
        machines=len({cell.machine for cell in cells if cell.status == "measured"}),
    )


def _is_better(cell: SweepCell, known: SweepCell) -> bool:
    """Whether it has fewer options; of one machine also as many, since it was measured later."""
    more = len(cell.cell.options) - len(known.cell.options)
    return more < 0 or (more == 0 and cell.machine == known.machine)


def _tell_apart(views: list[View]) -> list[View]:
    """Machines of one name get the start of their id."""
    labels = [view.label for view in views]
    return [
        replace(view, label=f"{view.label} ({view.machine.id[:6]})")
        if view.machine and labels.count(view.label) > 1
        else view
        for view in views
    ]
