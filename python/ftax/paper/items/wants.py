"""What is measured besides figures and tables: for the claims, for drift, for knees past the grid.

The surprising choice: what is measured again and again are the cells of Table 1, with a CUDA graph
and a model of images beside them. What says how much two of its numbers may differ by chance also
says what they are, by turns and in many processes, as no single look at each of them can.
"""

from __future__ import annotations

from collections.abc import Iterable

from ftax.paper.claims.helpers import find_knee
from ftax.paper.claims.today import required_cells
from ftax.paper.figures.view import View
from ftax.paper.setting import TEXT_LENGTH, Setting, Want
from ftax.paper.tables import read_scaling

_EAGER = "eager/python"
_RUNTIMES = (_EAGER, "cuda-graph/python")  # with the tax, and with the least of it
_TIMES = (2, 4)
_REPEATED = (("bert-768", "cuda-graph/python", TEXT_LENGTH), ("resnet-50", _EAGER, None))


def want_claims(setting: Setting) -> Iterable[Want]:
    """The cells that claims look at, batches joined; none of tiny models, on which no claim is
    tested. A cell that this run leaves out (another dtype, a batch between the sizes of a quick
    run) is not wanted here; the claim says itself what it lacks."""
    if setting.tiny:
        return
    batches: dict[tuple[str, str, str, int | None], set[int]] = {}
    for cell in required_cells():
        if cell.dtype in setting.dtypes and cell.batch in setting.batches:
            place = (cell.model, cell.framework, cell.dtype, cell.sequence)
            batches.setdefault(place, set()).add(cell.batch)
    for place in sorted(batches, key=str):
        model, runtime, dtype, sequence = place
        yield Want(
            model=model,
            runtime=runtime,
            dtype=dtype,
            batches=tuple(sorted(batches[place])),
            sequences=(sequence,),
        )


def want_drift(setting: Setting) -> Iterable[Want]:
    """Host-bound cells, and one that is not, in one dtype."""
    if not setting.repetitions:
        return
    places = [
        *((row.model, _EAGER, row.batch, row.sequence) for row in read_scaling()),
        *((model, runtime, 1, sequence) for model, runtime, sequence in _REPEATED),
    ]
    for model, runtime, batch, sequence in places:
        yield Want(
            model=model,
            runtime=runtime,
            dtype=setting.main_dtype,
            batches=(batch,),
            sequences=(sequence,),
            repetitions=setting.repetitions,
        )


def want_past_the_grid(setting: Setting, view: View) -> Iterable[Want]:
    """Two more batches of each model whose knee in eager is the last batch of the grid. Which
    these are is not known before the rest is measured."""
    last = setting.batches[-1]
    for model, dtype, sequence in dict.fromkeys(
        (place[0], place[2], place[4]) for place in view.cells if place[1] == _EAGER
    ):
        if dtype in setting.dtypes and _is_flat(view, setting, model, dtype, sequence):
            for runtime in _RUNTIMES:
                yield Want(
                    model=model,
                    runtime=runtime,
                    dtype=dtype,
                    batches=tuple(last * factor for factor in _TIMES),
                    sequences=(sequence,),
                )


def _is_flat(view: View, setting: Setting, model: str, dtype: str, sequence: int | None) -> bool:
    cells = [view.find(model, _EAGER, dtype, batch, sequence) for batch in setting.batches]
    measured = [cell for cell in cells if cell is not None and cell.status == "measured"]
    if len(measured) < len(setting.batches) or len(measured) == 1:
        return False
    latencies = [cell.latency_ns for cell in measured]
    return find_knee(latencies, setting.batches) == setting.batches[-1]
