"""A figure as a declaration of plots, and what it shows as data: panels of series of points.

The same line of a `Plot` says what is drawn and what is measured for it, so that no figure can want
a cell that nothing shows. Where the paper's picture hides markers behind each other (Figures 7, 11
and 12), its points come from the raw run that the picture was made of and agrees with.

The picture and the CSV file are both made from a `Sheet` and from nothing else, so that every mark
on the picture is a line of the file. Only what several figures have in common has a fixed colour;
everything else takes the next one, so that no two things on one figure look the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ftax.paper.machine_view import Drift, View, find_interval
from ftax.paper.reference import BASELINE_GPU, PaperRow, select
from ftax.paper.study_setting import StudySetting, Want
from ftax.reports.columns import write_csv
from ftax.sweeps.sweep_records import SweepCell

Shows = Literal["latency", "share", "split"]
COLUMNS = (
    "item", "panel", "series", "x_name", "x", "latency_ms", "low", "high", "busy_ms", "source",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement: times in ms, the interval of the latency where there is one."""

    x: float
    latency_ms: float
    low_ms: float | None = None
    high_ms: float | None = None
    busy_ms: float | None = None  # of the device; the paper's are summed kernel times
    doubt: str = ""  # why it is not to go by, or was measured beside others

    @property
    def share_pct(self) -> float | None:
        """Share of the latency in which the device was idle: the framework's overhead."""
        if self.busy_ms is None:
            return None
        return max(0.0, 100 * (1 - self.busy_ms / self.latency_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points that belong together.

    ``style`` is the key of colour and marker: what is compared across sources has the same one.
    """

    label: str
    style: str
    source: str  # the machine, or the paper's device
    measured: bool  # today; otherwise by the paper
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes."""

    title: str
    series: tuple[Series, ...]
    x_name: str = "batch"
    shows: Shows = "latency"
    scale: Literal["log", "linear"] = "log"  # of both axes

    @property
    def measured(self) -> bool:
        """Whether any point is of today."""
        return any(series.measured and series.points for series in self.series)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """All that one figure shows of one machine, or of several."""

    item: str
    title: str
    note: str  # of the method, and of what was not measured
    panels: tuple[Panel, ...]

    @property
    def measured(self) -> bool:
        """Whether any point is of today."""
        return any(panel.measured for panel in self.panels)

    def to_csv(self) -> str:
        """One tidy table, ours and the paper's: a line for each point, in the order of
        `COLUMNS`."""
        rows = [
            (
                self.item,
                panel.title,
                series.label,
                panel.x_name,
                *map(
                    _format,
                    (point.x, point.latency_ms, point.low_ms, point.high_ms, point.busy_ms),
                ),
                series.source if series.measured else f"{series.source}, the paper",
            )
            for panel in self.panels
            for series in panel.series
            for point in series.points
        ]
        return write_csv(COLUMNS, rows, numeric=COLUMNS)


def _format(value: float | None) -> str:
    return "" if value is None else f"{value:.7g}"


# Okabe and Ito's palette, which the colour-blind can tell apart, without its yellow, which white
# paper swallows, and with a grey.
BLUE, _ORANGE, _GREEN, _RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
_PURPLE, _SKY, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#7F7F7F"
PALETTE = (BLUE, _ORANGE, _GREEN, _RED, _PURPLE, _SKY, GREY, BLACK)
MARKERS = "os^DvPX*"

Style = tuple[str, str]  # colour and marker

_FIXED: dict[str, Style] = {  # what several figures show looks the same in all of them
    "eager": (BLUE, "o"),
    "torchscript": (_ORANGE, "s"),
    "onnxruntime": (_GREEN, "^"),
    "cuda-graph": (_RED, "D"),
    "nested": (_PURPLE, "P"),
    "padded": (_SKY, "v"),
    "eager-once": (_SKY, "v"),
    "torchscript-once": (_RED, "D"),
    "bert-base": (BLUE, "o"),
    "resnet-50": (BLUE, "o"),
    "here": (BLACK, "*"),
}


def choose_styles(sheet: Sheet) -> dict[str, Style]:
    """Colour and marker of each style of a sheet: fixed ones first, the others in order."""
    names = list(dict.fromkeys(series.style for series in list_series(sheet)))
    styles = {name: _FIXED[name] for name in names if name in _FIXED}
    colours = [colour for colour in PALETTE if colour not in {c for c, _ in styles.values()}]
    markers = [marker for marker in MARKERS if marker not in {m for _, m in styles.values()}]
    others = [name for name in names if name not in styles]
    for place, name in enumerate(others):
        styles[name] = (
            (colours or PALETTE)[place % len(colours or PALETTE)],
            (markers or MARKERS)[place % len(markers or MARKERS)],
        )
    return styles


def list_hands(sheet: Sheet) -> list[str]:
    """The machines that have a kind of line each: those whose name is not that of the line itself,
    which then has a colour of its own."""
    measured = (series for series in list_series(sheet) if series.measured)
    return list(
        dict.fromkeys(item.source for item in measured if not item.label.startswith(item.source))
    )


def list_series(sheet: Sheet) -> Iterable[Series]:
    """All series of all panels."""
    return (series for panel in sheet.panels for series in panel.series)


Over = Literal["batch", "sequence", "gmacs"]

X_NAMES: dict[Over, str] = {
    "batch": "batch",
    "sequence": "tokens",
    "gmacs": "multiply-accumulates (1e9)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One model in one runtime, measured. ``sequence`` None is the only one that the model has.
    ``is_machine``: the line stands for its machine, and goes by its name where there are several.
    """

    label: str
    style: str
    model: str
    runtime: str = "eager/python"
    sequence: int | None = None
    is_machine: bool = False

    def name_machine(self, view: View) -> Line:
        """The line as it is drawn beside those of other machines."""
        if not self.is_machine:
            return self
        return replace(self, label=f"{view.label}, here", style=f"{self.style} {view.label}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One pair of axes in one dtype: what to measure for it, and what the paper printed.

    Attributes:
        over: what x is. "gmacs" takes batch 1 of each line.
    """

    title: str
    dtype: str
    lines: tuple[Line, ...]
    printed: tuple[Printed, ...] = ()
    over: Over = "batch"
    shows: Shows = "latency"
    scale: Literal["log", "linear"] = "log"

    def make_wants(self, setting: StudySetting) -> Iterable[Want]:
        """What has to be measured for the lines."""
        if self.dtype not in setting.dtypes:
            return
        for line in self.lines:
            sizes = setting.lengths if self.over == "sequence" else (line.sequence,)
            cells = (line.model, line.runtime, self.dtype, self._choose_batches(setting), sizes)
            yield Want(*cells, needs=self._needs)

    def make_panels(self, views: Sequence[View]) -> tuple[Panel, ...]:
        """The lines of machines beside those of the paper: one panel, but one for each of several
        machines where the device's part of a latency is drawn too, which hides another's."""
        if self.shows != "split" or len(views) < 2:
            return (self._make_panel(views),)
        return tuple(
            replace(panel, title=f"{panel.title}, {view.label}")
            for view in views
            if (panel := self._make_panel([view])).measured
        )

    def _make_panel(self, views: Sequence[View]) -> Panel:
        printed = tuple(
            Series(
                label=line.label,
                style=line.style,
                source=line.source,
                measured=False,
                points=read_points(line, self.over),
            )
            for line in self.printed
        )
        is_alone = len(views) < 2
        measured = [
            self._measure(line if is_alone else line.name_machine(view), view)
            for view in views
            for line in self.lines
        ]
        return Panel(
            title=self.title,
            series=tuple(series for series in (*measured, *printed) if self._is_drawable(series)),
            x_name=X_NAMES[self.over],
            shows=self.shows,
            scale=self.scale,
        )

    def _is_drawable(self, series: Series) -> bool:
        if self.shows == "share":
            return any(point.share_pct is not None for point in series.points)
        return bool(series.points)

    @property
    def _needs(self) -> tuple[str, ...]:
        if self.over == "gmacs":
            return ("macs",)
        return () if self.shows == "latency" else ("busy_ns",)

    def _choose_batches(self, setting: StudySetting) -> tuple[int, ...]:
        if self.over == "gmacs":
            return (1,)
        return setting.batches[-1:] if self.over == "sequence" else setting.batches

    def _measure(self, line: Line, view: View) -> Series:
        return Series(
            label=line.label,
            style=line.style,
            source=view.label,
            measured=True,
            points=tuple(
                make_point(cell, x, view.drift)
                for x, cell in _READERS[self.over](line, self.dtype, view)
                if cell is not None and cell.status == "measured"
            ),
        )


def make_panels(plots: Iterable[Plot], views: Sequence[View]) -> tuple[Panel, ...]:
    """Panels with a point of anybody: one that only the paper has is worth seeing beside ours."""
    panels = (panel for plot in plots for panel in plot.make_panels(views))
    return tuple(panel for panel in panels if panel.series)


Found = Iterable[tuple[float, SweepCell | None]]


def _read_batches(line: Line, dtype: str, view: View) -> Found:
    for batch in view.find_batches(line.model, line.runtime, dtype, line.sequence):
        yield batch, view.find(line.model, line.runtime, dtype, batch, line.sequence)


def _read_lengths(line: Line, dtype: str, view: View) -> Found:
    """At the largest batch that was measured with more than one length."""
    batches = view.find_batches(line.model, line.runtime, dtype)
    several = [
        batch
        for batch in batches
        if len(view.find_sequences(line.model, line.runtime, dtype, batch)) > 1
    ]
    for batch in several[-1:]:
        for length in view.find_sequences(line.model, line.runtime, dtype, batch):
            yield length, view.find(line.model, line.runtime, dtype, batch, length)


def _read_work(line: Line, dtype: str, view: View) -> Found:
    cell = view.find(line.model, line.runtime, dtype, 1, line.sequence)
    if cell is not None and cell.macs:
        yield cell.macs / 1e9, cell


_READERS: dict[Over, Callable[[Line, str, View], Found]] = {
    "batch": _read_batches,
    "sequence": _read_lengths,
    "gmacs": _read_work,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """One line of the paper.

    Attributes:
        where: what `ftax.paper.reference.select` selects its rows by.
        source: the device it was measured on, for the legend.
    """

    label: str
    style: str
    where: Mapping[str, Any]
    source: str = BASELINE_GPU


def read_points(line: Printed, over: str) -> tuple[Point, ...]:
    """The points of a line in the order of x, which is the batch, the length or the MACs."""
    points = [
        Point(x=x, latency_ms=row.latency_ms, busy_ms=row.kernel_ms)
        for row in select(**line.where)
        if (x := _read_x(row, over)) is not None and row.latency_ms is not None
    ]
    return tuple(sorted(points, key=lambda point: point.x))


def _read_x(row: PaperRow, over: str) -> float | None:
    x = {"batch": row.batch, "sequence": row.size, "gmacs": row.gmacs}[over]
    return None if x is None else float(x)


def make_point(cell: SweepCell, x: float, drift: Drift | None = None) -> Point:
    """The latency of a measured cell, its interval and its busy time, in ms."""
    interval = find_interval(cell, drift)
    return Point(
        x=x,
        latency_ms=cell.latency_ns / 1e6,
        low_ms=None if interval is None else interval[0] / 1e6,
        high_ms=None if interval is None else interval[1] / 1e6,
        busy_ms=None if cell.busy_ns is None else cell.busy_ns / 1e6,
        doubt=cell.doubt or cell.disturbance,
    )
