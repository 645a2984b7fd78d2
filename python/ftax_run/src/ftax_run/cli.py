"""`ftax run`: a program, as it is, and what kept its device waiting."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ftax_run.errors import RunError
from ftax_run.launch import find_interpreter, make_environment, pass_signals, start
from ftax_run.report import describe
from ftax_run.sampler import Sampler
from ftax_run.watcher import Watcher

_USAGE = "ftax run [options] (script.py | -m module | -- command) [arguments]"


def make_parser() -> argparse.ArgumentParser:
    """Our own options; the program's are its own."""
    parser = argparse.ArgumentParser(
        prog="ftax run", usage=_USAGE, allow_abbrev=False,
        description="Runs a program unchanged and says what kept its GPU waiting, by line.",
    )  # fmt: skip
    parser.add_argument("-m", dest="module", action="store_true", help="run a module")
    parser.add_argument("--rate", type=float, default=1000.0, help="samples a second (1000)")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def split_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Ours, and the program with its own."""
    takes_value = ("--rate", "-o", "--output")
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] not in ("-m", "--"):
        place += 2 if words[place] in takes_value else 1
    return list(words[:place]), list(words[place:])


def make_command(program: list[str], own: str | None) -> list[str]:
    """What is started."""
    if not program or program in (["-m"], ["--"]):
        raise RunError(f"no program is given: {_USAGE}")
    if program[0] == "--":
        return program[1:]
    if program[0] != "-m" and not Path(program[0]).exists():
        raise RunError(f"{program[0]} is not there: give a script, -m module, or -- command")
    return [find_interpreter(own), *program]


def run(words: Sequence[str], own: str | None = None) -> int:
    """Run, print, and give the program's exit code."""
    mine, program = split_options(words)
    options = make_parser().parse_args(mine)
    if not 1 <= options.rate <= 20_000:
        raise RunError(f"--rate is {options.rate:g}: give 1 to 20000 samples a second")
    command = make_command(program, own)
    folder = Path(tempfile.mkdtemp(prefix="ftax-run-"))
    try:
        started = start(command, make_environment(folder))
        with pass_signals(started), Sampler(options.rate) as sampler:
            watcher = Watcher(started.pid, folder, sampler)
            watcher.follow(lambda: started.poll() is not None)
        print("\n".join(["", *describe(watcher)]), file=sys.stderr, flush=True)
        code = started.returncode
        return code if code >= 0 else 128 - code
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """The command `ftax-run`."""
    try:
        sys.exit(run(sys.argv[1:]))
    except RunError as error:
        print(f"ftax run: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
