"""What a sweep finds out before it starts a worker: results that there are, looks, obstacles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ftax.errors import InvalidArgumentError
from ftax.sweeps.grid import Grid
from ftax.sweeps.job import LOOKS, Item
from ftax.sweeps.plan import Unit
from ftax.sweeps.record import SweepCell
from ftax.sweeps.results import CELLS_FILE, SweepResults
from ftax.sweeps.sites import Site, read_wanted
from ftax.sweeps.store import CellStore
from ftax.timing.session import Plan

_ALL_ROUNDS = 1e-6  # a precision that is never met: unless the time limit comes first
# How long a sweep stays with a size.
FULL = Plan(max_rounds=20, round_ms=5.0, duration_s=2.0, patience_s=0.5, target_ratio=_ALL_ROUNDS)
QUICK = Plan(max_rounds=4, round_ms=4.0, duration_s=0.5, target_ratio=_ALL_ROUNDS)


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
    store: CellStore, items: Mapping[Unit, Item], sites: Sequence[Site]
) -> dict[Unit, Item]:
    """The items that some site can run; cells whose runtime none can are unavailable, with why."""
    kept = {}
    for (place, machine), item in items.items():
        wanted = read_wanted(store.cells[place], machine)
        fitting = [site for site in sites if site.fits(wanted)]
        name = f"{item.runtime}/{item.host}"
        if not fitting or any(name not in site.obstacles for site in fitting):
            kept[place, machine] = item
        elif item.time:
            where = store.add_machine(fitting[0].machine.environment)
            store.add_failed(place, where, "unavailable", fitting[0].obstacles[name])
    return kept
