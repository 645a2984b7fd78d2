"""The whole test suite where a GPU is required, as a record: how many passed, failed and skipped.

A skip for want of a GPU is a failure here (FTAX_REQUIRE_GPU=1). Tests that check a GPU's times, or
what a process leaves behind, have the GPU to themselves; of several GPUs each has some of them.
Tests that compare outputs share it, beside those that need none; those of the host's times come
after them. With `--memcheck` the tests of launches run alone, under compute-sanitizer.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ftax.errors import RunnerError, UnavailableError
from record import figure, finish, make_parser, progress, show

_ROOT = Path(__file__).resolve().parents[1]
_WORKERS = max(1, len(os.sched_getaffinity(0)) // 2 - 1)  # of each of two runs
_REASON = 400  # characters of why a test failed
_LAST_WORDS_S = 60.0  # in which pytest writes its report when it is told to stop
_NOT_TIMES = "not watchdog and not queue and not longer and not order and not slower"
_GPU = ("tests/cuda", "tests/unit/instruments")
_SHARING = tuple(
    f"tests/cuda/test_{name}.py"
    for name in (
        "cuda_graph", "torch_graphs", "gpu_other_runtimes", "gpu_runtimes", "gpu_zoo",
        "onnxruntime_cuda", "transfers",
    )
)  # fmt: skip
_PARTS = {
    "beside": "beside the GPU",
    "sharing": "sharing the GPU",
    "timing": "measured times",
    "alone": "alone on the GPU",
}


def wait(process: subprocess.Popen[str], limit_s: float) -> tuple[str, bool]:
    """What a run of pytest printed, and whether it was done in time."""
    try:
        return process.communicate(timeout=max(0.0, limit_s))[0], True
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=_LAST_WORDS_S)[0], False
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0], False


def run_pytest(
    name: str, arguments: Sequence[str], end: float, launcher: Sequence[str] = (), **more: str
) -> dict[str, Any]:
    """Totals of one run of pytest, what failed and why. At ``end`` it is interrupted as by Ctrl-C,
    and reports what it has."""
    progress(f"gpu_tests: {name}")
    with tempfile.TemporaryDirectory(prefix="ftax-tests-") as folder:
        report, started = Path(folder) / "junit.xml", time.monotonic()
        process = subprocess.Popen(
            [*launcher, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
             "-p", "no:benchmark",  # warns that it cannot work beside xdist
             "-W", "ignore::pytest.PytestWarning", f"--junitxml={report}", *arguments],
            cwd=_ROOT,
            env={**os.environ, "FTAX_REQUIRE_GPU": "1", "OMP_NUM_THREADS": "1", **more},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        said, is_in_time = wait(process, end - started)
        if not report.exists():
            tail = " ".join(said.strip().splitlines()[-2:])
            raise RunnerError(f"pytest left no report, exit code {process.returncode}: {tail}")
        seconds = time.monotonic() - started
        return {
            "name": name, "exit_code": process.returncode, "in_time": is_in_time,
            "seconds": seconds, **read_report(report),
        }  # fmt: skip


def read_report(path: Path) -> dict[str, Any]:
    """Totals of a JUnit report, what failed and why, and what was skipped."""
    failed, skipped, count = {}, [], 0
    for case in xml.parse(path).getroot().iter("testcase"):
        count += 1
        found = {part.tag: part.get("message") or "" for part in case}
        if reasons := [found[tag] for tag in ("failure", "error") if tag in found]:
            failed[f"{case.get('classname')}::{case.get('name')}"] = reasons[0][:_REASON]
        elif "skipped" in found:
            skipped.append(f"{case.get('name')}: {found['skipped']}")
    passed = count - len(failed) - len(skipped)
    return {"tests": count, "passed": passed, "failed": failed, "skipped": skipped}


def run_memcheck(end: float) -> Iterator[dict[str, Any]]:
    """The tests of launches under compute-sanitizer, which fails the run for any error it sees."""
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        raise UnavailableError("compute-sanitizer is not on the PATH; install the CUDA toolkit")
    launcher = [sanitizer, "--tool", "memcheck", "--target-processes", "all", "--error-exitcode",
                "99", "--report-api-errors", "no"]  # fmt: skip
    files = ("tests/cuda/test_launch_replay.py", "tests/cuda/test_gate.py")
    yield run_pytest("memcheck", ["-k", _NOT_TIMES, *files], end, launcher)


def run_parts(options: argparse.Namespace, end: float) -> Iterator[dict[str, Any]]:
    """The parts of the suite that were asked for, each as soon as it is done."""
    gpus = torch.cuda.device_count()
    without_gpu = ["tests", *(f"--ignore={folder}" for folder in _GPU)]
    alone = [*(options.files or _GPU), *(f"--ignore={file}" for file in _SHARING)]
    each = ["-m", "not two_gpus", *spread("loadfile", gpus)] if gpus > 1 else []
    variables = {"FTAX_TEST_GPUS": str(gpus)} if gpus > 1 else {}
    runs: dict[str, Callable[[], dict[str, Any]]] = {
        "beside": lambda: run_pytest(
            _PARTS["beside"], ["-m", "not timing", *spread("loadfile"), *without_gpu], end
        ),
        # Not by file: each test compiles for itself, and one file has most of them.
        "sharing": lambda: run_pytest(
            _PARTS["sharing"], [*spread("worksteal"), *_SHARING], end
        ),
        "timing": lambda: run_pytest(_PARTS["timing"], ["-m", "timing", *without_gpu], end),
        "alone": lambda: run_pytest(_PARTS["alone"], [*each, *alone], end, **variables),
        "two": lambda: run_pytest("on two GPUs", ["-m", "two_gpus", *alone], end),
    }  # fmt: skip
    with ThreadPoolExecutor() as pool:
        together = [name for name in ("beside", "sharing") if name in options.parts]
        for run in as_completed([pool.submit(runs[name]) for name in together]):
            yield run.result()
    wanted = [*options.parts, *(["two"] if gpus > 1 and "alone" in options.parts else [])]
    for name in ("timing", "alone", "two"):
        if name in wanted and time.monotonic() < end:
            yield runs[name]()


def spread(how: str, workers: int = _WORKERS) -> list[str]:
    """Arguments that spread tests over processes, if pytest-xdist is there."""
    return ["-n", str(workers), "--dist", how] if find_spec("xdist") else []


def main() -> None:
    """Run the tests, print the table, save a record of each part."""
    parser = make_parser(__doc__)
    parser.add_argument("--memcheck", action="store_true", help="only the run under the sanitizer")
    parser.add_argument("--parts", nargs="+", choices=[*_PARTS], default=[*_PARTS])
    parser.add_argument("--files", nargs="+", default=[], help="of the part alone, only these")
    parser.add_argument("--time-limit", type=float, default=1800.0, help="seconds (1800)")
    options = parser.parse_args()
    if options.quick:
        options.parts, options.files = ["alone"], ["tests/cuda/test_gate.py"]
    # A shell that starts this in the background has Ctrl-C ignored, which tests would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end = time.monotonic() + options.time_limit
    rows = []
    for run in run_memcheck(end) if options.memcheck else run_parts(options, end):
        figures = [
            figure(f"{run['name']}: {what}", value, unit, at_most=0)
            for what, value, unit in (
                ("failed", float(len(run["failed"])), "tests"),
                ("exit code", float(run["exit_code"]), ""),
            )
        ]
        finish(__file__, options, figures, raw=[run])  # at once: the next may be cut short
        for name, reason in run["failed"].items():
            progress(f"gpu_tests: failed: {name}: {reason.partition(chr(10))[0]}")
        if not run["in_time"]:
            progress(f"gpu_tests: {run['name']}: the time limit came first")
        rows.append((run["name"], str(run["tests"]), str(run["passed"]), str(len(run["failed"])),
                     str(len(run["skipped"])), f"{run['seconds']:.0f} s"))  # fmt: skip
    show("tests", ("run", "tests", "passed", "failed", "skipped", "time"), rows)


if __name__ == "__main__":
    main()
