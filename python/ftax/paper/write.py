"""Writes what a study found: pictures, tables, the data of both, the claims, and one short page.

GPUs measured into one folder stand in one picture, each with its own line style. CPUs and GPUs, and
tiny models and others, have a folder each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ftax.errors import InvalidArgumentError
from ftax.paper.claims.claim_verdict import Verdict
from ftax.paper.claims.testing import test_claims
from ftax.paper.claims.verdict_tables import make_claims_tables
from ftax.paper.drawing import check_matplotlib, save_sheet
from ftax.paper.items import Item
from ftax.paper.machine_view import View, group_views, split_views
from ftax.paper.study import Study
from ftax.paper.study_setting import StudySetting
from ftax.paper.today import WrittenItem, describe_today, find_missing, has_measured
from ftax.records.store import append_record
from ftax.records.whole_file import write_whole
from ftax.reports.table import Rows
from ftax.sweeps.results import SweepResults, read_days, read_times

CLAIMS_FILE = "claims.jsonl"


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
    """Write verdicts, conditions and numbers of the claims on the results."""
    verdicts = test_claims(results)
    _, *tables = make_claims_tables(verdicts)
    for table, name in zip(tables, ("claims", "claims-conditions", "claims-numbers"), strict=True):
        _write_rows(table, folder, name)
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
