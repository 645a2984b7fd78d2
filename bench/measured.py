"""The tables of docs/measured.md: figures of the committed records, beside their targets.

A row takes the last record of its script that has such a figure, so that a new run takes the place
of an old one. `python bench/shown.py --write` puts the tables into the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from record import RESULTS, read_lines


@dataclass(frozen=True, slots=True)
class Row:
    """What is measured, its script, and the figures: all whose name ends so.

    Options of the script stand behind its name; the record's command has to have them, and not
    what is in ``without``.
    """

    words: str
    script: str
    figure: str
    spec: str = ".0f"
    without: str = "?"
    processes: int = 1


_CUDA = "--device cuda"
TABLES: Mapping[str, Sequence[Row]] = {
    "cpu": (
        Row("timed loop, empty runner, beyond two clock reads", "loop",
            "wall per sample beyond two clock reads"),
        Row("tape minus TorchScript interpreter, per operator", "tape",
            "tape minus TorchScript in C++, per operator"),
        Row("tape minus the same calls hand-written in C++, per operator", "tape",
            "tape minus hand-written C++, per operator"),
        Row("`import ftax` beyond `import torch`", "import_time",
            "import ftax beyond import torch", ".1f"),
        Row("`ftax tax bert-base`, nothing cached", "tax_wall", "wall, empty cache"),
        Row("the same with cached artefacts", "tax_wall", "wall, warm cache"),
        Row("known delays: lines of the receipt as expected", "intervention",
            "lines as expected", without="--device cuda", processes=3),
    ),
    "gpu": (
        Row("nine receipts (3 models, batch 1, 8, 32), 20 s each: eager within 2 %", "gpu_receipts",
            "half-width of eager at most 2 %", without="--models"),
        Row("the two others with a minute each: widest half-width", "gpu_receipts --duration 60",
            "widest half-width of eager", ".1f"),
        Row("the nine: all rungs ran the same kernels", "gpu_receipts",
            "same kernels on every rung", without="--models"),
        Row("the same: `py_bench` and a plain Python loop agree within 5 %, by turns",
            "gpu_receipts", "receipt, py_bench and a plain loop agree", without="--models"),
        Row("the same: kernel time of any rung against eager's", "gpu_receipts",
            "kernel durations of rungs within 5 %", without="--models"),
        Row("kernels against torch.profiler: launches that differ", "gpu_kernels",
            "cpp: launches that differ"),
        Row("the same: kernel time", "gpu_kernels", "kernel time of torch.profiler", ".3f"),
        Row("what kernel records cost the tape, 3 processes beside neighbours", "gpu_observer",
            "tape under ftax, kernels", ".3f"),
        Row("the same against torch.profiler, CUDA only", "gpu_observer",
            "tape: ftax, kernels, against torch.profiler, CUDA", ".2f"),
        Row("how much slower the tape stays after a trace that was taken out again",
            "gpu_observer --left-behind", "tape, after a trace that was detached, in cycles",
            ".3f"),
        Row("the same, Python eager, which neighbours move by more", "gpu_observer --left-behind",
            "Python eager, after a trace that was detached, in cycles", ".3f"),
        Row("host time of a replayed launch against an empty kernel's", "gpu_launch",
            "over 'launch, host' of ftax doctor", ".2f"),
        Row("gated over ungated device time, batch 32, minus 1", "gpu_launch",
            "gated over ungated device time, batch 32, minus 1", ".2f"),
        Row("known delays of half a millisecond a request: lines as expected",
            f"intervention {_CUDA}", "lines as expected", processes=3),
        Row("`ftax tax bert-base --device cuda --dtype fp16 --runtimes none`: wall",
            f"tax_wall {_CUDA}", "wall time"),
        Row("the same: until the first number", f"tax_wall {_CUDA}",
            "time to the first number", ".1f"),
        Row("all runtimes of BERT-base and of ResNet-50: measuring after preparation",
            f"runtimes {_CUDA}", "measuring after preparation"),
        Row("the same: rows missing without need",
            f"runtimes {_CUDA}", "rows missing without need"),
        Row("the same: runtimes that C++ drives no slower", f"runtimes {_CUDA}",
            "runtimes that C++ drives no slower"),
        Row("tests with `FTAX_REQUIRE_GPU=1`: failed beside the GPU", "gpu_tests",
            "beside the GPU: failed", without="--files"),
        Row("the same: sharing the GPU", "gpu_tests", "sharing the GPU: failed", without="--files"),
        Row("the same: with the GPU to themselves", "gpu_tests", "alone on the GPU: failed",
            without="--files"),
        Row("launches and gates under compute-sanitizer's memcheck", "gpu_tests --memcheck",
            "memcheck: failed"),
    ),
}  # fmt: skip


def find_figures(row: Row) -> list[Mapping[str, Any]]:
    """Those of a row, each from the last record that has it. Raises ValueError if none has one."""
    found: dict[str, Mapping[str, Any]] = {}
    name, _, flags = row.script.partition(" ")
    for record in read_lines(RESULTS / f"{name}.jsonl"):
        fits = flags in record["command"] and row.without not in record["command"]
        if fits and record["process_count"] >= row.processes:
            figures = record["figures"].items()
            found |= {key: figure for key, figure in figures if key.endswith(row.figure)}
    if not found:
        raise ValueError(f"{name}.jsonl has no figure {row.figure!r}: measure it, or drop its row")
    return list(found.values())


def make_row(row: Row) -> str:
    """Its values, its target and the verdict, as Markdown; of several figures from the smallest to
    the largest."""
    figures = find_figures(row)
    ends = sorted({f"{figure['value']:{row.spec}}" for figure in figures}, key=float)
    value = " to ".join(dict.fromkeys((ends[0], ends[-1])))
    unit, target = figures[0]["unit"], figures[0]["target"]
    met = None if target is None else all(figure["met"] for figure in figures)
    verdict = {True: "met", False: "missed", None: ""}[met]
    words = f"{row.words} (`bench/{row.script.replace(' ', '.py ', 1)}"
    words += "`)" if " " in row.script else ".py`)"
    return f"| {words} | {value} {unit} | {target or ''} | {verdict} |\n"


def make_table(name: str) -> str:
    """One of `TABLES`, as Markdown. Raises ValueError for a row that has no record."""
    if name not in TABLES:
        raise ValueError(f"there is no table {name!r}: write {' or '.join(TABLES)}")
    return "".join(["| figure | measured | target | |\n|---|---:|---:|---|\n",
                    *map(make_row, TABLES[name])])  # fmt: skip
