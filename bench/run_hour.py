"""Whether `ftax run` takes no more memory and disk after an hour than after ten minutes.

A training loop of tests/programs runs at eight times the usual sampling rate. Each minute has the
median of the watcher's resident memory and of the room that the folder of records takes, read every
5 s. Minute 10 and the last have to be equal within 1 MB.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ftax_run import records
from run_delays import copy_programs

from ftax.errors import RunnerError
from record import figure, finish, make_parser, progress

RATE_HZ = 8000
_READ_EVERY_S = 5.0
_SETTLED = 10  # minutes
_MB = 1e6


def read_memory_mb(pid: int) -> float:
    """What a process has in memory."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 / _MB if found else 0.0


def read_room_mb(folder: Path) -> float:
    """What the files below a folder take of the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*")) / _MB


def follow(run: subprocess.Popen[str], folder: Path, minutes: int) -> list[dict[str, float]]:
    """The medians of each minute."""
    found = []
    start = time.monotonic()
    for minute in range(1, minutes + 1):
        memory, room = [], []
        while time.monotonic() < start + 60 * minute and run.poll() is None:
            memory.append(read_memory_mb(run.pid))
            room.append(read_room_mb(folder))
            time.sleep(_READ_EVERY_S)
        if run.poll() is not None:
            raise RunnerError(f"the run ended in minute {minute}, with {run.returncode}")
        found.append({"memory_mb": statistics.median(memory), "folder_mb": statistics.median(room)})
        progress(f"minute {minute}: {json.dumps(found[-1])}")
    return found


def take(program: str, minutes: int, device: str) -> dict[str, Any]:
    """One run of ``minutes``, and half a minute more."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        copy_programs(folder)
        (folder / "tmp").mkdir()
        record = folder / "run.jsonl"
        command = [
            sys.executable, "-m", "ftax_run", "--rate", str(RATE_HZ), "-o", str(record), "--",
            sys.executable, f"{program}.py", "--device", device,
            "--seconds", str(60 * minutes + 30),
        ]  # fmt: skip
        environment = {**os.environ, "TMPDIR": str(folder / "tmp"),
                       "PYTHONPATH": str(folder / "site-packages")}  # fmt: skip
        with subprocess.Popen(
            command, cwd=folder / "programs", env=environment, stdout=subprocess.PIPE, text=True
        ) as run:
            try:
                found = follow(run, folder / "tmp", minutes)
            except BaseException:
                run.terminate()
                raise
            said, _ = run.communicate()
        (account,) = records.read(record)
    return {
        "program": program, "minutes": found, "said": json.loads(said.splitlines()[-1]),
        "samples": account.samples, "torn": account.torn, "lost": account.lost,
    }  # fmt: skip


def main() -> None:
    """Run, print, save."""
    parser = make_parser(__doc__)
    parser.add_argument("--minutes", type=int, default=60, help="how long it is watched")
    parser.add_argument("--program", default="train_fed", help="of tests/programs")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    minutes = 2 if options.quick else options.minutes
    if minutes < 2:
        parser.error(f"--minutes is {minutes}: give 2 or more: two of them are compared")
    found = take(options.program, minutes, options.device)
    settled, last = found["minutes"][min(_SETTLED, minutes // 2) - 1], found["minutes"][-1]
    figures = [
        figure(f"{name} of the last minute, less that of an earlier one", last[key] - settled[key],
               "MB", at_least=-1, at_most=1)
        for name, key in (("memory", "memory_mb"), ("folder", "folder_mb"))
    ]  # fmt: skip
    finish(__file__, options, figures, raw=found)


if __name__ == "__main__":
    main()
