"""The whole test suite where a GPU is required, as a record: how many passed, failed and skipped.

A skip for want of a GPU is a failure here (FTAX_REQUIRE_GPU=1). The surprising choice: four runs.
Tests that check a GPU's times, or what a process leaves behind, have the GPU to themselves, one
after the other; of several GPUs each has some of them. Tests that compare outputs share it, beside
those that need none; those of the host's times come after them. With `--memcheck` the tests of
launches run once more under compute-sanitizer.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ftax.errors import RunnerError, UnavailableError
from record import Figure, finish, make_parser, progress, show

_TESTS = Path(__file__).resolve().parents[1] / "tests"
_WORKERS = max(1, len(os.sched_getaffinity(0)) // 2 - 1)  # of each of two runs
_SLOWEST = 10
_REASON = 400  # characters of why a test failed
_LAST_WORDS_S = 60.0  # in which pytest writes its report when it is told to stop
_NOT_TIMES = "not watchdog and not queue and not longer and not order and not slower"
_GPU = ("tests/cuda", "tests/instruments")
_PARTS = {
    "beside": "beside the GPU",
    "sharing": "sharing the GPU",
    "timing": "measured times",
    "alone": "alone on the GPU",
}
_SHARING = (
    "tests/cuda/test_cuda_graph.py",
    "tests/cuda/test_torch_graphs.py",
    "tests/cuda/test_gpu_other_runtimes.py",
    "tests/cuda/test_gpu_runtimes.py",
    "tests/cuda/test_gpu_zoo.py",
    "tests/cuda/test_onnxruntime_cuda.py",
    "tests/cuda/test_transfers.py",
)
_MEMCHECK = ("tests/cuda/test_launch_replay.py", "tests/cuda/test_gate.py")


def wait(process: subprocess.Popen[str], limit_s: float) -> tuple[str, bool]:
    """What a run of pytest printed, and whether it was done in time: if not, it is interrupted as
    by Ctrl-C, and reports what it has."""
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
    name: str,
    arguments: Sequence[str],
    limit_s: float,
    launcher: Sequence[str] = (),
    **variables: str,
) -> dict[str, Any]:
    """Totals of one run of pytest, what failed and why."""
    progress(f"gpu_tests: {name}")
    with tempfile.TemporaryDirectory(prefix="ftax-tests-") as folder:
        report = Path(folder) / "junit.xml"
        started = time.monotonic()
        pytest = subprocess.Popen(
            [*launcher, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
             "-p", "no:benchmark",  # warns that it cannot work beside xdist
             "-W", "ignore::pytest.PytestWarning", f"--junitxml={report}", *arguments],
            cwd=_TESTS.parent,
            env={**os.environ, "FTAX_REQUIRE_GPU": "1", "OMP_NUM_THREADS": "1", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        said, in_time = wait(pytest, limit_s)
        if not report.exists():
            tail = " ".join(said.strip().splitlines()[-2:])
            raise RunnerError(f"pytest left no report, exit code {pytest.returncode}: {tail}")
        return {
            "name": name,
            "exit_code": pytest.returncode,
            "in_time": in_time,
            "seconds": time.monotonic() - started,
            **read_report(report),
        }


def name_case(case: xml.Element) -> str:
    """As pytest would find it."""
    return f"{case.get('classname')}::{case.get('name')}"


def find_fault(case: xml.Element) -> xml.Element | None:
    """What failed it; None if nothing did."""
    failure = case.find("failure")
    return failure if failure is not None else case.find("error")


def read_report(path: Path) -> dict[str, Any]:
    """Totals of a JUnit report."""
    cases = list(xml.parse(path).getroot().iter("testcase"))
    slowest = sorted(cases, key=lambda case: -float(case.get("time") or 0))[:_SLOWEST]
    failed = {
        name_case(case): (fault.get("message") or "")[:_REASON]
        for case in cases
        if (fault := find_fault(case)) is not None
    }
    skipped = [
        f"{case.get('name')}: {skip.get('message')}"
        for case in cases
        if (skip := case.find("skipped")) is not None
    ]
    return {
        "tests": len(cases),
        "passed": len(cases) - len(failed) - len(skipped),
        "failed": failed,
        "skipped": skipped,
        "slowest_s": {name_case(case): float(case.get("time") or 0) for case in slowest},
    }


def run_memcheck(limit_s: float) -> Iterator[dict[str, Any]]:
    """The tests of launches under compute-sanitizer, which fails the run for any error it sees."""
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        raise UnavailableError("compute-sanitizer is not on the PATH; install the CUDA toolkit")
    launcher = [sanitizer, "--tool", "memcheck", "--target-processes", "all", "--error-exitcode",
                "99", "--report-api-errors", "no"]  # fmt: skip
    yield run_pytest("memcheck", ["-k", _NOT_TIMES, *_MEMCHECK], limit_s, launcher)


def run_quick(limit_s: float) -> Iterator[dict[str, Any]]:
    """One file of each kind."""
    yield run_pytest("beside the GPU", ["tests/instruments/test_gate.py"], limit_s)
    yield run_pytest("alone on the GPU", ["tests/cuda/test_gate.py"], limit_s)


def run_parts(
    parts: Sequence[str], files: Sequence[str], limit_s: float
) -> Iterator[dict[str, Any]]:
    """The parts of the suite that were asked for, each as soon as it is done."""
    deadline = time.monotonic() + limit_s
    shared = [f"--ignore={file}" for file in _SHARING]
    without_gpu = ["tests", *(f"--ignore={folder}" for folder in _GPU)]
    arguments = {
        "beside": ["-m", "not timing", *spread("loadfile"), *without_gpu],
        # Not by file: each test compiles for itself, and one file has most of them.
        "sharing": [*spread("worksteal"), *_SHARING],
        "timing": ["-m", "timing", *without_gpu],
        "alone": [*(files or _GPU), *shared],
    }
    together = [name for name in ("beside", "sharing") if name in parts]
    with ThreadPoolExecutor() as pool:
        begun = [
            pool.submit(run_pytest, _PARTS[name], arguments[name], limit_s) for name in together
        ]
        for run in as_completed(begun):
            yield run.result()
    left_s = deadline - time.monotonic()
    if "timing" in parts and left_s > 0:
        yield run_pytest(_PARTS["timing"], arguments["timing"], left_s)
    if "alone" not in parts:
        return
    gpus = torch.cuda.device_count()
    each = ["-m", "not two_gpus", *spread("loadfile", gpus)] if gpus > 1 else []
    variables = {"FTAX_TEST_GPUS": str(gpus)} if gpus > 1 else {}
    left_s = deadline - time.monotonic()
    yield run_pytest(_PARTS["alone"], [*each, *arguments["alone"]], left_s, **variables)
    left_s = deadline - time.monotonic()
    if gpus > 1 and left_s > 0:
        yield run_pytest("on two GPUs", ["-m", "two_gpus", *arguments["alone"]], left_s)


def spread(how: str, workers: int = _WORKERS) -> list[str]:
    """Arguments that spread tests over processes, if pytest-xdist is there."""
    return ["-n", str(workers), "--dist", how] if find_spec("xdist") else []


def make_figures(run: Mapping[str, Any]) -> list[Figure]:
    """None failed, and pytest says so too."""
    failed, code = float(len(run["failed"])), float(run["exit_code"])
    return [
        Figure(name=f"{run['name']}: failed", values=(failed,), unit="tests", at_most=0),
        Figure(name=f"{run['name']}: exit code", values=(code,), unit="", at_most=0),
    ]


def main() -> None:
    """Run the tests, print the table, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--memcheck", action="store_true", help="only the run under the sanitizer")
    parser.add_argument("--parts", nargs="+", choices=[*_PARTS], default=[*_PARTS])
    parser.add_argument("--files", nargs="+", default=[], help="of the part alone, only these")
    parser.add_argument("--time-limit", type=float, default=1800.0, help="seconds (1800)")
    options = parser.parse_args()
    # A shell that starts this in the background has Ctrl-C ignored, which tests would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if options.memcheck:
        finished = run_memcheck(options.time_limit)
    elif options.quick:
        finished = run_quick(options.time_limit)
    else:
        finished = run_parts(options.parts, options.files, options.time_limit)
    runs = []
    for run in finished:  # each is recorded at once: the next may be cut short
        runs.append(run)
        finish(__file__, options, make_figures(run), raw=[run])
    rows = [
        (run["name"], str(run["tests"]), str(run["passed"]), str(len(run["failed"])),
         str(len(run["skipped"])), f"{run['seconds']:.0f} s")
        for run in runs
    ]  # fmt: skip
    show("tests", ("run", "tests", "passed", "failed", "skipped", "time"), rows)
    for run in runs:
        for name, reason in run["failed"].items():
            progress(f"gpu_tests: failed: {name}: {reason.partition(chr(10))[0]}")
        if not run["in_time"]:
            progress(f"gpu_tests: {run['name']}: the time limit came first")


if __name__ == "__main__":
    main()
