"""`today.md`: what holds today on this machine or on several, and what is missing of each picture.

The page begins with the claims that changed. A reason is part of the result: what a device cannot
do, what failed, what is not installed and what was not run yet are four different gaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ftax.paper.claims.arithmetic import list_some
from ftax.paper.claims.claim_verdict import OUTCOMES, Verdict
from ftax.paper.claims.verdict_tables import describe_numbers
from ftax.paper.machine_view import View, find_place
from ftax.paper.sheet import Gap
from ftax.paper.study_setting import StudySetting, Want
from ftax.reports.table import Rows
from ftax.sweeps.progress import describe_time
from ftax.sweeps.sweep_records import SweepCell

NOT_RUN = "not run yet"

_LOOKS = {  # what the field is, and the look of a sweep that finds it
    "macs": ("count of multiply-accumulates", ""),
    "busy_ns": ("busy time", "trace"),
    "device_bytes": ("device memory", "memory"),
    "sm_active_ratio": ("counters of utilisation", "utilisation"),
    "sm_occupancy_ratio": ("counters of utilisation", "utilisation"),
}


def find_missing(
    wants: Iterable[Want], setting: StudySetting, views: Sequence[View]
) -> tuple[Gap, ...]:
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
    wants: Iterable[Want], setting: StudySetting, view: View | None
) -> tuple[Gap, ...]:
    missing: dict[tuple[str, str], list[str]] = {}
    for want in wants:
        for size, reason in _find_gaps(want, setting, view):
            sizes = missing.setdefault((want.label, reason), [])
            if size not in sizes:
                sizes.append(size)
    return tuple(
        Gap(what=f"{label}, {_join(sizes)}", count=len(sizes), reason=reason)
        for (label, reason), sizes in missing.items()
    )


def has_measured(wants: Iterable[Want], setting: StudySetting, views: Sequence[View]) -> bool:
    """Whether any cell of ``wants`` has rounds in one of the views."""
    grids = (setting.make_grid(want) for want in wants)
    places = [find_place(cell) for grid in grids if grid for cell in grid.cells()]
    found = (view.cells.get(place) for view in views for place in places)
    return any(cell is not None and cell.status == "measured" for cell in found)


def describe_missing(missing: Iterable[Gap]) -> list[str]:
    """A line for each reason, with what it keeps away."""
    reasons: dict[str, list[Gap]] = {}
    for item in missing:
        reasons.setdefault(item.reason, []).append(item)
    lines = []
    for reason, items in reasons.items():
        what = list_some((item.what for item in items), 4, more="; and {} more")
        lines.append(f"{_count_cells(items)}: {reason} ({what})")
    return lines


def _find_gaps(want: Want, setting: StudySetting, view: View | None) -> Iterable[tuple[str, str]]:
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


def _count_cells(items: list[Gap]) -> str:
    count = sum(item.count for item in items)
    return "1 cell" if count == 1 else f"{count} cells"


if TYPE_CHECKING:
    from ftax.paper.items import Item

_ORDER = ("changed", "does not hold", "holds", "not resolved", "cannot be tested here")
# No paths: beside cells.jsonl alone they would lead nowhere.
_WHERE = (
    "Pictures, their points and tables are made from `cells.jsonl` by `ftax paper --no-measure` "
    "with this folder as `--results`, into `figures`, `data` and `tables`."
)
_NOT_KNOWN = (
    "How far its machines lie apart is not known, since none measured a cell more than once: "
    "intervals and verdicts are of rounds alone."
)
_STEPS = {
    "measure": "rounds",
    "prepare": "making runtimes ready",
    "build": "building models",
    "count": "counting work",
    "trace": "traces",
    "start": "starting processes",
    "wait": "waiting for quiet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenItem:
    """One item as it was written; ``rows`` are the points of a figure, in its CSV's columns."""

    item: Item
    measured: bool
    missing: tuple[Gap, ...]
    files: tuple[Path, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    table: Rows | None = None


def describe_today(
    views: Sequence[View],
    shown: Sequence[WrittenItem],
    verdicts: Sequence[Verdict],
    *,
    setting: StudySetting,
    times: Mapping[str, float],
    days: Sequence[str] = (),
) -> str:
    """The page, in Markdown; ``times`` are the seconds of each step of the sweep, ``days`` those of
    its runs."""
    lines = ["# The Framework Tax today", ""]
    for view in views:
        lines += [_describe_run(view, setting, days), ""]
    if times:
        lines += [_describe_times(views, times), ""]
    for view in views:
        which = f"{view.label}: " if len(views) > 1 else ""
        if view.drift is not None:
            lines += [f"{which}{view.drift.describe()} Intervals and verdicts carry that.", ""]
        elif view.machines > 1:
            lines += [f"{which}{_NOT_KNOWN}", ""]
    if verdicts:
        lines += ["## Claims", "", count_outcomes(verdicts), "", *_describe_claims(verdicts)]
    if shown:
        lines += ["## Figures and tables", "", _WHERE, "", *_describe_items(shown)]
    return "\n".join(lines).rstrip() + "\n"


def count_outcomes(verdicts: Sequence[Verdict]) -> str:
    """ "Of 77 claims and checks: holds 41, changed 10, ..."; machine by machine, if claims have
    verdicts of several."""
    several = len({item.id for item in verdicts}) < len(verdicts)
    groups: dict[str, list[Verdict]] = {}
    for item in verdicts:
        groups.setdefault(item.machine if several else "", []).append(item)
    told = []
    for machine, group in groups.items():
        counts = Counter(item.today for item in group)
        parts = [f"{name} {counts[name]}" for name in OUTCOMES if counts[name]]
        where = f" on {machine}" if machine else " on no machine" if several else ""
        told.append(f"Of {len(group)} claims and checks{where}: {', '.join(parts)}.")
    return f"{' '.join(told)} Details are in claims.md."


def _describe_run(view: View, setting: StudySetting, days: Sequence[str]) -> str:
    measured = sum(cell.status == "measured" for cell in view.cells.values())
    tiny = (
        " These are tiny models: the shapes of curves may mean something, no number does, and no "
        "claim is tested on them."
        if view.tiny
        else ""
    )
    quick = " A quick run: few rounds, few sizes." if setting.quick else ""
    when = f" on {' and '.join(days)}" if days else ""
    several = f", {view.machines} machines that are alike" if view.machines > 1 else ""
    more = f" and {len(view.repetitions)} of them once more" if view.repetitions else ""
    where = f"{view.label}{several}{_describe_software(view)}"
    return f"{where}; {measured} cells measured{more}{when}.{quick}{tiny}"


def _describe_times(views: Sequence[View], times: Mapping[str, float]) -> str:
    """ "Measuring took 25 min of the devices: rounds 12 min, ...; before it, exports 2 min ..." """
    named: dict[str, float] = {}
    for step, seconds in times.items():
        if step != "export":
            name = _STEPS.get(step, "the rest")
            named[name] = named.get(name, 0.0) + seconds
    most_first = sorted(named.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{name} {describe_time(seconds)}" for name, seconds in most_first)
    text = f"Measuring took {describe_time(sum(named.values()))} of the devices: {parts}"
    ahead_s, within_s = times.get("export", 0.0), 0.0
    for cell in (cell for view in views for cell in view.cells.values()):
        if cell.facts.get("from_cache") is False:
            within_s += float(cell.facts.get("seconds") or 0.0)
    if within_s:
        text += f"; exports and traces to files are {describe_time(within_s)} of it"
    if ahead_s:
        text += (
            f". Exports and traces to files took {describe_time(ahead_s)} before it, by several "
            "processes side by side"
        )
    return text + "."


def _describe_software(view: View) -> str:
    if view.machine is None:
        return ""
    facts = view.machine.environment
    cpu = "" if view.device == "cpu" else f", {facts.host.cpu_model or 'unknown CPU'}"
    return f"{cpu}, torch {facts.software.torch}"


def _describe_claims(verdicts: Sequence[Verdict]) -> list[str]:
    lines = []
    for name in _ORDER:
        mine = [item for item in verdicts if item.today == name]
        if not mine:
            continue
        lines += [f"### {name[0].upper()}{name[1:]} ({len(mine)})", ""]
        if name == "cannot be tested here":  # one line a reason, not one a claim
            reasons: dict[str, list[str]] = {}
            for item in mine:
                reasons.setdefault(item.reason, []).append(item.id)
            lines += [f"- {', '.join(ids)}: {reason}." for reason, ids in reasons.items()]
        else:
            lines += [_describe_claim(item) for item in mine]
        lines.append("")
    return lines


def _describe_claim(verdict: Verdict) -> str:
    where = f"{verdict.section}; the paper's own data: {verdict.paper}"
    numbers = describe_numbers(verdict)
    told = "" if numbers == "-" else f" Paper -> today: {numbers}."
    return f"- {verdict.claim} ({where}) *{verdict.sentence}*{told}"


def _describe_items(shown: Sequence[WrittenItem]) -> list[str]:
    lines = []
    for item in shown:
        kind = "Figure" if item.item.kind == "figure" else "Table"
        number = item.item.name.removeprefix("fig").removeprefix("table")
        nothing = "" if item.measured else ": nothing of it was measured"
        lines.append(f"- {kind} {number}, {item.item.title}{nothing}")
        lines += [f"  - {line}" for line in describe_missing(item.missing)]
    return [*lines, ""]
