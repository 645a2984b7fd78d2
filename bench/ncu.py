"""Kernel durations as ncu measures them: one inference between cudaProfilerStart and -Stop.

The surprising choice: whatever goes wrong comes back as a reason. ncu may be missing, or the
driver may keep its counters for administrators, and neither is a fault of what is measured.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_METRIC = "gpu__time_duration.sum"
_UNITS_NS = {
    "ns": 1.0,
    "nsecond": 1.0,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "s": 1e9,
    "second": 1e9,
}
# Clocks and caches as they come, as in the traces that this is compared with.
_FLAGS = (
    "--cache-control=none",
    "--clock-control=none",
    "--profile-from-start=off",
    "--target-processes=application-only",
    "--print-kernel-base=mangled",
    "--print-units=base",
    "--csv",
    f"--metrics={_METRIC}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """Kernels in the order of their launches: mangled names, and ns. If there are none, why."""

    names: tuple[str, ...] = ()
    durations_ns: tuple[float, ...] = ()
    reason: str = ""


def profile_code(code: str, *, timeout_s: float) -> Profiled:
    """Run ``python -c code`` under ncu."""
    program = shutil.which("ncu")
    if program is None:
        return Profiled(reason="ncu is not on PATH")
    with tempfile.TemporaryDirectory(prefix="ftax-ncu-") as folder:
        log = Path(folder) / "kernels.csv"
        command = [program, *_FLAGS, f"--log-file={log}", sys.executable, "-c", code]
        exit_code, printed = _run(command, timeout_s)
        lines = log.read_text().splitlines() if log.exists() else []
    if exit_code is None:
        return Profiled(reason=f"ncu had not ended after {timeout_s:.0f} s")
    if exit_code != 0:
        return Profiled(reason=_find_reason([*printed.splitlines(), *lines], exit_code))
    return parse(lines)


def _run(command: Sequence[str], timeout_s: float) -> tuple[int | None, str]:
    """Exit code, None for too late, and standard error. A session of its own, since what ncu has
    started would outlive it."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, printed = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
    return process.returncode, printed


def _find_reason(lines: Sequence[str], exit_code: int) -> str:
    """ncu's own error if there is one, else the last line; without folders."""
    errors = [line for line in lines if line.startswith("==ERROR==")]
    told = [*(line for line in lines if line.strip())][-1:]
    text = (errors or told or ["it printed nothing"])[0].removeprefix("==ERROR==").strip()
    return f"ncu ended with exit code {exit_code}: {re.sub(r'/[^ ]*/', '', text)}"


def parse(lines: Sequence[str]) -> Profiled:
    """Read ncu's log: its own remarks begin with ==, and the table with its header."""
    starts = [place for place, line in enumerate(lines) if line.startswith('"ID"')]
    if not starts:
        return Profiled(reason=_find_reason(lines, 0))
    table = [line for line in lines[starts[0] :] if line.startswith('"')]
    names, durations = [], []
    for row in csv.DictReader(table):
        if row.get("Metric Name") != _METRIC:
            continue
        unit = row["Metric Unit"]
        if unit not in _UNITS_NS:
            known = ", ".join(_UNITS_NS)
            return Profiled(reason=f"ncu gave a duration in {unit!r}; known units are {known}")
        value = row["Metric Value"].replace(",", "")
        try:
            durations.append(float(value) * _UNITS_NS[unit])
        except ValueError:
            return Profiled(reason=f"ncu gave {value!r} as a duration of {row['Kernel Name']}")
        names.append(row["Kernel Name"])
    if not names:
        return Profiled(reason=f"ncu's table has no row of {_METRIC}")
    return Profiled(names=tuple(names), durations_ns=tuple(durations))
