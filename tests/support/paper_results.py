"""Results of sweeps made of given numbers, for tests of what is drawn of them.

Latencies follow a formula of the cell, so that a test can say what a figure has to show without
repeating a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ftax.machines.environment import collect_environment
from ftax.records.fields import FrozenMap
from ftax.sweeps.results import SweepResults
from ftax.sweeps.sweep_records import SweepCell, SweepMachine
from ftax.timing.cell import Cell

MACHINE = SweepMachine.of(collect_environment())


def latency_of(cell: Cell) -> float:
    """In ms: 1 plus a tenth for each request; half of it in fp16."""
    return (1 + cell.batch / 10) / (2 if cell.dtype == "fp16" else 1)


def make_cell(
    cell: Cell, *, machine: str = MACHINE.id, latency_ms: float | None = None, **changes: object
) -> SweepCell:
    """Measured in five rounds around its latency; the device is busy half of it."""
    middle = (latency_of(cell) if latency_ms is None else latency_ms) * 1e6
    fields: dict[str, object] = {
        "cell": cell,
        "machine": machine,
        "status": "measured",
        "values_ns": tuple(middle * factor for factor in (0.98, 0.99, 1.0, 1.01, 1.02)),
        "busy_ns": middle / 2,
        "kernel_ns": middle / 2,
        "kernels": 10,
        "sm_active_ratio": 0.25,
        "sm_occupancy_ratio": 0.125,
        "macs": cell.batch * 10**9,
        "seconds": 2.0,
    }
    return SweepCell(**{**fields, **changes})  # type: ignore[arg-type]


def make_failed(cell: Cell, reason: str) -> SweepCell:
    """A cell that cannot be had here."""
    return SweepCell(cell=cell, machine=MACHINE.id, status="unavailable", reason=reason)


def make_results(
    cells: Iterable[SweepCell], machines: Iterable[SweepMachine] = (MACHINE,)
) -> SweepResults:
    """What a sweep would have left behind."""
    return SweepResults(
        cells=tuple(cells), machines=FrozenMap({machine.id: machine for machine in machines})
    )


def measure_all(
    cells: Iterable[Cell], choose: Callable[[Cell], bool] = lambda _: True
) -> SweepResults:
    """Results in which the chosen cells were measured."""
    return make_results(make_cell(cell) for cell in cells if choose(cell))
