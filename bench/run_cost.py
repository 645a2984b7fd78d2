"""What watching a program by `ftax run` costs it.

Each program of tests/programs runs twice at the same time, once as it is and once watched, and all
processes of one are stopped while the other goes on, for some 0.5 s a turn: so both meet the same
neighbours and the same speed of the machine. A turn of the watched one is compared with the mean of
the turns before and after it; the cost is the mean of all, without a tenth at either end. The
watch's clock goes on while it is stopped: it records each kernel for a larger share of the time
than in a usual run.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from run_delays import WATCH, copy_programs, list_programs, make_environment

from ftax.errors import RunnerError
from record import add_part_options, figure, make_parser, run_parts

_TURN_S = (0.3, 0.7)  # of any length, so that turns of the watch fall into all of them
_START_S = 120.0
_PARTS = 5  # of a study, whose means tell its error
_LEAST_US = 1000.0  # shorter iterations may cost more


class Program:
    """One that runs, with all the processes that it starts; those are stopped or go on."""

    def __init__(self, folder: Path, words: list[str], name: str) -> None:
        self._stamps, self._errors = folder / name, folder / f"errors of {name}"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*words, "--seconds", "1e6", "--stamps", str(self._stamps)],
                cwd=folder / "programs", stdout=subprocess.DEVNULL, stderr=errors,
                env={**make_environment(folder), "TMPDIR": str(folder)}, start_new_session=True,
            )  # fmt: skip

    def wait(self) -> None:
        """Until iterations are counted."""
        end = time.monotonic() + _START_S
        while not self.list_starts().size:
            self.check()
            if time.monotonic() > end:
                raise RunnerError(f"the program did not warm up within {_START_S:g} s")
            time.sleep(0.1)

    def check(self) -> None:
        """Raise if it has ended, which it does not do unasked."""
        if self._process.poll() is not None:
            raise RunnerError(f"the program ended: {self._errors.read_text()[-2000:]}")

    def signal(self, number: int) -> None:
        """Send it to all."""
        os.killpg(self._process.pid, number)

    def end(self) -> None:
        """Kill it, stopped or not."""
        with suppress(ProcessLookupError):  # it has ended
            self.signal(signal.SIGKILL)
        self._process.wait()

    def list_starts(self) -> np.ndarray:
        """When each iteration began, in ns; where several processes count theirs, of one."""
        files = sorted(self._stamps.parent.glob(f"{self._stamps.name}.*"))
        content = files[0].read_bytes() if files else b""
        return np.frombuffer(content[: len(content) // 8 * 8], dtype=np.int64)


@contextmanager
def start(folder: Path, words: list[str], name: str) -> Iterator[Program]:
    """It ends with the context."""
    program = Program(folder, words, name)
    try:
        yield program
    finally:
        program.end()


def take_turn(program: Program) -> tuple[int, int]:
    """Let it go on for a while; from when to when."""
    program.signal(signal.SIGCONT)
    begin = time.monotonic_ns()
    time.sleep(random.uniform(*_TURN_S))
    end = time.monotonic_ns()
    program.check()
    program.signal(signal.SIGSTOP)
    return begin, end


def time_iteration(starts: np.ndarray, turn: tuple[int, int]) -> float:
    """The mean of those that are in a turn, in microseconds; NaN where there are too few."""
    inside = starts[(starts >= turn[0]) & (starts < turn[1])]
    return float(inside[-1] - inside[0]) / (len(inside) - 1) / 1e3 if len(inside) > 2 else np.nan


def compare_turns(plain_us: list[float], watched_us: list[float]) -> list[float]:
    """How many times as long each watched turn took as the two beside it; ``plain_us`` has one
    more."""
    beside = [(before + after) / 2 for before, after in itertools.pairwise(plain_us)]
    ratios = [one / two for one, two in zip(watched_us, beside, strict=True)]
    return [ratio for ratio in ratios if not np.isnan(ratio)]


def take(name: str, seconds: float, device: str) -> dict[str, Any]:
    """Ratios of all turns of one program."""
    command = [sys.executable, f"{name}.py", "--device", device]
    with tempfile.TemporaryDirectory() as made, ExitStack() as running:
        folder = Path(made)
        copy_programs(folder)
        plain = running.enter_context(start(folder, command, "plain"))
        plain.wait()
        plain.signal(signal.SIGSTOP)
        watch = [*WATCH, "-o", str(folder / "run.jsonl"), "--", *command]
        watched = running.enter_context(start(folder, watch, "watched"))
        watched.wait()
        watched.signal(signal.SIGSTOP)
        turns: dict[Program, list[tuple[int, int]]] = {plain: [take_turn(plain)], watched: []}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for program in (watched, plain):
                turns[program].append(take_turn(program))
        plain_us, watched_us = (
            [time_iteration(program.list_starts(), turn) for turn in turns[program]]
            for program in (plain, watched)
        )
    ratios = compare_turns(plain_us, watched_us)
    if len(ratios) < 3 * _PARTS:
        raise RunnerError(f"{name}: {len(ratios)} turns with iterations; give a longer --duration")
    size = len(ratios) // _PARTS
    means = [trim(ratios[start : start + size]) for start in range(0, _PARTS * size, size)]
    return {
        "iteration_us": float(np.nanmedian(plain_us)), "cost": trim(ratios) - 1,
        "error": stdev(means) / _PARTS**0.5, "ratios": ratios,
    }  # fmt: skip


def trim(ratios: list[float]) -> float:
    """The mean without a tenth at either end, at least one."""
    left_out = max(1, len(ratios) // 10)
    return fmean(sorted(ratios)[left_out:-left_out])


def list_figures(parts: dict[str, dict[str, Any]]) -> list[Any]:
    """The cost of each, and the worst."""
    figures = [figure(f"{name}, longer while watched", 100 * part["cost"], "%")
               for name, part in parts.items()]  # fmt: skip
    asked = [part["cost"] for part in parts.values() if part["iteration_us"] >= _LEAST_US]
    if asked:
        figures.append(figure("worst of 1 ms and more", 100 * max(asked), "%", at_most=5))
    return figures


def main() -> None:
    """Run, print, save."""
    parser = make_parser(__doc__)
    add_part_options(parser, duration_s=30.0)
    options = parser.parse_args()
    wanted = {name: (lambda name=name: take(name, options.duration, options.device))
              for name in list_programs()}  # fmt: skip
    run_parts(__file__, wanted, options, list_figures)


if __name__ == "__main__":
    main()
