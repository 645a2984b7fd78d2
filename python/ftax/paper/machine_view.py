"""What figures, tables and claims read of results: the cells of one machine, and how far machines
of one kind drift between measuring sessions and lie apart.

Tiny models count only where no full-sized one was measured. Drift is known from cells that were
measured repeatedly. Only the part of a latency in which the device is idle drifts: a kernel takes
as long an hour later; the host has another clock and other neighbours.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ftax.errors import InvalidArgumentError
from ftax.records.fields import FrozenMap
from ftax.records.record import JsonScalar
from ftax.sweeps.results import SweepResults
from ftax.sweeps.sweep_records import GPU, REPETITION, SweepCell, SweepMachine, drop_options
from ftax.sweeps.variance import split_variance
from ftax.timing.cell import Cell

REPEATED = "repeated"  # how the session of cells begins whose rounds are repetitions: which ones
_FEWEST = 3  # measurements of a cell that say anything about their spread
_FEWEST_TOGETHER = 2  # cells that say what a worker's have in common
_HOST_BOUND = 0.5  # share of a latency
_QUANTILE = 1.96  # of a normal distribution, of which 95 % lie within it


class _Run(NamedTuple):
    """When a cell was measured: on which machine, in which repetition; 0 is the first time."""

    machine: str
    mark: JsonScalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Of one machine, or of machines that are alike.

    Attributes:
        sigma: standard deviation, between sessions, of the logarithm of the host's part of a
            latency that is mostly the host's; of several machines, with what lies between them.
        within: that between sessions of one worker, a part of ``sigma``; all of it where that is
            not known. The cells of a model are measured by one worker.
        cells: that were measured repeatedly; ``measurements``: of all of them.
        machines: that repeated some; ``apart``: the part of ``sigma`` that lies between them, None
            where no cell tells.
    """

    sigma: float
    within: float
    cells: int
    measurements: int
    machines: int = 1
    apart: float | None = None

    def describe(self) -> str:
        """One sentence, or two of several machines."""
        several = ""
        if self.machines > 1:
            which = f"the {self.machines} machines, which are alike,"
            several = f" How far {which} lie apart beside that is not known."
            if self.apart is not None:
                several = f" Between {which} lie {100 * self.apart:.1f} % of that."
        return (
            f"Between measuring sessions the host's part of a latency moved by "
            f"{100 * self.sigma:.1f} % (standard deviation, {self.measurements} measurements of "
            f"{self.cells} cells), within a worker by {100 * self.within:.1f} %.{several}"
        )

    @property
    def between(self) -> float:
        """That between workers, beside ``within``."""
        return math.sqrt(max(0.0, self.sigma**2 - self.within**2))

    def widen(self, cell: SweepCell) -> float:
        """Standard deviation of the logarithm of the latency of ``cell``, of drift alone."""
        return self.sigma * find_drifting_share(cell)


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
        repeated: each cell that was measured once more, with a round for each repetition, by place.
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


def name_machine(machine: SweepMachine | None, kind: str) -> str:
    """Its GPU for "cuda", otherwise its CPU; "this machine" where the record does not say."""
    if machine is None:
        return "this machine"
    gpu, host = machine.environment.gpu, machine.environment.host
    name = (gpu.name if gpu else None) if kind == "cuda" else host.cpu_model
    return name or f"this machine's {kind}"


def make_view(cells: Sequence[SweepCell], machine: SweepMachine | None, kind: str) -> View:
    """The view of cells of one kind of machine and device."""
    tiny = all(is_tiny(cell.cell) for cell in cells)
    own = [cell for cell in cells if is_tiny(cell.cell) == tiny]
    name = name_machine(machine, kind)
    kept: dict[Place, SweepCell] = {}
    for cell in own:
        place = find_place(cell.cell)
        if _is_better(cell, kept.setdefault(place, cell)):
            kept[place] = cell
    return View(
        label=name.removeprefix("NVIDIA ") + (", tiny models" if tiny else ""),
        device=kind,
        tiny=tiny,
        cells=kept,
        every=tuple(own),
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


def is_repetition(cell: Cell) -> bool:
    """Whether it was measured once more."""
    return REPETITION in cell.options


def find_host_share(cell: SweepCell) -> float:
    """Of the latency, the part in which the device is idle; all of it where that is not known."""
    share = cell.overhead_share
    return 1.0 if share is None else share


def find_drifting_share(cell: SweepCell) -> float:
    """Of the latency, the part that another session would see otherwise than its rounds say."""
    is_repeated = str(cell.facts.get("session")).startswith(REPEATED)
    return 0.0 if is_repeated else find_host_share(cell)


def find_drift(cells: Iterable[SweepCell]) -> Drift | None:
    """The drift that cells of machines that are alike show; None if too few were repeated."""
    rows: list[dict[_Run, float]] = []  # of each cell, the logarithm of the host's part
    for group in _group(cells).values():
        shares = [find_host_share(cell) for cell in group]
        if len(group) >= _FEWEST and min(shares) >= _HOST_BOUND:
            rows.append(
                {
                    _find_run(cell): math.log(cell.latency_ns * share)
                    for cell, share in zip(group, shares, strict=True)
                }
            )
    if not rows:
        return None
    parts = split_variance(map(_split_by_machine, rows))
    if parts.within is None:
        return None
    sigma = math.hypot(parts.within, parts.between or 0.0)
    return Drift(
        sigma=sigma,
        within=min(parts.within, _find_within(rows, parts.within)),
        cells=len(rows),
        measurements=sum(map(len, rows)),
        machines=len({run.machine for row in rows for run in row}),
        apart=parts.between,
    )


def _find_run(cell: SweepCell) -> _Run:
    return _Run(cell.machine, cell.cell.options.get(REPETITION, 0))


def _split_by_machine(row: Mapping[_Run, float]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for run, value in row.items():
        found.setdefault(run.machine, []).append(value)
    return found


def _find_within(rows: Sequence[Mapping[_Run, float]], sigma: float) -> float:
    """What is left of the logarithms without the means of cells and of repetitions, each of which
    is one worker's; ``sigma`` where too little was repeated together."""
    common = set.intersection(*({run for run in row if run.mark != 0} for row in rows))
    marks = sorted(common, key=lambda run: (run.machine, str(run.mark).zfill(9)))
    if len(rows) < _FEWEST_TOGETHER or len(marks) < _FEWEST:
        return sigma
    by_mark = {mark: statistics.fmean(row[mark] for row in rows) for mark in marks}
    middle = statistics.fmean(by_mark.values())
    squares = 0.0
    for row in rows:
        own = statistics.fmean(row[mark] for mark in marks)
        squares += sum((row[mark] - own - by_mark[mark] + middle) ** 2 for mark in marks)
    return math.sqrt(squares / ((len(rows) - 1) * (len(marks) - 1)))


def join_repetitions(cells: Iterable[SweepCell]) -> Mapping[Cell, SweepCell]:
    """Each repeated cell of machines that are alike as one, a round for each repetition on each.

    Cells that were repeated together have rounds that belong together, like those of one session.
    What is not latency is that of the first.
    """
    joined = {}
    for cell, group in _group(cells).items():
        marked = sorted(
            (item for item in group if is_repetition(item.cell)),
            key=lambda item: (item.machine, str(item.cell.options[REPETITION]).zfill(9)),
        )
        if len(marked) >= _FEWEST:
            values = tuple(item.latency_ns for item in marked)
            runs = [_find_run(item) for item in marked]
            is_alone = len({run.machine for run in runs}) == 1
            which = " ".join(
                str(run.mark) if is_alone else f"{run.machine}/{run.mark}" for run in runs
            )
            facts = {**marked[0].facts, "session": f"{REPEATED} {which}"}
            joined[cell] = replace(marked[0], cell=cell, values_ns=values, facts=FrozenMap(facts))
    return joined


def _group(cells: Iterable[SweepCell]) -> dict[Cell, list[SweepCell]]:
    """Measured cells that are one but for the mark; only those with a mark somewhere."""
    groups: dict[Cell, list[SweepCell]] = {}
    for cell in cells:
        if cell.status == "measured":
            groups.setdefault(drop_options(cell.cell, GPU, REPETITION), []).append(cell)
    return {
        cell: group
        for cell, group in groups.items()
        if any(is_repetition(item.cell) for item in group)
    }
