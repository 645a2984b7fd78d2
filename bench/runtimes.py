"""Every runtime, called from Python and from C++, in one interleaved `ftax tax` a model.

The figures: how long measuring takes once everything is prepared, which rows are missing without
need, and of how many runtimes C++ is no slower than the best public way to call them from Python.
C++ need not be faster: where a request is one graph launch nothing is left to save.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ftax import Receipt
from ftax.errors import RunnerError
from ftax.runtimes.catalogue import find_runtime
from ftax.timing.differences import compute_difference
from ftax.timing.measurement import Measurement
from record import Figure, figure, finish, keep_receipt, make_parser, progress, show

_MODELS = ("bert-base", "resnet-50")
_MEASURE_LIMIT_S = 300.0
_PATIENCE_S = 10.0  # with a neighbour on the core
# Words of a reason that is the model's, the machine's or the runtime's by nature, and no fault.
_BY_NATURE = ("has no Conv2d", "there is no padding", "not part of this comparison")


def take_receipt(model: str, options: argparse.Namespace, limit_s: float) -> Receipt:
    """By the command, in a process of its own. Raises RunnerError if it left none in time."""
    trace = ["--trace", "here"] if options.device.startswith("cuda") else []
    with tempfile.TemporaryDirectory(prefix="ftax-bench-") as folder:
        saved = Path(folder) / "receipt.jsonl"
        command = [
            sys.executable, "-m", "ftax", "tax", model, "--device", options.device,
            "--dtype", options.dtype, "--batch", str(options.batch), "--runtimes", options.runtimes,
            "--duration", str(options.duration), "--patience", str(_PATIENCE_S), *trace,
            *(["--tiny"] if options.tiny else []), "--json", str(saved),
        ]  # fmt: skip
        try:
            code = subprocess.run(command, check=False, timeout=limit_s).returncode
        except subprocess.TimeoutExpired:
            raise RunnerError(f"not done after {limit_s:.0f} s") from None
        if not saved.exists():
            raise RunnerError(f"ftax tax ended with exit code {code}")
        (receipt,) = Receipt.load(saved)  # a fault when the process ends costs no result
    return receipt


def compare_hosts(measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Of each runtime with both, C++ minus Python, from the rounds that they share."""
    places = {(m.cell.runtime, m.cell.host): place for place, m in enumerate(measurements)}
    found = []
    for runtime in dict.fromkeys(runtime for runtime, _ in places):
        cpp, python = (places.get((runtime, host)) for host in ("cpp", "python"))
        if cpp is not None and python is not None:
            difference_ns, ends = compute_difference(measurements, cpp, python)
            found.append(
                {
                    "runtime": runtime,
                    "python_us": measurements[python].latency_ns / 1e3,
                    "cpp_us": measurements[cpp].latency_ns / 1e3,
                    "difference_us": difference_ns / 1e3,
                    "interval_us": None if ends is None else [end / 1e3 for end in ends],
                    "no_worse": ends is not None and ends[0] <= 0,
                }
            )
    return found


def is_missing(receipt: Receipt, runtime: str, host: str, reason: str) -> bool:
    """Whether a row should have been measured."""
    spec, cell = find_runtime(runtime), receipt.rungs[0].cell
    device = cell.device.partition(":")[0]
    is_absent = device == "cpu" and "not installed" in reason  # a developer's machine may lack it
    is_of_text = "for text models" in reason or (
        cell.model == "resnet-50" and runtime in ("padded", "nested")
    )
    by_nature = is_absent or is_of_text or any(words in reason for words in _BY_NATURE)
    return host in spec.hosts and device in spec.devices and not by_nature


def describe(receipt: Receipt) -> dict[str, Any]:
    """What a record keeps of it, besides the receipt."""
    seconds = {
        name: float(receipt.preparation[name])  # type: ignore[arg-type]
        for name in ("prepare_seconds", "measure_seconds", "total_seconds")
    }
    return {
        "model": receipt.rungs[0].cell.model,
        "batch": receipt.rungs[0].cell.batch,
        "rows": len(receipt.rungs) + len(receipt.others),
        **seconds,
        "after_preparation_seconds": seconds["total_seconds"] - seconds["prepare_seconds"],
        "hosts": compare_hosts([*receipt.rungs, *receipt.others]),
        "missing": [
            f"{item.runtime}/{item.host}: {item.reason}"
            for item in receipt.unavailable
            if is_missing(receipt, item.runtime, item.host, item.reason)
        ],
    }


def make_figures(cells: Sequence[Mapping[str, Any]], asked: int) -> list[Figure]:
    """Models measured; of each how long it took, what is missing, and where C++ is slower."""
    figures = [figure("models", len(cells), "models", at_least=asked)]
    for cell in cells:
        name, hosts = f"{cell['model']}, batch {cell['batch']}", cell["hosts"]
        figures += [
            figure(
                f"{name}: measuring after preparation",
                cell["after_preparation_seconds"],
                "s",
                at_most=_MEASURE_LIMIT_S,
            ),
            figure(f"{name}: rows missing without need", len(cell["missing"]), "rows", at_most=0),
            figure(f"{name}: rows", cell["rows"], "rows"),
            figure(
                f"{name}: runtimes that C++ drives no slower",
                sum(item["no_worse"] for item in hosts),
                "runtimes",
                at_least=len(hosts),
            ),
        ]
    return figures


def main() -> None:
    """Measure the models, print the table, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--models", nargs="+", default=_MODELS, help=" ".join(_MODELS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", help="fp32 on a CPU, fp16 on a GPU")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--runtimes", default="all", help="as `ftax tax --runtimes` takes them")
    parser.add_argument("--tiny", action="store_true", help="same depth, small widths")
    parser.add_argument("--duration", type=float, default=60.0, help="seconds of rounds")
    parser.add_argument("--time-limit", type=float, default=2400.0, help="seconds for all models")
    options = parser.parse_args()
    options.dtype = options.dtype or ("fp32" if options.device == "cpu" else "fp16")
    if options.quick:
        options.tiny, options.duration = True, min(options.duration, 4.0)
    end = time.monotonic() + options.time_limit
    receipts = []
    for model in options.models:
        try:
            receipts.append(take_receipt(model, options, max(1.0, end - time.monotonic())))
        except RunnerError as error:
            progress(f"runtimes: {model} failed: {error}")
        else:
            keep_receipt(__file__, options, receipts[-1])
    if not receipts:
        sys.exit("runtimes: no model was measured")
    cells = [describe(receipt) for receipt in receipts]
    rows = [
        (cell["model"], item["runtime"], f"{item['python_us']:.1f}", f"{item['cpp_us']:.1f}",
         f"{item['difference_us']:+.1f}",
         " to ".join(f"{end:+.1f}" for end in item["interval_us"] or ()),
         "no worse" if item["no_worse"] else "WORSE")
        for cell in cells for item in cell["hosts"]
    ]  # fmt: skip
    columns = ("model", "runtime", "Python, us", "C++", "C++ minus Python", "95 %", "C++ is")
    show(f"called from Python and from C++, {options.device}, {options.dtype}", columns, rows,
         left=2)  # fmt: skip
    for cell in cells:
        for text in cell["missing"]:
            progress(f"runtimes: {cell['model']}: MISSING {text}")
    environment = receipts[0].rungs[0].environment.to_dict()
    finish(__file__, options, make_figures(cells, len(options.models)), raw=cells,
           environment=environment)  # fmt: skip


if __name__ == "__main__":
    main()
