"""Runs every benchmark, one after the other, and says which targets were met.

The surprising choice: a missed target does not fail the run, a script that breaks does; numbers
are judged by people, and a machine may have had a bad day. --quick takes minutes and saves nothing.
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

import torch

from record import RESULTS, progress, read_lines, show

# What each script is given in a full run; without a limit, 200 pairs take an hour and a half.
_SCRIPTS = {
    "loop": (),
    "import_time": (),
    "tape": (),
    "intervention": (),
    "tax_wall": (),
    "compare_validity": ("--time-limit", "540"),
    "cpu_runtimes": ("--time-limit", "1200"),
    "original_method": (),
    "fleet": (),
    "captures": (),
    "capture_service": (),
    "compile_costs": (),
    "compile_delays": (),
    "step_receipts": (),
    "step_delays": (),
    "decode_tax": (),
    "gpu_receipts": (),
    "gpu_runtimes": ("--time-limit", "2400"),
    "gpu_launch": (),
    "gpu_wall": (),
    "gpu_compare": ("--time-limit", "1200"),
    "gpu_kernels": (),
    "gpu_observer": (),
    "gpu_intervention": (),
    "gpu_tests": (),
}
_QUICK = {
    "compare_validity": ("--time-limit", "300"),
    "cpu_runtimes": ("--models", "bert-base"),
    "gpu_receipts": ("--batches", "1"),
    "gpu_runtimes": ("--models", "bert-base"),
    "gpu_compare": ("--time-limit", "120"),
    "captures": ("--only", "time bert-base"),
    "capture_service": ("--only", "refused"),
    "compile_costs": ("--only", "bert-base batch 1", "--duration", "4"),
    "step_receipts": ("--only", "receipt: train bert-base"),
    "step_delays": ("--only", "train"),
    "decode_tax": ("--models", "llama-160m", "--longest", "512", "--largest", "2",
                   "--knee-seconds", "5"),
}  # fmt: skip
# Scripts of either device: what they are given without a GPU.
_OF_EITHER = (
    "captures", "capture_service", "compile_costs", "compile_delays", "step_receipts",
    "step_delays", "decode_tax",
)  # fmt: skip
_WITHOUT_GPU = ("--device", "cpu", "--tiny")


def run_script(name: str, flags: list[str]) -> int:
    """Run one script, its output going where ours goes; its exit code."""
    script = Path(__file__).parent / f"{name}.py"
    return subprocess.run([sys.executable, str(script), *flags], check=False).returncode


def read_figures(records: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Rows of the figures with a target in these records."""
    words = {True: "met", False: "MISSED"}
    return [
        (record["bench"], name, f"{f['value']:.4g} {f['unit']}", f["target"], words[f["met"]])
        for record in records
        for name, f in record["figures"].items()
        if f["target"] is not None
    ]


def run_all(quick: bool, results: Path) -> int:
    """Run the scripts and print the summary; how many broke."""
    broken: list[str] = []
    rows: list[tuple[str, ...]] = []
    for place, (name, flags) in enumerate(_SCRIPTS.items()):
        if name.startswith("gpu_") and not torch.cuda.is_available():
            progress(f"run_all: {name} is left out: torch finds no CUDA device")
            continue
        progress(f"run_all: {name} ({place + 1} of {len(_SCRIPTS)})")
        start = time.monotonic()
        chosen = ["--quick", *_QUICK.get(name, ("--processes", "2"))] if quick else list(flags)
        if name in _OF_EITHER and not torch.cuda.is_available():
            chosen += _WITHOUT_GPU
        path = results / f"{name}.jsonl"
        before = len(read_lines(path))
        code = run_script(name, [*chosen, "--results", str(results)])
        progress(f"run_all: {name} took {time.monotonic() - start:.0f} s")
        if code != 0:
            broken.append(name)
            rows.append((name, "-", f"exit code {code}", "-", "BROKEN"))
        else:
            rows += read_figures(read_lines(path)[before:])
    show("targets", ("bench", "figure", "median", "target", "verdict"), rows, left=2)
    for name in broken:
        progress(f"run_all: {name} broke; its message is above")
    return len(broken)


def main() -> None:
    """Exit code 0 unless a script broke."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small settings, saved nowhere")
    parser.add_argument("--results", type=Path, help="folder for the records")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ftax-bench-") as folder:
        results = options.results or (Path(folder) if options.quick else RESULTS)
        sys.exit(1 if run_all(options.quick, results) else 0)


if __name__ == "__main__":
    main()
