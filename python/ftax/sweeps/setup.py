"""What a sweep finds out before it starts a worker: devices, results that there are, obstacles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from ftax.errors import InvalidArgumentError
from ftax.runtimes.catalogue import find_runtime
from ftax.steps.setting import normalize_device
from ftax.sweeps.grid import Grid
from ftax.sweeps.job import LOOKS, Item
from ftax.sweeps.record import SweepCell, SweepMachine
from ftax.sweeps.results import CELLS_FILE, SweepResults
from ftax.sweeps.store import CellStore
from ftax.timing.candidate import Host
from ftax.timing.cell import Cell
from ftax.timing.session import Plan

_ALL_ROUNDS = 1e-6  # a precision that is never met: unless the time limit comes first
# How long a sweep stays with a size.
FULL = Plan(max_rounds=20, round_ms=5.0, duration_s=2.0, patience_s=0.5, target_ratio=_ALL_ROUNDS)
QUICK = Plan(max_rounds=4, round_ms=4.0, duration_s=0.5, target_ratio=_ALL_ROUNDS)


def choose_devices(cells: Sequence[Cell], gpus: Sequence[str]) -> dict[str, str]:
    """The devices of the grids, each with the one that torch knows; the first GPU for "cuda".

    Raises UnavailableError for one that this machine lacks.
    """
    if not gpus:
        raise InvalidArgumentError("gpus is empty; give at least one, such as 'cuda:0'")
    wanted = dict.fromkeys(cell.device for cell in cells)
    if "cuda" in wanted:
        for gpu in gpus:
            normalize_device(gpu)
    return {device: normalize_device(gpus[0] if device == "cuda" else device) for device in wanted}


def choose_looks(grids: Sequence[Grid], trace: bool) -> dict[str, tuple[str, ...]]:
    """What is asked of each cell on a GPU beside its rounds, by its key."""
    looks: dict[str, tuple[str, ...]] = {}
    for grid in grids:
        asked = {"utilisation": grid.utilisation, "trace": trace, "memory": grid.memory}
        for cell in grid.cells():
            if cell.device != "cpu":
                before = looks.get(cell.key(), ())
                looks[cell.key()] = tuple(name for name in LOOKS if asked[name] or name in before)
    return looks


def read_known(folder: Path, resume: bool) -> tuple[SweepCell, ...]:
    """The cells that the folder has. Raises InvalidArgumentError unless they are to be resumed."""
    path = folder / CELLS_FILE
    if not path.exists() or path.stat().st_size == 0:
        return ()
    known = SweepResults.load(path).cells
    if known and not resume:
        raise InvalidArgumentError(
            f"{folder} has {len(known)} cells of a sweep already; resume it (--resume), which runs "
            "only what is missing, or choose another folder"
        )
    return known


def set_aside(
    store: CellStore,
    items: Mapping[int, Item],
    devices: Mapping[str, str],
    machines: Mapping[str, SweepMachine],
) -> dict[int, Item]:
    """The items that can be run here; cells whose runtime cannot are unavailable, with why."""
    obstacles: dict[tuple[str, str, str], str | None] = {}
    kept = {}
    for place, item in items.items():
        device = devices[store.cells[place].device]
        key = (item.runtime, item.host, device)
        if key not in obstacles:
            spec = find_runtime(item.runtime)
            obstacles[key] = spec.find_obstacle(host=cast(Host, item.host), device=device)
        obstacle = obstacles[key]
        if obstacle is None:
            kept[place] = item
        elif item.time:
            machine = store.add_machine(machines[device].environment)
            store.add_failed(place, machine, "unavailable", obstacle)
    return kept
