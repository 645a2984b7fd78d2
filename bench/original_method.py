"""How long the paper's method takes for a few cells, beside a sweep of the same cells.

The paper's script loads the model anew for each point, then takes the mean of 100 passes after 10
to warm up; this does so too, with models from configurations, since nothing is downloaded here. The
surprising choice: starting Python counts for the sweep, which uses processes, and not for the
method, which needs one for all points.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from ftax.machines.environment import collect_environment
from ftax.steps.load import load_model
from ftax.steps.setting import Setting
from ftax.sweeps.grid import Grid
from ftax.sweeps.run import run_sweep
from record import Figure, finish, make_parser, progress, run_json, show

_WARMUP, _PASSES = 10, 100
_MODELS = ("bert-base", "resnet-50", "gpt2")


def measure_point(job: dict[str, Any]) -> dict[str, float]:
    """One point as the paper's script measures it: seconds, and the mean latency in ns."""
    start = time.perf_counter()
    loaded = load_model(
        job["model"], device=job["device"], dtype=job["dtype"], batch=job["batch"], tiny=job["tiny"]
    )
    ready = time.perf_counter()
    with torch.no_grad():
        for _ in range(_WARMUP):
            loaded.call()
        _synchronize(job["device"])
        begin = time.perf_counter()
        for _ in range(_PASSES):
            loaded.call()
            _synchronize(job["device"])
    end = time.perf_counter()
    return {
        "seconds": end - start,
        "load_seconds": ready - start,
        "latency_ns": (end - begin) / _PASSES * 1e9,
    }


def _synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def measure_sweep(job: dict[str, Any]) -> tuple[float, dict[tuple[str, int], float]]:
    """Seconds of a sweep of all points, and latency in ns by (model, batch)."""
    grid = Grid(
        models=tuple(job["models"]), batches=tuple(job["batches"]), dtypes=(job["dtype"],),
        devices=(job["device"],), setting=Setting(tiny=job["tiny"]),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ftax-sweep-") as folder:
        start = time.perf_counter()
        found = run_sweep([grid], Path(folder), trace=False)
        seconds = time.perf_counter() - start
    measured = found.select(status="measured").cells
    return seconds, {(cell.cell.model, cell.cell.batch): cell.latency_ns for cell in measured}


def work() -> dict[str, Any]:
    """All points, one after the other, in one process."""
    job = json.load(sys.stdin)
    points = [(model, batch) for model in job["models"] for batch in job["batches"]]
    found = []
    for model, batch in points:
        progress(f"original_method: {model}, batch {batch}")
        point = measure_point({**job, "model": model, "batch": batch})
        found.append({"model": model, "batch": batch, **point})
    environment = collect_environment(device=job["device"]).to_dict()
    return {"points": found, "environment": environment}


def main() -> None:
    """Measure both ways, print the table, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--batches", type=int, nargs="+", help="1 8 32 on a GPU, 1 4 on a CPU")
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work()))
        return
    on_gpu = torch.cuda.is_available()
    batches = options.batches or ([1, 8, 32] if on_gpu else [1, 4])
    job = {
        "models": _MODELS[:1] if options.quick else _MODELS,
        "batches": batches[:2] if options.quick else batches,
        "device": "cuda" if on_gpu else "cpu",
        "dtype": "fp16" if on_gpu else "fp32",
        "tiny": options.quick,
    }
    original = run_json([sys.executable, __file__, "--worker"], given=json.dumps(job))
    progress("original_method: a sweep of the same cells")
    sweep_s, latencies = measure_sweep(job)
    rows = []
    for point in original["points"]:
        ours = latencies.get((point["model"], point["batch"]))
        rows.append(
            (point["model"], str(point["batch"]), f"{point['load_seconds']:.1f}",
             f"{point['seconds']:.1f}", f"{point['latency_ns'] / 1e6:.3f}",
             "-" if ours is None else f"{ours / 1e6:.3f}")
        )  # fmt: skip
    show(
        "each point as the paper's script measures it, and the sweep's latency",
        ("model", "batch", "load, s", "point, s", "mean latency, ms", "sweep, ms"),
        rows,
    )
    total_s = sum(point["seconds"] for point in original["points"])
    figures = [
        Figure(name="seconds a cell, the paper's method", values=(total_s / len(rows),), unit="s"),
        Figure(name="seconds a cell, sweep", values=(sweep_s / len(rows),), unit="s"),
        Figure(name="sweep against the method", values=(sweep_s / total_s,), unit="of its time"),
    ]
    raw = {"job": job, "points": original["points"], "sweep_seconds": sweep_s}
    finish(__file__, options, figures, raw=raw, environment=original["environment"])


if __name__ == "__main__":
    main()
