"""The items of the paper, Figures 1 to 13, Tables 1 to 3 and one more: what each shows, and what is
to be measured for them, for the claims and for the machine's drift.

The wants of all items are joined and run as one sweep; what an item then shows is a function of the
results. The cells of Table 1 are measured again and again, with a CUDA graph and a model of images
beside them: they say how much two numbers may differ by chance, and so do its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ftax.errors import InvalidArgumentError, suggest
from ftax.paper import figures, tables
from ftax.paper.claims.testing import required_cells
from ftax.paper.machine_view import View
from ftax.paper.sheet import Panel, Plot, Sheet, make_panels
from ftax.paper.study_setting import TEXT_LENGTH, Gap, StudySetting, Want
from ftax.paper.tables import read_scaling
from ftax.reports.table import Rows
from ftax.sweeps.grid import Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One figure or table.

    Attributes:
        name: "fig4", "table3".
        shows: what it is about, for people, in a sentence.
        make_wants: what has to be measured for it.
        make_panels: of a figure. make_table: of a table. One of them is there.
    """

    name: str
    title: str
    shows: str
    make_wants: Callable[[StudySetting], Iterable[Want]]
    make_panels: Callable[[Sequence[View]], tuple[Panel, ...]] | None = None
    make_table: Callable[[Sequence[View]], Rows] | None = None

    @property
    def kind(self) -> Literal["figure", "table"]:
        """Which of the two it is."""
        return "table" if self.make_panels is None else "figure"

    def make_sheet(self, views: Sequence[View], missing: Sequence[Gap] = ()) -> Sheet:
        """What a figure shows of machines. Raises InvalidArgumentError for a table."""
        if self.make_panels is None:
            raise InvalidArgumentError(f"{self.name} is a table; use its make_table")
        number = self.name.removeprefix("fig")
        tiny = ""
        if any(view.tiny for view in views):
            tiny = "; tiny models: only the shapes of the curves mean anything"
        drift = ""
        if any(view.drift for view in views):
            drift = ", with the machine's drift between sessions"
        lacking = sum(item.count for item in missing)
        gaps = f"; {lacking} wanted cells are missing or lack a part" if lacking else ""
        return Sheet(
            item=self.name,
            title=f"Figure {number}: {self.title}",
            note=f"{self.shows} Bands and whiskers: 95 % intervals{drift}{tiny}{gaps}.",
            panels=self.make_panels(views),
        )


def _figure(name: str, title: str, shows: str, make_plots: Callable[[], tuple[Plot, ...]]) -> Item:
    def make_wants(setting: StudySetting) -> Iterable[Want]:
        return (want for plot in make_plots() for want in plot.make_wants(setting))

    return Item(
        name=name,
        title=title,
        shows=shows,
        make_wants=make_wants,
        make_panels=lambda views: make_panels(make_plots(), views),
    )


_ITEMS = (
    _figure("fig1", "multiply-accumulates and latency of BERT's family, batch 1",
            "The paper: fewer multiply-accumulates are not less latency.", figures.make_fig1),
    _figure("fig2", "framework overhead and compute",
            "The paper's sketch of Section 3, drawn of a measurement.", figures.make_fig2),
    _figure("fig3", "framework overhead of BERT against the batch",
            "Latency, the device's time in it, and the share that is left. Ours is the union of "
            "kernel intervals, the paper's their sum.", figures.make_fig3),
    _figure("fig4", "BERT and ResNet-50 in three frameworks",
            "The paper: latency stays flat while the framework is the bottleneck.",
            figures.make_fig4),
    _figure("fig5", "CUDA graphs and nested tensors on BERT",
            "The paper: graphs help small batches, nested tensors large ones. Its padded eager "
            "line is of a draft of the figure.", figures.make_fig5),
    _figure("fig6", "BERT scaled in depth and width",
            "The paper: depth moves the plateau, width its end. Its numbers were not published.",
            figures.make_fig6),
    _figure("fig7", "BERT and Funnel Transformer",
            "The paper: fewer multiply-accumulates, and yet slower at every batch.",
            figures.make_fig7),
    _figure("fig8", "BERT and its efficient variants",
            "The paper: the efficient ones are slower at small batches, faster at large ones.",
            figures.make_fig8),
    _figure("fig9", "one model on many GPUs, in eager",
            "What was measured, among the paper's seven GPUs.", figures.make_fig9),
    _figure("fig10", "GPT-2 generating 16 tokens",
            "The paper's times fit one forward pass better than 16 steps of decoding.",
            figures.make_fig10),
    _figure("fig11", "residual networks, deeper and wider, in TorchScript",
            "The paper: depth costs at every batch, width only at large ones.", figures.make_fig11),
    _figure("fig12", "small image models and ResNet-50, in eager",
            "The paper: the less there is to compute, the longer the plateau.", figures.make_fig12),
    _figure("fig13", "WavLM on two seconds of sound",
            "The paper: speech leaves the plateau at smaller batches than text.",
            figures.make_fig13),
    Item(name="table1", title="BERT scaled in batch, length and width",
         shows="The paper: none of them costs anything at batch 1.",
         make_wants=tables.want_table1, make_table=tables.make_table1),
    Item(name="table2", title="hardware", shows="The paper's machines and those that measured.",
         make_wants=tables.want_table2, make_table=tables.make_table2),
    Item(name="table3", title="utilisation of the GPU by framework",
         shows="Active multiprocessors and warps, from the GPU's own counters.",
         make_wants=tables.want_table3, make_table=tables.make_table3),
    Item(name="training", title="the tax of a training step",
         shows="Not in the paper, which measured inference: its models, forward, backward and "
         "AdamW.",
         make_wants=tables.want_training, make_table=tables.make_training),
)  # fmt: skip


def list_items() -> tuple[Item, ...]:
    """All items, figures first."""
    return _ITEMS


def find_item(name: str) -> Item:
    """The item of that name. Raises InvalidArgumentError, with the nearest, if there is none."""
    names = [item.name for item in _ITEMS]
    if name in names:
        return _ITEMS[names.index(name)]
    raise InvalidArgumentError(
        f"the paper has no item {name!r}; {suggest(name.lower(), names)}there are "
        f"{', '.join(names)} and claims"
    )


def make_grids(wants: Iterable[Want], setting: StudySetting) -> tuple[Grid, ...]:
    """The grids of what the device can run, equal ones once."""
    grids = (setting.make_grid(want) for want in wants)
    return tuple(dict.fromkeys(grid for grid in grids if grid is not None))


def make_wants(items: Iterable[Item], setting: StudySetting, *, claims: bool) -> tuple[Want, ...]:
    """What items want, and with ``claims`` what the claims want besides, and what shows how far the
    machine drifts while all that is measured."""
    sources = [partial(item.make_wants, setting) for item in items]
    if claims:
        sources += [partial(want_claims, setting), partial(want_drift, setting)]
    return tuple(dict.fromkeys(want for source in sources for want in source()))


_EAGER = "eager/python"
_REPEATED = (("bert-768", "cuda-graph/python", TEXT_LENGTH), ("resnet-50", _EAGER, None))


def want_claims(setting: StudySetting) -> Iterable[Want]:
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
        yield Want(model, runtime, dtype, tuple(sorted(batches[place])), (sequence,))


def want_drift(setting: StudySetting) -> Iterable[Want]:
    """Host-bound cells, and one that is not, in one dtype."""
    if not setting.repetitions:
        return
    places = [
        *((row.model, _EAGER, row.batch, row.sequence) for row in read_scaling()),
        *((model, runtime, 1, sequence) for model, runtime, sequence in _REPEATED),
    ]
    for model, runtime, batch, sequence in places:
        cell = (model, runtime, setting.main_dtype, (batch,), (sequence,))
        yield Want(*cell, repetitions=setting.repetitions)
