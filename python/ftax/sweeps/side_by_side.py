"""Cells of several machines in rows: what was measured on each of them stands beside each other.

A row has all that was measured, and nothing is averaged. What one machine measured twice is two
rows, and what a machine has not is a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ftax.machines.differences import SOFTWARE, describe_difference, find_differences
from ftax.machines.environment import Environment
from ftax.sweeps.sweep_records import GPU, SweepMachine, drop_options
from ftax.timing.cell import Cell

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Generic[T]):
    """One cell on several machines.

    Attributes:
        cell: without the kind of GPU that it asked for, which says where and not what.
        found: what was measured of it, by machine.
    """

    cell: Cell
    found: dict[str, T] = field(default_factory=dict)


def line_up(
    items: Iterable[T], find_cell: Callable[[T], Cell], find_machine: Callable[[T], str]
) -> tuple[Row[T], ...]:
    """The rows, in the order in which their cells come first."""
    rows: dict[Cell, list[Row[T]]] = {}
    for item in items:
        cell = drop_options(find_cell(item), GPU)
        same = rows.setdefault(cell, [])
        machine = find_machine(item)
        row = next((row for row in same if machine not in row.found), None)
        if row is None:
            row = Row(cell=cell)
            same.append(row)
        row.found[machine] = item
    return tuple(row for same in rows.values() for row in same)


def group_shared(rows: Iterable[Row[T]]) -> list[tuple[Row[T], ...]]:
    """The rows of each model on each kind of device, by runtime, dtype and size, where machines
    have a row in common."""
    groups: dict[tuple[str, str], list[Row[T]]] = {}
    for row in rows:
        kind = row.cell.device.partition(":")[0]
        groups.setdefault((row.cell.model, kind), []).append(row)
    return [
        tuple(sorted(group, key=_find_order))
        for group in groups.values()
        if any(len(row.found) > 1 for row in group)
    ]


def _find_order(row: Row[T]) -> tuple[object, ...]:
    cell = row.cell
    return (cell.runtime != "eager", str(cell.place), cell.dtype, cell.batch, cell.sequence or 0)


def name_machines(machines: Iterable[SweepMachine]) -> dict[str, str]:
    """By id what each is called: its GPU, or its CPU where it measured on that; where several are
    called so, with the name that the user gave it, or else with the beginning of its id."""
    listed = list({machine.id: machine for machine in machines}.values())
    plain = [name_device(machine.environment) for machine in listed]
    told = [
        f"{name} ({machine.environment.machine or machine.id[:6]})"
        if plain.count(name) > 1
        else name
        for name, machine in zip(plain, listed, strict=True)
    ]
    return {
        machine.id: f"{name} ({machine.id[:6]})" if told.count(name) > 1 else name
        for name, machine in zip(told, listed, strict=True)
    }


def name_kind(machines: Sequence[SweepMachine], every: Iterable[SweepMachine]) -> str:
    """What machines that are alike are called: their GPU or CPU; with their names or ids where
    other kinds among ``every`` are called so. "" for none."""
    if not machines:
        return ""
    name = name_device(machines[0].environment)
    others = {item.alike for item in every if name_device(item.environment) == name}
    if len(others) < 2:
        return name
    return f"{name} ({', '.join(item.environment.machine or item.id[:6] for item in machines)})"


def name_device(environment: Environment) -> str:
    """The GPU or the CPU that measured there: "H100 80GB HBM3"."""
    if environment.gpu is not None:
        return environment.gpu.name.removeprefix("NVIDIA ")
    kind = environment.device.partition(":")[0]
    cpu = environment.host.cpu_model or environment.host.architecture
    return cpu if kind == "cpu" else f"GPU of {cpu}"


def mark_software(
    names: Sequence[str], environments: Mapping[str, Environment]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The heading of each machine of these names, with an asterisk where its software is not that
    of the first one; and in words what differs. A machine without environment is left out.
    """
    known = [name for name in names if name in environments]
    sides = {name: [environments[name]] for name in known}
    differing = find_differences(sides, SOFTWARE)
    others = [name for name in known if any(of[name] != of[known[0]] for of in differing.values())]
    headings = {name: f"{name} *" if name in others else name for name in names}
    told = "; ".join(describe_difference(fact, of) for fact, of in differing.items())
    notes = [f"* not measured with the software of {known[0]}: {told}"] if others else []
    facts = ["usable CPUs", *(["the CPU"] if any(of[0].gpu for of in sides.values()) else [])]
    hardware = find_differences(sides, facts)
    apart = [describe_difference(fact, of) for fact, of in hardware.items()]
    notes += ["what a host decides is of another host too: " + "; ".join(apart)] if apart else []
    return headings, tuple(notes)
