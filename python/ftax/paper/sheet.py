"""What a figure shows, as data: panels of series of points, and the colours and markers of each.

The picture and the CSV file are both made from a `Sheet` and from nothing else, so that every mark
on the picture is a line of the file. Only what several figures have in common has a fixed colour;
everything else takes the next one, so that no two things on one figure look the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ftax.reports import columns

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
class Gap:
    """Cells that an item wants and that have no rounds, with the reason that they share."""

    what: str  # "bert-base cuda-graph/python fp16, batches 1, 2, 4"
    count: int
    reason: str


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

    def to_rows(self) -> list[tuple[str, ...]]:
        """A line of text for each point, in the order of `COLUMNS`."""
        return [
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

    def to_csv(self) -> str:
        """One tidy table, ours and the paper's."""
        return write_csv(self.to_rows())


def write_csv(rows: list[tuple[str, ...]]) -> str:
    """Rows of sheets under the head that they share."""
    return columns.write_csv(COLUMNS, rows, numeric=COLUMNS)


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
