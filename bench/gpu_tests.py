"""The whole test suite where a GPU is required, as a record: how many passed, failed and skipped.

A skip for want of a GPU is a failure here (FTAX_REQUIRE_GPU=1). The surprising choice: two runs.
Tests of the GPU have it to themselves, one after the other, since they check times; all the others
share the CPUs if pytest-xdist is there. With `--memcheck` the tests of launches run once more under
compute-sanitizer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from record import Figure, finish, make_parser, progress, show

from ftax.errors import RunnerError, UnavailableError

_TESTS = Path(__file__).resolve().parents[1] / "tests"
_WORKERS = 7
_NOT_TIMES = "not watchdog and not queue and not longer and not order and not slower"
_GPU = ("tests/cuda", "tests/gpu")
_MEMCHECK = ("tests/cuda/test_launch_replay.py", "tests/cuda/test_gate.py")


def run_pytest(name: str, arguments: Sequence[str], launcher: Sequence[str] = ()) -> dict[str, Any]:
    """Totals of one run of pytest, and the names of what failed."""
    progress(f"gpu_tests: {name}")
    with tempfile.TemporaryDirectory(prefix="ftax-tests-") as folder:
        report = Path(folder) / "junit.xml"
        started = time.monotonic()
        ended = subprocess.run(
            [*launcher, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
             "-W", "ignore::pytest.PytestWarning", f"--junitxml={report}", *arguments],
            cwd=_TESTS.parent,
            env={**os.environ, "FTAX_REQUIRE_GPU": "1", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        if not report.exists():
            tail = " ".join((ended.stderr or ended.stdout).strip().splitlines()[-2:])
            raise RunnerError(f"pytest left no report, exit code {ended.returncode}: {tail}")
        return {
            "name": name,
            "exit_code": ended.returncode,
            "seconds": time.monotonic() - started,
            **read_report(report),
        }


def read_report(path: Path) -> dict[str, Any]:
    """Totals of a JUnit report."""
    cases = list(xml.parse(path).getroot().iter("testcase"))
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
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
    }


def run_memcheck() -> dict[str, Any]:
    """The tests of launches under compute-sanitizer, which fails the run for any error it sees."""
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        raise UnavailableError("compute-sanitizer is not on the PATH; install the CUDA toolkit")
    launcher = [sanitizer, "--tool", "memcheck", "--target-processes", "all", "--error-exitcode",
                "99", "--report-api-errors", "no"]  # fmt: skip
    return run_pytest("memcheck", ["-k", _NOT_TIMES, *_MEMCHECK], launcher)


def main() -> None:
    """Run the tests, print the table, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--memcheck", action="store_true", help="only the run under the sanitizer")
    options = parser.parse_args()
    if options.memcheck:
        runs = [run_memcheck()]
    else:
        share = ["-n", str(_WORKERS), "--dist", "loadfile"] if find_spec("xdist") else []
        quick = (
            ["tests/test_gate.py"]
            if options.quick
            else ["tests", *(f"--ignore={folder}" for folder in _GPU)]
        )
        runs = [run_pytest("beside the GPU", [*share, *quick])]
        gpu = ["tests/cuda/test_gate.py"] if options.quick else [*_GPU]
        runs.append(run_pytest("on the GPU", gpu))
    rows = [
        (run["name"], str(run["tests"]), str(run["passed"]), str(len(run["failed"])),
         str(len(run["skipped"])), f"{run['seconds']:.0f} s")
        for run in runs
    ]  # fmt: skip
    show("tests", ("run", "tests", "passed", "failed", "skipped", "time"), rows)
    for run in runs:
        for name in run["failed"]:
            progress(f"gpu_tests: failed: {name}")
    figures = [
        Figure(name=f"{run['name']}: failed", values=(float(len(run["failed"])),), unit="tests",
               at_most=0)
        for run in runs
    ]  # fmt: skip
    figures += [
        Figure(name=f"{run['name']}: exit code", values=(float(run["exit_code"]),), unit="",
               at_most=0)
        for run in runs
    ]  # fmt: skip
    finish(__file__, options, figures, raw=runs)


if __name__ == "__main__":
    main()
