"""Tables 1 to 3 with ours in columns beside the paper's, and the table of training steps.

A number of ours that was not measured is a dash, and the reason stands below the table. The paper
measured inference and quotes of training that Funnel is a third faster: training is measured by the
same sweep, on the same machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ftax.paper.machine_view import Drift, View, find_interval
from ftax.paper.reference import BASELINE_GPU, FRAMEWORKS, find_hardware, read_table
from ftax.paper.study_setting import TEXT_LENGTH, StudySetting, Want
from ftax.reports.columns import NOTHING, Cell, or_dash, read
from ftax.reports.table import Rows
from ftax.sweeps.sweep_records import SweepCell

_SCALING_MODELS = {"768": "bert-768", "1536": "bert-1536"}  # by width


class ScalingRow(NamedTuple):
    """A row of Table 1: BERT with one thing made larger, and the paper's latency."""

    model: str
    width: str
    feed_forward: str
    batch: int
    sequence: int
    latency_ms: float


def read_scaling() -> tuple[ScalingRow, ...]:
    """Table 1 as printed, with the zoo's models."""
    return tuple(
        ScalingRow(
            model=_SCALING_MODELS[row["sa_dim"]],
            width=row["sa_dim"],
            feed_forward=row["fc_dim"],
            batch=int(row["batch"]),
            sequence=int(row["seq"]),
            latency_ms=float(row["latency_s"]) * 1e3,
        )
        for row in read_table("table1_scaling.csv")
    )


def want_table1(setting: StudySetting) -> Iterable[Want]:
    """The cells of Table 1."""
    for dtype in setting.dtypes:
        for row in read_scaling():
            yield Want(row.model, "eager/python", dtype, (row.batch,), (row.sequence,))


def make_table1(views: Sequence[View]) -> Rows:
    """Latency of BERT at batch 1 against more requests, longer ones, and a wider model; and what
    each request of the batch takes of it, which the paper prints as TP.

    Cells that were repeated together are shown by their repetitions.
    """
    ours: dict[str, Cell] = {}
    for view in views:
        for written, each in (
            (partial(format_latency, drift=view.drift), ""),
            (_format_each, " a request"),
        ):
            for dtype in _find_dtypes([view]):
                cells = dict(zip(read_scaling(), _find_scaling(view, dtype), strict=True))
                ours[f"{dtype}{each} (ms), {view.label}"] = (cells.get, written)
    return Rows.of(
        "Table 1: BERT in eager, one thing at a time made larger",
        read_scaling(),
        {
            "width": "width",
            "feed-forward": "feed_forward",
            "batch": "batch",
            "tokens": "sequence",
            **ours,
            f"the paper (ms), {BASELINE_GPU}": ("latency_ms", "{:.1f}".format),
            "the paper, a request": lambda row: f"{row.latency_ms / row.batch:.1f}",
        },
    )


def _find_scaling(view: View, dtype: str) -> list[SweepCell | None]:
    """The cells of Table 1, all repeated ones or none."""
    places = [(row.model, "eager/python", dtype, row.batch, row.sequence) for row in read_scaling()]
    repeated = [view.repeated.get(place) for place in places]
    return repeated if None not in repeated else [view.cells.get(place) for place in places]


def _format_each(cell: SweepCell) -> str:
    if cell.status != "measured":
        return NOTHING
    return f"{cell.latency_ns / cell.cell.batch / 1e6:.3g}"


def want_table2(setting: StudySetting) -> Iterable[Want]:
    """One cell: a machine is described by the one that measured something."""
    yield Want("bert-base", "eager/python", setting.dtypes[0], (1,), (TEXT_LENGTH,))


def make_table2(views: Sequence[View]) -> Rows:
    """The machines: the paper's seven and those of the views."""
    columns = (
        "CPU", "GPU", "architecture", "cores", "Tensor Cores", "clock (GHz)", "memory (GB)",
        "bandwidth (GB/s)", "FP16 (TFLOP/s)", "source",
    )  # fmt: skip
    printed = [
        (*(value or NOTHING for value in row.values()), "the paper")
        for row in read_table("table2_hardware.csv")
    ]
    return Rows(
        title="Table 2: hardware",
        columns=columns,
        numeric=columns[3:9],
        rows=(
            *printed,
            *(
                _describe_machine(view, "this machine" if len(views) == 1 else "measured here")
                for view in views
            ),
        ),
    )


def want_table3(setting: StudySetting) -> Iterable[Want]:
    """The cells of Table 3, and, but for a quick run, the batches and the memory that the paper
    left out."""
    for runtime in FRAMEWORKS.values():
        want = Want(
            "bert-base", runtime, setting.main_dtype, (1,), (TEXT_LENGTH,), utilisation=True,
            needs=("sm_active_ratio", "sm_occupancy_ratio"),
        )  # fmt: skip
        if setting.quick:
            yield want
        else:
            yield replace(want, batches=setting.batches)
            yield replace(want, utilisation=False, needs=(), memory=True)


def make_table3(views: Sequence[View]) -> Rows:
    """BERT in five frameworks, with the GPU's own counters of how busy it is: at batch 1 as in the
    paper, and at the batches that it left out."""
    dtypes = _find_dtypes(views)
    dtype = "fp16" if "fp16" in dtypes else next(iter(dtypes), "fp16")

    def print_paper(column: str) -> Cell:
        return lambda place: place[0][column] if place[1] == 1 else None

    def print_latency(place: tuple[Mapping[str, str], int, SweepCell | None, View]) -> str | None:
        return None if place[2] is None else format_latency(place[2], place[3].drift)

    places = [
        (
            row,
            batch,
            view.find("bert-base", FRAMEWORKS[row["framework"]], dtype, batch, TEXT_LENGTH),
            view,
        )
        for view in views
        for batch in _find_table3_batches(view, dtype)
        for row in read_table("table3_utilization.csv")
    ]
    measured_on: dict[str, Cell] = {"measured on": "3.label"} if len(views) > 1 else {}
    labels = ", ".join(view.label for view in views)
    return Rows.of(
        f"Table 3: BERT, {dtype}, on {labels} and, at batch 1, in the paper",
        places,
        {
            **measured_on,
            "framework": lambda place: place[0]["framework_as_printed"],
            "compilation": lambda place: place[0]["graph_compilation"],
            "serialisation": lambda place: place[0]["kernel_serialization"],
            "batch": "1",
            "latency (ms)": print_latency,
            "SMs active (%)": ("2.sm_active_ratio", _format_ratio),
            "occupancy (%)": ("2.sm_occupancy_ratio", _format_ratio),
            "kernels": "2.kernels",
            "memory (MB)": ("2.device_bytes", lambda count: f"{count / 1e6:.0f}"),
            "latency (ms), the paper": print_paper("latency_ms"),
            "SMs active (%), the paper": print_paper("sms_active_pct"),
            "occupancy (%), the paper": print_paper("warp_occupancy_pct"),
        },
        text=("measured on", "framework", "compilation", "serialisation"),
    )


def _find_table3_batches(view: View, dtype: str) -> list[int]:
    """Batch 1, and those whose counters were read."""
    known = {
        place[3]
        for place, cell in view.cells.items()
        if (place[0], place[2], place[4]) == ("bert-base", dtype, TEXT_LENGTH)
        and cell.sm_active_ratio is not None
    }
    return sorted({1, *known})


def format_latency(cell: SweepCell, drift: Drift | None = None) -> str:
    """Latency in ms with its interval; a dash for a cell without rounds."""
    if cell.status != "measured":
        return NOTHING
    text, interval = f"{cell.latency_ns / 1e6:.3g}", find_interval(cell, drift)
    if interval is None:
        return text
    low, high = (end / 1e6 for end in interval)
    return f"{text} [{low:.3g}, {high:.3g}]"


def _find_dtypes(views: Iterable[View]) -> tuple[str, ...]:
    """The dtypes of what was measured, the paper's first."""
    there = {
        place[2]
        for view in views
        for place, cell in view.cells.items()
        if cell.status == "measured"
    }
    return tuple(dtype for dtype in ("fp16", "fp32", "bf16") if dtype in there)


def _describe_machine(view: View, source: str) -> tuple[str, ...]:
    """What the driver says of clock and memory, and the vendor of the rest, if it is known here."""
    facts = None if view.machine is None else view.machine.environment
    gpu = facts.gpu if facts else None
    stated = find_hardware(gpu.name) if gpu else {}
    memory_bytes = gpu.memory_bytes if gpu else facts.host.memory_bytes if facts else None
    return (
        (facts.host.cpu_model if facts else None) or NOTHING,
        gpu.name.removeprefix("NVIDIA ") if gpu else "none",
        stated.get("gpu_arch", NOTHING),
        stated.get("core_count", NOTHING),
        stated.get("tensor_cores", NOTHING),
        or_dash(read(gpu, "max_sm_clock_mhz"), lambda mhz: f"{mhz / 1e3:.2f} (largest)"),
        or_dash(memory_bytes, lambda count: f"{count / 1e9:.0f}"),
        stated.get("mem_bw_gb_s", NOTHING),
        stated.get("fp16_tflops", NOTHING),
        f"{source}; its vendor" if stated else source,
    )


def _format_ratio(ratio: float) -> str:
    return f"{100 * ratio:.1f}"


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


def want_training(setting: StudySetting) -> Iterable[Want]:
    """Eager and the lowest rung of each model; nothing in a quick run."""
    if setting.quick or _DTYPE not in setting.dtypes:
        return
    lowest = _LOWEST[setting.device.split(":")[0]]
    for model, batches in _MODELS.items():
        for runtime in (_EAGER, lowest):
            chosen = tuple(batch for batch in batches if batch in setting.batches)
            yield Want(f"{model} train", runtime, _DTYPE, chosen, memory=True)


def make_training(views: Sequence[View]) -> Rows:
    """A training step in eager and on the lowest rung, and what lies between: the tax."""
    rows = []
    for view in views:
        for model, batches in _MODELS.items():
            for batch in batches:
                eager, lowest = (
                    view.find(f"{model} train", runtime, _DTYPE, batch)
                    for runtime in (_EAGER, _LOWEST[view.device])
                )
                if eager is not None:
                    rows.append((view, model, batch, eager, lowest))

    def print_latency(place: int) -> Cell:
        return lambda row: row[place] and format_latency(row[place], row[0].drift)

    def print_tax(row: tuple[View, str, int, SweepCell, SweepCell | None]) -> str | None:
        *_, eager, lowest = row
        if lowest is None or {eager.status, lowest.status} != {"measured"}:
            return None
        return f"{100 * (1 - lowest.latency_ns / eager.latency_ns):.0f}"

    return Rows.of(
        f"A training step, {_DTYPE}: forward, backward and AdamW",
        rows,
        {
            "measured on": "0.label",
            "model": "1",
            "batch": "2",
            "eager (ms)": print_latency(3),
            "lowest rung (ms)": print_latency(4),
            "tax (%)": print_tax,
            "kernels": "3.kernels",
            "gradients (MB)": ("3.parameter_count", lambda count: f"{4 * count / 1e6:,.0f}"),
            "memory (MB)": ("3.device_bytes", lambda count: f"{count / 1e6:,.0f}"),
        },
        text=("measured on", "model"),
    )
