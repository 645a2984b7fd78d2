"""A figure as a declaration: its plots, and in each the lines that are measured and printed.

The same line says what is drawn and what is measured for it, so that no figure can want a cell that
nothing shows. Where the paper's picture hides markers behind each other (Figures 7, 11 and 12), its
points come from the raw run that the picture was made of and agrees with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ftax.paper.machine_view import View, make_point
from ftax.paper.reference import FRAMEWORKS, PaperRow, select
from ftax.paper.sheet import Panel, Point, Series, Shows
from ftax.paper.study_setting import StudySetting, Want
from ftax.sweeps.sweep_records import SweepCell

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
        return (setting.length_batch,) if self.over == "sequence" else setting.batches

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


BASELINE_GPU = "RTX-8000"  # Section 4
# The paper's names of our runtimes.
PAPER_RUNTIMES = {ours: name for name, ours in FRAMEWORKS.items()}
PAPER_RUNTIMES["nested/python"] = "bettertransformer"

_RAW_RUNS = "JaredFern/Framework-Tax@9d9ee85:experiments/pretrained/2022_1025_pretrained"


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


def raw_run(framework: str, dtype: str) -> str:
    """The source of the paper's main run on the baseline GPU, in eager or TorchScript."""
    suffix = {"pytorch-eager": "", "torchscript": "-torchscript"}[framework]
    # The directory of the TorchScript run in fp32 does not name its dtype.
    precision = "" if (framework, dtype) == ("torchscript", "fp32") else f"-{dtype}"
    return f"{_RAW_RUNS}{suffix}{precision}/{BASELINE_GPU}.csv"


def _read_x(row: PaperRow, over: str) -> float | None:
    x = {"batch": row.batch, "sequence": row.size, "gmacs": row.gmacs}[over]
    return None if x is None else float(x)
