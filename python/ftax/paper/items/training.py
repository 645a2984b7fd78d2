"""What a training step of the paper's models costs, and how much of that is framework.

The paper measured inference and quotes of training that Funnel is a third faster. The surprising
choice: it stands among the paper's items, so that the same sweep measures it on the same machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ftax.paper.figures.view import View
from ftax.paper.setting import Setting, Want
from ftax.paper.tables import format_latency
from ftax.reports.table import NOTHING, Rows
from ftax.sweeps.record import SweepCell

_BATCHES = (1, 8)
_CLAIMED = (1, 8, 32)  # of the two models that the paper compares
_MODELS = {
    "bert-base": _CLAIMED, "funnel": _CLAIMED, "distilbert": _BATCHES, "squeezebert": _BATCHES,
    "albert": _BATCHES, "mobilebert": _BATCHES, "gpt2": _BATCHES, "wavlm": _BATCHES,
    "resnet-50": _BATCHES, "squeezenet": _BATCHES, "vgg16": _BATCHES, "densenet161": _BATCHES,
}  # fmt: skip
_DTYPE = "fp32"
_EAGER = "eager/python"
_LOWEST = {"cuda": "cuda-graph/python", "cpu": "eager/cpp"}


def want_training(setting: Setting) -> Iterable[Want]:
    """Eager and the lowest rung of each model; nothing in a quick run."""
    if setting.quick or _DTYPE not in setting.dtypes:
        return
    lowest = _LOWEST[setting.device.split(":")[0]]
    for model, batches in _MODELS.items():
        for runtime in (_EAGER, lowest):
            yield Want(
                model=f"{model} train",
                runtime=runtime,
                dtype=_DTYPE,
                batches=tuple(batch for batch in batches if batch in setting.batches),
                memory=True,
            )


def make_training(views: Sequence[View]) -> Rows:
    """A training step in eager and on the lowest rung, and what lies between: the tax."""
    rows = [
        (view, model, batch, view.find(f"{model} train", _EAGER, _DTYPE, batch))
        for view in views
        for model, batches in _MODELS.items()
        for batch in batches
    ]
    measured = [row for row in rows if row[3] is not None]

    def find_lowest(row: tuple[View, str, int, SweepCell]) -> SweepCell | None:
        view, model, batch, _ = row
        return view.find(f"{model} train", _LOWEST[view.device], _DTYPE, batch)

    def print_lowest(row: tuple[View, str, int, SweepCell]) -> str:
        lowest = find_lowest(row)
        return NOTHING if lowest is None else format_latency(lowest, row[0].drift)

    def print_tax(row: tuple[View, str, int, SweepCell]) -> str:
        eager, lowest = row[3], find_lowest(row)
        if lowest is None or {eager.status, lowest.status} != {"measured"}:
            return NOTHING
        return f"{100 * (1 - lowest.latency_ns / eager.latency_ns):.0f}"

    return Rows.of(
        f"A training step, {_DTYPE}: forward, backward and AdamW",
        measured,
        {
            "measured on": "0.label",
            "model": "1",
            "batch": "2",
            "eager (ms)": lambda row: format_latency(row[3], row[0].drift),
            "lowest rung (ms)": print_lowest,
            "tax (%)": print_tax,
            "kernels": "3.kernels",
            "gradients (MB)": ("3.parameter_count", lambda count: f"{4 * count / 1e6:,.0f}"),
            "memory (MB)": ("3.device_bytes", lambda count: f"{count / 1e6:,.0f}"),
        },
        text=("measured on", "model"),
    )
