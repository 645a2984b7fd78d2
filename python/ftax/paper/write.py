"""Writes what a study found: pictures, tables, the data of both, the claims, and one short page.

GPUs measured into one folder stand in one picture, each with its own line style. CPUs and GPUs, and
tiny models and others, have a folder each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ftax.errors import InvalidArgumentError
from ftax.paper.claims.claim_verdict import OUTCOMES, Verdict
from ftax.paper.claims.testing import test_claims
from ftax.paper.claims.verdict_tables import describe_numbers, make_claims_table
from ftax.paper.drawing import check_matplotlib, save_sheet
from ftax.paper.items import Item
from ftax.paper.machine_view import View, group_views, is_repetition, split_views
from ftax.paper.study import Study
from ftax.paper.study_setting import Gap, StudySetting, describe_missing, find_missing, has_measured
from ftax.records.store import append_record
from ftax.records.whole_file import write_whole
from ftax.reports.table import Rows
from ftax.sweeps.progress import describe_time
from ftax.sweeps.results import SweepResults, read_days, read_times

CLAIMS_FILE = "claims.jsonl"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenItem:
    """One item as it was written."""

    item: Item
    measured: bool
    missing: tuple[Gap, ...]
    files: tuple[Path, ...] = ()
    table: Rows | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that was written of machines that stand in one picture."""

    views: tuple[View, ...]
    folder: Path
    shown: tuple[WrittenItem, ...]
    verdicts: tuple[Verdict, ...] = ()

    @property
    def label(self) -> str:
        """What the machines are called."""
        return ", ".join(view.label for view in self.views)

    @property
    def files(self) -> tuple[Path, ...]:
        """What was written for the items."""
        return tuple(path for item in self.shown for path in item.files)


def write_study(study: Study, results: SweepResults, folder: Path) -> tuple[Page, ...]:
    """Write the items and the claims of machines, and of the whole paper today.md; the pages.

    Raises UnavailableError without matplotlib, InvalidArgumentError if there are no results, and
    what writing a file raises.
    """
    groups = group_views(split_views(results))
    if not groups:
        raise InvalidArgumentError(
            f"{folder} has no results to show; run `ftax paper` without --no-measure first"
        )
    if any(item.kind == "figure" for item in study.items):
        check_matplotlib()
    pages = []
    is_only = len(groups) == 1
    for views in groups:
        place = folder if is_only else folder / _name_folder(views[0])
        shown = tuple(write_item(item, views, study.setting, place) for item in study.items)
        cells = tuple(cell for view in views for cell in view.every)
        own = SweepResults(cells=cells, machines=results.machines)
        verdicts = write_claims(own, place) if study.claims and not views[0].tiny else ()
        page = Page(views=views, folder=place, shown=shown, verdicts=verdicts)
        if study.is_whole:
            seconds = read_times(folder) if is_only else {}
            seconds.pop("export", None)  # before the devices are used
            days = read_days(folder) if is_only else ()
            write_page(page, study.setting, sum(seconds.values()), days)
        pages.append(page)
    if study.claims:
        verdicts = pages[0].verdicts if is_only else write_claims(results, folder)
        _keep_records(verdicts, folder / CLAIMS_FILE)
    return tuple(pages)


def _name_folder(view: View) -> str:
    return ("gpus" if view.device == "cuda" else "cpus") + ("-tiny" if view.tiny else "")


def _keep_records(verdicts: Iterable[Verdict], path: Path) -> None:
    """The verdicts as `ftax report` reads them, in the place of those of an earlier look."""
    path.unlink(missing_ok=True)
    for verdict in verdicts:
        append_record(path, verdict)


def write_item(
    item: Item, views: Sequence[View], setting: StudySetting, folder: Path
) -> WrittenItem:
    """Write a figure or a table of machines; nothing but the reasons if nothing was measured."""
    wants = tuple(item.make_wants(setting))
    shown = WrittenItem(item=item, measured=False, missing=find_missing(wants, setting, views))
    if item.make_table is not None:
        if not has_measured(wants, setting, views):
            return shown
        table = item.make_table(views)
        files = _write_rows(table, folder / "tables", item.name)
        return replace(shown, measured=True, files=files, table=table)
    sheet = item.make_sheet(views, shown.missing)
    if not sheet.measured:
        return shown
    figures, data = folder / "figures", folder / "data"
    for place in (figures, data):
        place.mkdir(parents=True, exist_ok=True)
    path = data / f"{item.name}.csv"
    write_whole(path, sheet.to_csv().encode())
    files = (*save_sheet(sheet, figures / item.name), path)
    return replace(shown, measured=True, files=files)


def write_claims(results: SweepResults, folder: Path) -> tuple[Verdict, ...]:
    """Write the verdicts of the claims on the results as a table."""
    verdicts = test_claims(results)
    _write_rows(make_claims_table(verdicts), folder, "claims")
    return verdicts


def write_page(
    page: Page, setting: StudySetting, seconds: float = 0.0, days: Sequence[str] = ()
) -> Path:
    """Write today.md, whose path this is."""
    page.folder.mkdir(parents=True, exist_ok=True)
    text = describe_today(
        page.views, page.shown, page.verdicts, setting=setting, seconds=seconds, days=days
    )
    path = page.folder / "today.md"
    write_whole(path, text.encode())
    return path


def _write_rows(table: Rows, folder: Path, name: str) -> tuple[Path, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for ending, text in (("csv", table.to_csv()), ("md", table.to_markdown())):
        paths.append(folder / f"{name}.{ending}")
        write_whole(paths[-1], text.encode())
    return tuple(paths)


def describe_today(
    views: Sequence[View],
    shown: Sequence[WrittenItem],
    verdicts: Sequence[Verdict],
    *,
    setting: StudySetting,
    seconds: float = 0.0,
    days: Sequence[str] = (),
) -> str:
    """The page, in Markdown; ``seconds`` and ``days`` are what its sweeps took of the devices, and
    when."""
    lines = ["# The Framework Tax today", ""]
    for view in views:
        lines += [_describe_run(view, setting, days), ""]
    if seconds:
        lines += [f"Measuring took {describe_time(seconds)} of the devices.", ""]
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
    again = sum(is_repetition(cell.cell) for cell in view.every)
    more = f" and {again} of them once more" if again else ""
    where = f"{view.label}{several}{_describe_software(view)}"
    return f"{where}; {measured} cells measured{more}{when}.{quick}{tiny}"


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
