"""What the benchmarks of runtimes read off a receipt, and what has to hold of it.

The surprising choice: a cell is plain JSON, and the checks read nothing else, so a file of cells
can be judged again without the machine. Only differences need the receipt, for their intervals come
from rounds that all runtimes share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ftax import Receipt
from ftax.runtimes.catalogue import find_runtime
from ftax.timing.differences import compute_difference
from ftax.timing.measurement import Measurement
from record import Figure

MEASURE_LIMIT_S = 300.0
_ABOUT_RATIO = 1.25  # "about as fast": 2.82 and 2.56 ms in the paper

# Table 3 of the paper (BERT, batch 1, fp16, driven by Python): slower, relation, faster.
_TABLE_3 = (
    ("eager", ">", "torchscript"),
    ("torchscript", ">", "cuda-graph"),
    ("cuda-graph", "~", "onnxruntime"),
    ("onnxruntime", ">", "onnxruntime-cuda-graph"),
    ("eager", ">", "cuda-graph"),
    ("torchscript", ">", "onnxruntime"),
)
HOST_PAIRS = (
    "torchscript",
    "torchscript-frozen",
    "cuda-graph",
    "aoti",
    "onnxruntime",
    "onnxruntime-cuda-graph",
)
_TEXT_ONLY = ("padded", "nested")
_BY_NATURE = {  # words of a reason that is the model's or its size's, and no fault
    "eager-channels-last": ("has no Conv2d",),
    "padded": ("there is no padding",),
    "nested": ("there is no padding",),
}

Cell = Mapping[str, Any]


def describe(receipt: Receipt) -> dict[str, Any]:
    """The rows of a receipt, what is missing, and how long it took."""
    measurements = [*receipt.rungs, *receipt.others]
    seconds = {name: float(receipt.preparation[name]) for name in _SECONDS}  # type: ignore[arg-type]
    return {
        "model": receipt.rungs[0].cell.model,
        "batch": receipt.rungs[0].cell.batch,
        "dtype": receipt.rungs[0].cell.dtype,
        "device": receipt.rungs[0].cell.device,
        "rounds": len(receipt.rungs[0].values_ns),
        "stop_reason": receipt.rungs[0].stop_reason,
        "rows": [describe_row(measurements, place) for place in range(len(measurements))],
        "unavailable": [
            {"runtime": item.runtime, "host": item.host, "reason": item.reason}
            for item in receipt.unavailable
        ],
        **seconds,
        "after_preparation_seconds": seconds["total_seconds"] - seconds["prepare_seconds"],
        "table_3": judge_order(measurements),
        "hosts": compare_hosts(measurements),
        "warnings": list(dict.fromkeys([*receipt.warnings, *receipt.rungs[0].warnings])),
    }


_SECONDS = ("prepare_seconds", "measure_seconds", "total_seconds")
_COSTS = ("seconds", "ready_seconds", "peak_host_bytes", "peak_device_bytes", "from_cache")


def describe_row(measurements: Sequence[Measurement], place: int) -> dict[str, Any]:
    """One runtime: latency, what it saves of Python eager's, outputs and cost of preparing."""
    item = measurements[place]
    saved_ns, interval = compute_difference(measurements, 0, place) if place else (0.0, None)
    outputs = item.checks.get("outputs")
    return {
        "runtime": item.cell.runtime,
        "host": item.cell.host,
        "latency_us": item.latency_ns / 1e3,
        "interval_us": None if item.interval_ns is None else [e / 1e3 for e in item.interval_ns],
        "saved_us": saved_ns / 1e3,
        "saved_interval_us": None if interval is None else [end / 1e3 for end in interval],
        "outputs": dict(outputs) if isinstance(outputs, Mapping) else None,
        "preparation": {name: item.preparation.get(name) for name in _COSTS},
        "warnings": list(item.warnings),
    }


def judge_order(measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Each relation of the paper's Table 3 between rows that there are, with its interval."""
    places = find_places(measurements)
    found = []
    for slower, relation, faster in _TABLE_3:
        left, right = places.get((slower, "python")), places.get((faster, "python"))
        entry: dict[str, Any] = {"relation": f"{slower} {relation} {faster}"}
        if left is None or right is None:
            entry["verdict"] = "not measured"
        else:
            difference_ns, interval = compute_difference(measurements, left, right)
            ratio = measurements[left].latency_ns / measurements[right].latency_ns
            ends = None if interval is None else [end / 1e3 for end in interval]
            entry |= {"difference_us": difference_ns / 1e3, "interval_us": ends, "ratio": ratio}
            entry["verdict"] = judge_relation(relation, ratio, ends)
        found.append(entry)
    return found


def judge_relation(relation: str, ratio: float, interval: Sequence[float] | None) -> str:
    """Whether "slower > faster" or "~" holds, given their ratio and their difference's interval."""
    if relation == "~":
        return "holds" if 1 / _ABOUT_RATIO <= ratio <= _ABOUT_RATIO else "does not hold"
    if interval is None or interval[0] <= 0 <= interval[1]:
        return "not resolved"
    return "holds" if interval[0] > 0 else "does not hold"


def compare_hosts(measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    """For each runtime with both hosts, C++ minus Python from the rounds that they share."""
    places = find_places(measurements)
    found = []
    for runtime in dict.fromkeys(runtime for runtime, _ in places):
        left, right = places.get((runtime, "cpp")), places.get((runtime, "python"))
        if left is None or right is None:
            continue
        difference_ns, interval = compute_difference(measurements, left, right)
        ends = None if interval is None else [end / 1e3 for end in interval]
        found.append(
            {
                "runtime": runtime,
                "python_us": measurements[right].latency_ns / 1e3,
                "cpp_us": measurements[left].latency_ns / 1e3,
                "difference_us": difference_ns / 1e3,
                "interval_us": ends,
                "no_worse": is_no_worse(ends),
            }
        )
    return found


def is_no_worse(interval: Sequence[float] | None) -> bool:
    """Whether C++ minus Python is not above 0 for certain; without an interval nobody knows."""
    return interval is not None and interval[0] <= 0


def find_places(measurements: Sequence[Measurement]) -> dict[tuple[str, str], int]:
    """Where each (runtime, host) is."""
    return {(m.cell.runtime, m.cell.host): place for place, m in enumerate(measurements)}


def explain_absence(cell: Cell, runtime: str, host: str, reason: str) -> str | None:
    """Why a row may be missing by its nature; None if it should have been measured."""
    spec = find_runtime(runtime)
    if host not in spec.hosts:
        return spec.why_not_cpp or f"{runtime} has no {host} host"
    device = str(cell["device"]).split(":")[0]
    if device not in spec.devices:
        return f"not on {device}"
    if cell["model"] == "resnet-50" and runtime in _TEXT_ONLY:
        return "for text models"
    if any(words in reason for words in _BY_NATURE.get(runtime, ())):
        return "the model has nothing for it"
    if device == "cpu" and "not installed" in reason:
        return "not installed"
    return None


def list_missing(cell: Cell) -> list[str]:
    """The rows that should be there and are not, with their reasons."""
    return [
        f"{item['runtime']}/{item['host']}: {item['reason']}"
        for item in cell["unavailable"]
        if explain_absence(cell, item["runtime"], item["host"], item["reason"]) is None
    ]


def make_runtime_figures(cells: Sequence[Cell], asked: int) -> list[Figure]:
    """Models measured, the longest measuring, missing rows, and relations of Table 3."""
    figures = [Figure(name="models", values=(float(len(cells)),), unit="models", at_least=asked)]
    for cell in cells:
        name = f"{cell['model']}, batch {cell['batch']}"
        seconds = cell["after_preparation_seconds"]
        missing = float(len(list_missing(cell)))
        figures += [
            Figure(name=f"{name}: measuring after preparation", values=(seconds,), unit="s",
                   at_most=MEASURE_LIMIT_S),
            Figure(name=f"{name}: rows missing without need", values=(missing,), unit="rows",
                   at_most=0.0),
            Figure(name=f"{name}: rows", values=(float(len(cell["rows"])),), unit="rows"),
        ]  # fmt: skip
        known = [item for item in cell["table_3"] if item["verdict"] != "not measured"]
        holds = float(sum(item["verdict"] == "holds" for item in known))
        figures.append(
            Figure(name=f"{name}: relations of Table 3 that hold, of {len(known)}",
                   values=(holds,), unit="relations")
        )  # fmt: skip
    return figures


def make_host_figures(cells: Sequence[Cell], runtimes: Sequence[str]) -> list[Figure]:
    """For each model, of how many of ``runtimes`` C++ is no worse than Python."""
    figures = []
    for cell in cells:
        pairs = {item["runtime"]: item for item in cell["hosts"]}
        good = [name for name in runtimes if name in pairs and pairs[name]["no_worse"]]
        figures.append(
            Figure(
                name=f"{cell['model']}, batch {cell['batch']}: runtimes that C++ drives no slower",
                values=(float(len(good)),),
                unit="runtimes",
                at_least=float(len(runtimes)),
            )
        )
    return figures
