"""The tax of a decoded token over its context and its batch, and that of reading the prompt.

A sweep (cells in a folder, which the same command completes), knees, and a picture of both. What a
token costs at the lowest rung is drawn as a line of its own, and no share is drawn: the gap between
two lines is the tax, in the unit that a user waits in.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import ftax
from ftax.errors import FtaxError, describe
from ftax.paper.drawing import save_sheet
from ftax.paper.machine_view import View, split_views
from ftax.paper.sheet import Panel, Point, Series, Sheet, make_point
from ftax.records.store import append_record
from ftax.steps.setting import Setting
from ftax.sweeps.grid import Grid
from ftax.sweeps.knee import knee
from ftax.sweeps.knee_record import Over
from ftax.sweeps.results import SweepResults
from ftax.sweeps.sweep import sweep
from ftax.sweeps.sweep_records import SweepCell
from record import RESULTS, Figure, figure, finish, make_parser, progress, show

_PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "decode-tax"
_MODELS = ("llama-160m", "llama-1b")
_CONTEXTS = tuple(2**power for power in range(7, 14))
_BATCHES = tuple(2**power for power in range(7))
_BATCH_CONTEXT = 512
_TOKENS = 8  # of a window
_LINES = {
    "library/python": "generate()", "eager/python": "a loop, in eager",
    "cuda-graph/cpp": "the same kernels as a CUDA graph",
    "eager/cpp": "the same operators from C++",
}  # fmt: skip


def choose_runtimes(device: str, step: str) -> tuple[str, ...]:
    """From what people call to the lowest rung that the device has."""
    lowest = "eager/cpp" if device == "cpu" else "cuda-graph/cpp"
    return ("library/python", "eager/python", lowest)[step == "forward" :]


def make_grids(options: argparse.Namespace) -> list[Grid]:
    """Decoding over the context and over the batch, and prefill over the context."""
    grids: list[Grid] = []
    scale = 16 if options.tiny else 1
    dtype = "fp32" if options.device == "cpu" else "fp16"
    for model in options.models:
        contexts = tuple(size // scale for size in _CONTEXTS if size <= options.longest)
        batches = tuple(size for size in _BATCHES if size <= options.largest)
        decoding = Setting(step="decode", tiny=options.tiny, tokens=_TOKENS, cache="static")
        for setting, sequences, sizes in (
            (decoding, contexts, (1,)),
            (decoding, (_BATCH_CONTEXT // scale,), batches),
            (Setting(tiny=options.tiny), contexts, (1,)),
        ):
            grids.append(
                Grid(
                    models=(model,), dtypes=(dtype,), devices=(options.device,),
                    runtimes=choose_runtimes(options.device, setting.step),
                    sequences=sequences, batches=sizes, setting=setting,
                )
            )  # fmt: skip
    return grids


def find_knees(options: argparse.Namespace, folder: Path) -> list[ftax.Knee]:
    """Of a decoded token in eager, over context and batch."""
    scale = 16 if options.tiny else 1
    found = []
    for model in options.models:
        ranges: dict[Over, tuple[int, int]] = {
            "sequence": (_CONTEXTS[0] // scale, options.longest // scale),
            "batch": (1, options.largest),
        }
        for over, (low, high) in ranges.items():
            progress(f"knee of {model} over {over}")
            try:
                one = knee(
                    model, over=over, low=low, high=high, step="decode", tokens=_TOKENS,
                    cache="static", device=options.device, tiny=options.tiny,
                    dtype="fp32" if options.device == "cpu" else "fp16",
                    sequence=None if over == "sequence" else _BATCH_CONTEXT // scale,
                    plan=ftax.Plan(duration_s=options.knee_seconds), progress=False,
                )  # fmt: skip
            except FtaxError as error:
                progress(f"no knee of {model} over {over}: {describe(error)}")
                continue
            append_record(folder / "knees.jsonl", one)
            found.append(one)
    return found


def make_panels(views: Sequence[View]) -> list[Panel]:
    """Per model: a token over its context and its batch, and a prompt over its length. Lines of
    each kind of machine that measured."""
    panels = []
    every = [cell for view in views for cell in view.every if cell.status == "measured"]
    for model in dict.fromkeys(cell.cell.model for cell in every):
        for step, x_name in (("decode", "context"), ("decode", "batch"), ("forward", "context")):
            series = [
                Series(
                    label=label, style=label, source=view.label, measured=True,
                    points=make_points(choose_cells(view, model, step, x_name), runtime, view),
                )
                for view in views for runtime, label in _LINES.items()
            ]  # fmt: skip
            what = "a prompt" if step == "forward" else "a decoded token"
            drawn = tuple(one for one in series if one.points)
            if any(len(one.points) > 1 for one in drawn):
                panels.append(Panel(title=f"{model}, {what}", series=drawn, x_name=x_name))
    return panels


def choose_cells(view: View, model: str, step: str, x_name: str) -> list[tuple[int, SweepCell]]:
    """The cells of a panel, each with its place on the axis: those of one batch, or of one
    context."""
    cells = [
        cell for cell in view.every
        if (cell.cell.model, cell.cell.step) == (model, step) and cell.status == "measured"
    ]  # fmt: skip
    if x_name == "context":
        return [(cell.cell.sequence or 0, cell) for cell in cells if cell.cell.batch == 1]
    several = {cell.cell.sequence for cell in cells if cell.cell.batch > 1}
    context = min(several, key=str, default=None)  # at which the batch was varied
    return [(cell.cell.batch, cell) for cell in cells if cell.cell.sequence == context]


def make_points(
    cells: Sequence[tuple[int, SweepCell]], runtime: str, view: View
) -> tuple[Point, ...]:
    """Of one line, in ms a token of each text."""
    found = [
        divide(make_point(cell, x, view.drift), cell.cell.units)
        for x, cell in cells
        if f"{cell.cell.runtime}/{cell.cell.host}" == runtime
    ]
    return tuple(sorted(found, key=lambda point: point.x))


def divide(point: Point, units: int) -> Point:
    """Times of one unit of the step."""

    def share(time_ms: float | None) -> float | None:
        return None if time_ms is None else time_ms / units

    return replace(
        point, latency_ms=point.latency_ms / units, low_ms=share(point.low_ms),
        high_ms=share(point.high_ms), busy_ms=share(point.busy_ms),
    )  # fmt: skip


def list_figures(panels: list[Panel], results: SweepResults) -> list[Figure]:
    """Of each panel, what eager takes over its lowest rung, at its least and its largest size."""
    missing = sum(cell.status != "measured" for cell in results.cells)
    found = [
        figure("cells", len(results.cells), "cells"),
        figure("cells without a number", missing, "cells", at_most=0),
    ]
    for panel in panels:
        for source in dict.fromkeys(series.source for series in panel.series):
            lines = {one.label: one.points for one in panel.series if one.source == source}
            eager, lowest = lines.get(_LINES["eager/python"]), [*lines.values()][-1]
            if eager is None:
                continue
            for slow in (eager[0], eager[-1]):
                fast = next((point for point in lowest if point.x == slow.x), None)
                if fast is not None:
                    tax = 100 * (1 - fast.latency_ms / slow.latency_ms)
                    name = f"tax of {panel.title}, {panel.x_name} {slow.x:g}, {source}"
                    found.append(figure(name, tax, "%"))
    return found


def draw(views: Sequence[View]) -> None:
    """The picture of docs/steps.md."""
    machines = " and ".join(view.label for view in views)
    sheet = Sheet(
        item="decode", title=f"Decoding and reading a prompt, {machines}",
        note="ms a token of each text, or a prompt; greedy, a static cache, batch 1 or a context "
        f"of {_BATCH_CONTEXT}", panels=tuple(make_panels(views)),
    )  # fmt: skip
    _, png = save_sheet(sheet, _PICTURE)
    png.unlink()  # the page shows the other


def main() -> None:
    """Measure what is missing, or show what there is."""
    parser = make_parser(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="narrow models, a sixteenth as long")
    parser.add_argument("--models", nargs="+", choices=_MODELS, default=_MODELS)
    parser.add_argument("--longest", type=int, default=max(_CONTEXTS), help="context")
    parser.add_argument("--largest", type=int, default=max(_BATCHES), help="batch")
    parser.add_argument("--knee-seconds", type=float, default=40.0, help="of each; 0: none")
    parser.add_argument("--time-limit", type=float, help="seconds for the sweep")
    parser.add_argument("--draw", action="store_true", help="measure nothing; draw the picture")
    options = parser.parse_args()
    folder = (options.results or RESULTS) / "decode"
    if options.draw:
        draw(split_views(SweepResults.load(folder)))
        return
    results = sweep(
        make_grids(options), folder, resume=True, quick=options.quick,
        time_limit_s=options.time_limit, trace=False,
    )  # fmt: skip
    knees = find_knees(options, folder) if options.knee_seconds else []
    panels = make_panels(split_views(results))
    rows = [
        (panel.title, panel.x_name, series.label, series.source,
         " ".join(f"{point.x:g}:{point.latency_ms:.3g}" for point in series.points))
        for panel in panels for series in panel.series
    ]  # fmt: skip
    show("ms", ("what", "over", "line", "machine", "size: ms"), rows, left=5)
    knee_rows = [(k.cell.model, k.over, k.verdict, str(k.last_on), str(k.first_off)) for k in knees]
    show("knees", ("model", "over", "verdict", "last on", "first off"), knee_rows, left=3)
    finish(__file__, options, list_figures(panels, results),
           raw={"knees": [k.to_dict()["answer"] for k in knees]})  # fmt: skip


if __name__ == "__main__":
    main()
