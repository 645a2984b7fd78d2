"""Larger batches, for models that are still on the plateau at the largest one.

The surprising choice: which models these are is not known before the rest is measured, so their
cells are wants of the results and not of an item. A run looks once it has everything else.
"""

from __future__ import annotations

from collections.abc import Iterable

from ftax.paper.claims.helpers import find_knee
from ftax.paper.figures.view import View
from ftax.paper.setting import Setting, Want

_EAGER = "eager/python"
_RUNTIMES = (_EAGER, "cuda-graph/python")  # with the tax, and with the least of it
_TIMES = (2, 4)


def want_past_the_grid(setting: Setting, view: View) -> Iterable[Want]:
    """Two more batches of each model whose knee in eager is the last batch of the grid."""
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
