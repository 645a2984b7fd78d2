"""Whether `ftax run` agrees with torch.profiler on kernels, and with a receipt on idle time.

Kernels: a program of tests/programs runs twice under torch.profiler, the second time for 100
iterations more; the difference is what 100 iterations launch. Idle: a program that repeats the
forward pass of a model is watched; what its device idles is compared with the receipt of that pass,
all that is not the line *kernels*.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from ftax_run import records
from ftax_run.account import Account
from ftax_run.report import describe
from ftax_run.window import Window
from run_delays import copy_programs, list_programs, watch

import ftax
from ftax.errors import RunnerError
from record import add_part_options, figure, make_parser, run_json, run_parts

_MODELS = ("bert-base", "resnet-50", "gpt2")
# A replay is one graph for the one and its kernels for the other; the launcher's work is elsewhere.
_LEFT_OUT = ("compiled", "graph_replay", "launcher")
_MORE = 100  # iterations
_PROFILED = """
import json, runpy, sys, torch
from torch.profiler import ProfilerActivity, profile
sys.path.insert(0, sys.argv[1])
sys.argv = sys.argv[2:]
with profile(activities=[ProfilerActivity.CUDA]) as profiler:
    runpy.run_path(sys.argv[0], run_name="__main__")
kernels = sum(
    event.device_type == torch.autograd.DeviceType.CUDA
    and not event.name.startswith(("Memcpy", "Memset"))
    for event in profiler.events()
)
print(json.dumps(kernels))
"""
_REPEATED = """
import sys, time, torch, ftax
loaded = ftax.load_model(sys.argv[1], device=sys.argv[2], dtype=sys.argv[3])
end = time.monotonic() + float(sys.argv[4])
with torch.inference_mode():
    while time.monotonic() < end:
        loaded.call()
        if sys.argv[2] != "cpu":
            torch.cuda.synchronize()
"""


def find_window(account: Account) -> Window:
    """The steady state, without what recording cost."""
    process = account.find_main()
    if process is None or not process.windows or not process.find_steady().count:
        raise RunnerError("no iteration was found on a device")
    return process.correct()[0]


def take_kernels(name: str, seconds: float) -> dict[str, Any]:
    """Kernels an iteration, of both."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        copy_programs(folder)
        script = folder / "profiled.py"
        script.write_text(_PROFILED)
        program = str(folder / "programs" / f"{name}.py")
        few, many = (
            run_json(
                [sys.executable, str(script), str(folder / "site-packages"), program,
                 "--iterations", str(count)]
            )
            for count in (_MORE // 2, _MORE // 2 + _MORE)
        )  # fmt: skip
        said, account = watch(folder, [program, "--seconds", f"{seconds:g}"])
    window = find_window(account)
    # The program's iteration may be a part of what repeats.
    times = max(1, round(window.wall / window.count / 1e3 / said["iteration_us"]))
    return {
        "profiler": (many - few) / _MORE, "run": window.work["kernels"] / window.count / times,
        "report": describe(account),
    }  # fmt: skip


def take_receipt(model: str, seconds: float, device: str) -> dict[str, Any]:
    """Idle time an iteration in microseconds, of both: the receipt before and after the run."""
    dtype = "fp32" if device == "cpu" else "fp16"
    receipts = [_measure_idle(model, device, dtype)]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "programs").mkdir()
        (folder / "programs" / "repeated.py").write_text(_REPEATED)
        record = folder / "run.jsonl"
        command = [
            sys.executable, "-m", "ftax_run", "-o", str(record), "--json", "--", sys.executable,
            str(folder / "programs" / "repeated.py"), model, device, dtype, f"{seconds:g}",
        ]  # fmt: skip
        os.spawnv(os.P_WAIT, sys.executable, command)
        account = records.read(record)[-1]
    receipts.append(_measure_idle(model, device, dtype))
    window = find_window(account)
    return {
        "receipts": receipts, "run": (window.wall - window.busy) / window.count / 1e3,
        "report": describe(account),
    }  # fmt: skip


def _measure_idle(model: str, device: str, dtype: Any) -> float:
    receipt = ftax.tax(model, device=device, dtype=dtype, runtimes="none", operators=False)
    return sum(line.time_ns for line in receipt.lines if line.name != "kernels") / 1e3


def list_figures(parts: dict[str, dict[str, Any]]) -> list[Any]:
    """The worst of each."""
    figures = []
    kernels = [part for part in parts.values() if "profiler" in part]
    if kernels:
        worst = max(abs(part["run"] - part["profiler"]) for part in kernels)
        figures.append(figure("kernels an iteration, worst difference", worst, at_most=0.5))
    idle = [part for part in parts.values() if "receipts" in part]
    if idle:
        errors = [
            min(abs(part["run"] / receipt - 1) for receipt in part["receipts"]) for part in idle
        ]
        figures.append(
            figure("idle against the nearer receipt, worst", 100 * max(errors), "%", at_most=10)
        )
    return figures


def main() -> None:
    """Run, print, save."""
    parser = make_parser(__doc__)
    add_part_options(parser, duration_s=8.0)
    options = parser.parse_args()
    wanted: dict[str, Any] = {
        name: (lambda name=name: take_kernels(name, options.duration))
        for name in list_programs()
        if name not in _LEFT_OUT
    }
    wanted |= {
        model: (lambda model=model: take_receipt(model, options.duration, options.device))
        for model in _MODELS
    }
    run_parts(__file__, wanted, options, list_figures)


if __name__ == "__main__":
    main()
