"""What was wanted and has no rounds, grouped by the reason.

The surprising choice: a reason is part of the result. What a device cannot do, what failed, what is
not installed and what was simply not run yet are four different gaps in a figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ftax.paper.claims.helpers import list_some
from ftax.paper.figures.sheet import Missing
from ftax.paper.figures.view import View, find_place
from ftax.paper.setting import Setting, Want
from ftax.sweeps.record import SweepCell

NOT_RUN = "not run yet"

_LOOKS = {  # what the field is, and the look of a sweep that finds it
    "macs": ("count of multiply-accumulates", ""),
    "busy_ns": ("busy time", "trace"),
    "device_bytes": ("device memory", "memory"),
    "sm_active_ratio": ("counters of utilisation", "utilisation"),
    "sm_occupancy_ratio": ("counters of utilisation", "utilisation"),
}


def find_missing(
    wants: Iterable[Want], setting: Setting, views: Sequence[View]
) -> tuple[Missing, ...]:
    """The cells of ``wants`` that a view has no rounds of, or not all that is needed of them; of
    several views each says which. Without any, all of them are missing."""
    listed = tuple(wants)
    if len(views) < 2:
        return _find_missing(listed, setting, next(iter(views), None))
    return tuple(
        replace(item, what=f"{item.what} on {view.label}")
        for view in views
        for item in _find_missing(listed, setting, view)
    )


def _find_missing(
    wants: Iterable[Want], setting: Setting, view: View | None
) -> tuple[Missing, ...]:
    missing: dict[tuple[str, str], list[str]] = {}
    for want in wants:
        for size, reason in _find_gaps(want, setting, view):
            sizes = missing.setdefault((want.label, reason), [])
            if size not in sizes:
                sizes.append(size)
    return tuple(
        Missing(what=f"{label}, {_join(sizes)}", count=len(sizes), reason=reason)
        for (label, reason), sizes in missing.items()
    )


def has_measured(wants: Iterable[Want], setting: Setting, views: Sequence[View]) -> bool:
    """Whether any cell of ``wants`` has rounds in one of the views."""
    grids = (setting.make_grid(want) for want in wants)
    places = [find_place(cell) for grid in grids if grid for cell in grid.cells()]
    found = (view.cells.get(place) for view in views for place in places)
    return any(cell is not None and cell.status == "measured" for cell in found)


def describe_missing(missing: Iterable[Missing]) -> list[str]:
    """A line for each reason, with what it keeps away."""
    reasons: dict[str, list[Missing]] = {}
    for item in missing:
        reasons.setdefault(item.reason, []).append(item)
    lines = []
    for reason, items in reasons.items():
        what = list_some((item.what for item in items), 4, more="; and {} more")
        lines.append(f"{_count_cells(items)}: {reason} ({what})")
    return lines


def _find_gaps(want: Want, setting: Setting, view: View | None) -> Iterable[tuple[str, str]]:
    """(size, reason) of each cell without rounds."""
    grid = setting.make_grid(want)
    if grid is None:
        obstacle = setting.find_obstacle(want) or NOT_RUN
        for batch in want.batches:
            for sequence in want.sequences:
                yield _name_size(batch, sequence), obstacle
        return
    for cell in grid.cells():
        found = None if view is None else view.cells.get(find_place(cell))
        if found is None:
            yield _name_size(cell.batch, cell.sequence), NOT_RUN
        elif found.status != "measured":
            yield _name_size(cell.batch, cell.sequence), found.reason
        else:
            lacks = [name for name in want.needs if getattr(found, name) is None]
            if lacks:
                yield _name_size(cell.batch, cell.sequence), _explain_lack(found, lacks[0])


def _explain_lack(cell: SweepCell, name: str) -> str:
    """Why a measured cell has not got a field; the sweep says so where it looked."""
    what, look = _LOOKS[name]
    if cell.cell.device == "cpu" and look:
        return f"no {what}: that is of a GPU"
    why = cell.facts.get(look) if look else None
    return f"no {what}" + (f": {why}" if why else "")


def _name_size(batch: int, sequence: int | None) -> str:
    return f"b{batch}" if sequence is None else f"b{batch} s{sequence}"


def _join(sizes: list[str]) -> str:
    return sizes[0] if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def _count_cells(items: list[Missing]) -> str:
    count = sum(item.count for item in items)
    return "1 cell" if count == 1 else f"{count} cells"
