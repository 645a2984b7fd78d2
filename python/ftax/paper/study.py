"""Runs the study: the cells of all chosen items as one sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from ftax.paper.items import Item, find_item, list_items, make_grids, make_wants
from ftax.paper.machine_view import find_kind, is_tiny
from ftax.paper.study_setting import StudySetting
from ftax.records.fields import FrozenMap
from ftax.records.store import find_results
from ftax.sweeps.grid import Grid, join_cells
from ftax.sweeps.results import CELLS_FILE, SweepResults
from ftax.sweeps.sweep import SiteOptions, run_sweep
from ftax.timing.cell import Cell
from ftax.timing.plan import Plan, Progress

# Seconds of a cell before any was measured, for the first estimate: (device, tiny).
_GUESS_S = {("cuda", False): 2.0, ("cpu", False): 8.0, ("cuda", True): 2.0, ("cpu", True): 2.5}
_LEAST_KNOWN = 10  # cells whose mean says more than a guess


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What of the paper is to be run, and with which sizes.

    Attributes:
        claims: whether the claims are tested at the end, and their cells measured too.
    """

    items: tuple[Item, ...]
    claims: bool
    setting: StudySetting

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole paper."""
        return self.claims and self.items == list_items()

    @property
    def grids(self) -> tuple[Grid, ...]:
        """What is to be measured; two items that want a cell get it once."""
        wants = make_wants(self.items, self.setting, claims=self.claims)
        return make_grids(wants, self.setting)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, each once; none for items that measure nothing."""
        grids = self.grids
        return join_cells(grids) if grids else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """How much there is to do. ``basis`` says where the seconds come from."""

    cells: int
    to_run: int
    seconds: float
    basis: str

    def describe(self) -> str:
        """One line, such as "540 cells, 12 to run, about 1 min (...)"."""
        minutes = self.seconds / 60
        time = f"{self.seconds:.0f} s" if minutes < 1.5 else f"{minutes:.0f} min"
        return f"{self.cells} cells, {self.to_run} to run, about {time} ({self.basis})"


def choose_study(names: Sequence[str], setting: StudySetting) -> Study:
    """The items of these names; without names all of them and the claims.

    Raises InvalidArgumentError for an unknown name.
    """
    if not names:
        return Study(items=list_items(), claims=True, setting=setting)
    items = dict.fromkeys(find_item(name) for name in names if name != "claims")
    return Study(items=tuple(items), claims="claims" in names, setting=setting)


def load_results(folder: Path) -> SweepResults:
    """What the folder has; nothing for a folder without results."""
    if find_results(folder / CELLS_FILE) is None:
        return SweepResults(cells=(), machines=FrozenMap({}))
    return SweepResults.load(folder)


def estimate(study: Study, known: SweepResults, times: Mapping[str, float]) -> Estimate:
    """How many cells are left, and how long they may take on one device; ``times`` are the seconds
    of all steps that measured ``known``, which are more than those of the cells."""
    cells = study.cells
    done = {cell.cell.key() for cell in known.cells}
    to_run = [cell for cell in cells if cell.key() not in done]
    kind = study.setting.device.split(":")[0]
    taken = [
        cell.seconds
        for cell in known.cells
        if find_kind(cell.cell) == kind and is_tiny(cell.cell) == study.setting.tiny
    ]
    if len(taken) >= _LEAST_KNOWN:
        own_s = sum(cell.seconds for cell in known.cells)
        whole = max(1.0, sum(times.values()) / own_s) if own_s > 0 else 1.0
        each = whole * sum(taken) / len(taken)
        basis = f"{len(taken)} cells of the folder took so long"
    else:
        each, basis = _GUESS_S[kind, study.setting.tiny], "a guess until some cells are measured"
    return Estimate(cells=len(cells), to_run=len(to_run), seconds=each * len(to_run), basis=basis)


def run_study(
    study: Study,
    folder: Path,
    *,
    time_limit_s: float | None = None,
    retry_failed: bool = False,
    plan: Plan | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
    **sites: Unpack[SiteOptions],
) -> tuple[SweepResults, bool]:
    """Measure what the folder lacks; the results, and whether the time was enough. ``plan`` is of
    each size; None: a sweep's. ``sites`` are keywords of a sweep.

    Raises what `run_sweep` raises.
    """
    grids = study.grids
    if not grids:
        return load_results(folder), True
    found = run_sweep(
        grids,
        folder,
        resume=True,
        retry_failed=retry_failed,
        quick=study.setting.quick,
        plan=plan,
        seed=seed,
        threads=threads,
        limit_s=study.setting.limit_s,
        time_limit_s=time_limit_s,
        progress=progress,
        **sites,
    )
    known = load_results(folder)
    problems = tuple(dict.fromkeys((*found.problems, *known.problems)))
    return replace(known, problems=problems), not found.is_late
