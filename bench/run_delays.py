"""Whether `ftax run` finds delays that were planted in programs.

Each program of tests/programs is watched as it is, and with a delay in each of its five places. The
place's line has to be the one whose exposed idle grew most beyond the largest of the runs without a
delay, and by the delay, as the program timed it, to 10 % or 30 us. Programs mark places where it is
not the whole delay: "# hidden", by the device; "# exposed 1/2", in one of two workers that take
turns. The iteration is compared with the program's own clock.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from ftax_run import records
from ftax_run.account import Account
from ftax_run.report import describe

from ftax.errors import RunnerError
from record import add_part_options, figure, make_parser, run_parts

PROGRAMS = Path(__file__).parents[1] / "tests" / "programs"
WATCH = (sys.executable, "-m", "ftax_run")
DELAY_US = 1000.0
_RUNS = 3  # of each program as it is
_PLANT = re.compile(r"\bplant\((\d)\)(?:  # exposed 1/(\d+))?")


def list_programs() -> list[str]:
    """The names of all."""
    return [path.stem for path in sorted(PROGRAMS.glob("*.py")) if path.stem != "support"]


def copy_programs(folder: Path) -> None:
    """With what they share among installed packages: the line that calls it is the user's."""
    shutil.copytree(PROGRAMS, folder / "programs", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "site-packages").mkdir()
    (folder / "programs" / "support.py").rename(folder / "site-packages" / "support.py")


def find_places(program: Path) -> dict[int, tuple[int, float]]:
    """Of each place its line, and the share of a delay there that the device idles for."""
    places = {}
    for number, line in enumerate(program.read_text().splitlines(), 1):
        if found := _PLANT.search(line):
            places[int(found[1])] = (number, 0 if "# hidden" in line else 1 / int(found[2] or 1))
    return places


def make_environment(folder: Path) -> dict[str, str]:
    """That of a program; one that crashes says where."""
    paths = [str(folder / "site-packages"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONFAULTHANDLER": "1"}


def watch(folder: Path, words: list[str]) -> tuple[dict[str, Any], Account]:
    """The last line that the program prints, and what was found of it."""
    record = folder / "run.jsonl"
    command = [*WATCH, "-o", str(record), "--", sys.executable, *words]
    ended = subprocess.run(
        command, cwd=folder / "programs", env=make_environment(folder), capture_output=True,
        text=True, check=False, timeout=300,
    )  # fmt: skip
    if ended.returncode:
        raise RunnerError(f"{words[0]} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    return json.loads(ended.stdout.splitlines()[-1]), records.read(record)[-1]


def sum_lines(account: Account, program: str) -> dict[int, float]:
    """Exposed idle of an iteration in microseconds, by line of the program."""
    process = account.find_main()
    if process is None or not process.windows:
        raise RunnerError(f"no device was seen in {program}")
    window, _ = process.correct()
    found: dict[int, float] = {}
    for (file, line, _), amount in window.sum_lines().items():
        if Path(file).name == program:
            found[line] = found.get(line, 0.0) + amount / max(1, window.count) / 1e3
    return found


def take(name: str, seconds: float) -> dict[str, Any]:
    """All runs of one program."""
    program = f"{name}.py"
    words = [program, "--seconds", f"{seconds:g}", "--delay-us", f"{DELAY_US:g}"]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        copy_programs(folder)
        runs = [watch(folder, words) for _ in range(_RUNS)]
        clocks_us = [said["iteration_us"] for said, _ in runs]
        accounts = [account for _, account in runs]
        lines = [sum_lines(account, program) for account in accounts]
        before = {
            line: [one.get(line, 0.0) for one in lines]
            for line in {line for one in lines for line in one}
        }
        process = accounts[0].find_main()
        assert process is not None
        window, cost = process.correct()
        iteration_us = window.wall / max(1, window.count) / 1e3
        # The program's iteration may be a part of what repeats.
        times = max(1, round(iteration_us / clocks_us[0]))
        found: dict[str, Any] = {
            "report": describe(accounts[0]), "watched_clock_us": clocks_us, "cost": cost,
            "iteration_error": iteration_us / times / clocks_us[0] - 1, "plants": {},
        }  # fmt: skip
        for place, (line, share) in find_places(PROGRAMS / program).items():
            said, planted = watch(folder, [*words, "--plant", str(place)])
            after = sum_lines(planted, program)
            grown = {key: after.get(key, 0.0) - max(before.get(key, [0.0]))
                     for key in after | before}  # fmt: skip
            largest = max(grown, key=lambda key: grown[key])
            increase = after.get(line, 0.0) - fmean(before.get(line, [0.0]))
            found["plants"][place] = {
                "line": line, "hidden": not share,
                "exposed_us": share * (said["delay_us"] or DELAY_US),
                "largest": largest, "largest_us": grown[largest] / times,
                "increase_us": increase / times,
            }  # fmt: skip
    return found


def list_figures(parts: dict[str, dict[str, Any]]) -> list[Any]:
    """Shares of the delays, and the worst programs."""
    plants = [plant for part in parts.values() for plant in part["plants"].values()]
    seen = [plant for plant in plants if not plant["hidden"]]
    hidden = [plant for plant in plants if plant["hidden"]]
    # Earlier records do not say how much: all of it.
    wanted = [plant.get("exposed_us", DELAY_US) for plant in seen]
    near = [abs(plant["increase_us"] - amount) <= max(30, 0.1 * amount)
            for plant, amount in zip(seen, wanted, strict=True)]  # fmt: skip
    largest = [plant["line"] == plant["largest"] for plant in seen]
    figures = [
        figure("delays whose line grew most", 100 * sum(largest) / max(1, len(seen)), "%",
               at_least=100),
        figure("delays found to 10 % or 30 us", 100 * sum(near) / max(1, len(seen)), "%",
               at_least=100),
        figure("iteration against the program's clock, worst",
               100 * max(abs(part["iteration_error"]) for part in parts.values()), "%", at_most=1),
    ]  # fmt: skip
    if hidden:
        worst = max(abs(plant["increase_us"]) for plant in hidden)
        figures.append(figure("hidden delays, most that is shown", worst, "us", at_most=30))
    return figures


def main() -> None:
    """Run, print, save."""
    parser = make_parser(__doc__)
    add_part_options(parser, duration_s=8.0)
    options = parser.parse_args()
    wanted = {name: (lambda name=name: take(name, options.duration)) for name in list_programs()}
    run_parts(__file__, wanted, options, list_figures)


if __name__ == "__main__":
    main()
