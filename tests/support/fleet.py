"""Machines of a fleet, and cells that several of them measured, made of given numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ftax.machines.environment import collect_environment
from ftax.records.fields import FrozenMap
from ftax.sweeps.results import SweepResults
from ftax.sweeps.sweep_records import GPU, REPETITION, SweepCell, SweepMachine
from ftax.timing.cell import Cell
from support.claim_results import make_gpu

H100, A100 = "NVIDIA H100", "NVIDIA A100"


def make_machine(gpu: str | None = H100, name: str = "", **software: Any) -> SweepMachine:
    """This machine with another GPU (None: its CPU), name and versions."""
    here = collect_environment()
    return SweepMachine.of(
        replace(
            here,
            device="cpu" if gpu is None else "cuda",
            machine=name,
            gpu=None if gpu is None else make_gpu(gpu),
            software=replace(here.software, **software),
        )
    )


def make_cell(
    machine: SweepMachine, latency_us: float = 100.0, *, repetition: int = 0, asks: str = "",
    values: Iterable[float] | None = None, **changes: Any,
) -> SweepCell:  # fmt: skip
    """A measured cell: five rounds around its latency, or ``values`` in us. ``asks``: the kind of
    GPU that it wants; other ``changes`` are of the cell."""
    options = {**({GPU: asks} if asks else {}), **({REPETITION: repetition} if repetition else {})}
    fields: dict[str, Any] = {
        "model": "bert-base", "runtime": "eager", "host": "python", "dtype": "fp16", "batch": 1,
        "sequence": 128, "device": machine.environment.device, "options": FrozenMap(options),
    }  # fmt: skip
    rounds = [latency_us * (1 + part / 1000) for part in (-2, -1, 0, 1, 2)]
    return SweepCell(
        cell=Cell(**{**fields, **changes}),
        machine=machine.id,
        status="measured",
        values_ns=tuple(1e3 * value for value in (rounds if values is None else values)),
    )


def make_results(cells: Iterable[SweepCell], *machines: SweepMachine) -> SweepResults:
    """What a fleet would have left behind."""
    return SweepResults(
        cells=tuple(cells), machines=FrozenMap({machine.id: machine for machine in machines})
    )
