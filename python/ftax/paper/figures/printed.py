"""The paper's own numbers as points of a figure.

The surprising choice: where the paper's picture hides markers behind each other (Figures 7, 11 and
12), the points come from the raw run that the picture was made of and agrees with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ftax.paper.figures.sheet import Point
from ftax.paper.reference import FRAMEWORKS, PaperRow, select

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
