"""`ftax run`: a program, as it is, and what kept its device waiting."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ftax_run import records
from ftax_run.account import Account
from ftax_run.budget import hold, read_budget
from ftax_run.errors import RunError
from ftax_run.launch import (
    ITERATION,
    add_hook,
    find_interpreter,
    make_environment,
    pass_signals,
    start,
)
from ftax_run.page import write_page
from ftax_run.report import describe, make_verdict
from ftax_run.sampler import Sampler
from ftax_run.second_run import measure, require_ftax
from ftax_run.target import list_targets
from ftax_run.timeline import write_chrome, write_speedscope
from ftax_run.watcher import Watcher

_USAGE = "ftax run [options] (script.py | -m module | -- command) [arguments]"
_TWICE = (
    "ftax run: --receipt runs the program twice, so what it writes or sends, it writes or sends "
    "again"
)
_SHOW_USAGE = "ftax run --show run.jsonl [options]"


def make_parser() -> argparse.ArgumentParser:
    """Our own options; the program's are its own."""
    parser = argparse.ArgumentParser(
        prog="ftax run", usage=f"{_USAGE}\n       {_SHOW_USAGE}", allow_abbrev=False,
        description="Runs a program unchanged and says what kept its GPU waiting, by line.",
    )  # fmt: skip
    parser.add_argument("--show", type=Path, metavar="FILE", help="report a run of before")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="append what was found")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="a page of all that was found")
    parser.add_argument(
        "--budget", type=Path, metavar="FILE",
        help="hold an iteration to the table [run] of this file; 1 if it does more",
    )  # fmt: skip
    parser.add_argument("--speedscope", type=Path, metavar="FILE", help="a flame graph of idle")
    parser.add_argument("--chrome", type=Path, metavar="FILE", help="two iterations on a timeline")
    parser.add_argument(
        "--rate", type=float, default=1000.0, metavar="HZ", help="samples a second (1000)"
    )
    parser.add_argument(
        "--iteration", metavar="MODULE:FUNCTION", default="",
        help="each call of it is an iteration, such as __main__:train_step",
    )  # fmt: skip
    parser.add_argument(
        "--receipt", action="store_true",
        help="run the program a second time, with ftax inside, and measure its hottest call",
    )  # fmt: skip
    parser.add_argument(
        "--duration", type=float, metavar="S",
        help="seconds of the receipt's rounds (25 on a CPU, 10 on a GPU)",
    )  # fmt: skip
    parser.add_argument(
        "--patience", type=float, metavar="S",
        help="seconds by which the receipt waits for a quiet machine (0)",
    )  # fmt: skip
    return parser


def split_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Ours, and the program with its own: it begins at the first word that is no option of ours."""
    takes_value = (
        "--rate", "-o", "--output", "--show", "--html", "--speedscope", "--chrome", "--duration",
        "--patience", "--iteration", "--budget",
    )  # fmt: skip
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] not in ("-m", "--"):
        place += 2 if words[place] in takes_value else 1
    return list(words[:place]), list(words[place:])


def make_command(program: list[str]) -> list[str]:
    """What is started."""
    if not program or program in (["-m"], ["--"]):
        raise RunError(f"no program is given: {_USAGE}")
    if program[0] == "--":
        return program[1:]
    if program[0] != "-m" and not Path(program[0]).exists():
        raise RunError(f"{program[0]} is not there: give a script, -m module, or -- command")
    return [find_interpreter(), *program]


def watch(command: list[str], rate: float, iteration: str = "") -> Account:
    """Run a command to its end, and say what was found."""
    folder, hook = (Path(tempfile.mkdtemp(prefix="ftax-run-")) for _ in range(2))
    environment = make_environment(folder)
    if iteration:
        environment = add_hook(hook, {**environment, ITERATION: iteration})
    try:
        program = start(command, environment)
        with pass_signals(program), Sampler(rate) as sampler:
            watcher = Watcher(program.pid, folder, sampler)
            watcher.follow(lambda: program.poll() is not None)
        account = watcher.make_account(command, program.returncode)
    finally:
        for made in (folder, hook):
            shutil.rmtree(made, ignore_errors=True)
    main = account.find_main()
    if iteration and main is not None and not main.marked:
        main.problem = (
            f"{iteration} was not called twice, or is a coroutine or a generator: iterations are "
            "what repeats in the device's work"
        )
    return account


def run(words: Sequence[str]) -> int:
    """Run or show, print, and give the program's exit code, 128 and the number for a signal."""
    mine, program = split_options(words)
    options = make_parser().parse_args(mine)
    plan = _make_plan(options)
    budget = None if options.budget is None else read_budget(options.budget)
    if options.show is not None:
        account = records.read(options.show)[-1]
    else:
        if not 1 <= options.rate <= 20_000:
            raise RunError(f"--rate is {options.rate:g}: give 1 to 20000 samples a second")
        command = make_command(program)
        if options.receipt:
            require_ftax(command)
            print(_TWICE, file=sys.stderr, flush=True)
        if options.iteration and not all(options.iteration.partition(":")):
            raise RunError(
                f"--iteration is {options.iteration!r}: give module:function, such as "
                "__main__:train_step"
            )
        account = watch(command, options.rate, options.iteration)
    # Before files are written, which may fail. Standard output is the program's.
    text = json.dumps(make_verdict(account)) if options.json else "\n".join(describe(account))
    if options.show is not None:
        print(text)
    else:
        print(f"\n{text}", file=sys.stderr, flush=True)
    for path, write in (
        (options.output, records.append), (options.html, write_page),
        (options.speedscope, write_speedscope), (options.chrome, write_chrome),
    ):  # fmt: skip
        if path is not None:
            write(account, path)
    kept, code = ([], 0) if budget is None else hold(account, budget)
    if kept:
        print("", *kept, sep="\n", file=sys.stderr, flush=True)
    if options.show is not None:
        return code
    if options.receipt:
        _measure_again(account, options.output, plan)
    return code if account.exit_code == 0 else _name_end(account)


def _name_end(account: Account) -> int:
    return account.exit_code if account.exit_code >= 0 else 128 - account.exit_code


def _make_plan(options: argparse.Namespace) -> dict[str, float]:
    """What is said of the receipt's rounds. Raises RunError for options that do not fit."""
    if options.receipt and (options.show or options.json):
        other = "--show" if options.show else "--json"
        raise RunError(f"--receipt runs a program and prints for people: leave {other} out")
    given = {"duration": options.duration, "patience": options.patience}
    for name, seconds in given.items():
        if seconds is not None and not (options.receipt and seconds > 0):
            raise RunError(f"--{name} {seconds:g}: give seconds above 0, and --receipt")
    return {f"{name}_s": seconds for name, seconds in given.items() if seconds is not None}


def _measure_again(account: Account, output: Path | None, plan: dict[str, float]) -> None:
    """The receipt of the hottest call, if the program was not ended from outside."""
    if account.exit_code < 0 and account.exit_code != -signal.SIGINT:
        name = signal.Signals(-account.exit_code).name
        print(f"\nNo receipt: the program was ended by {name}", file=sys.stderr)
        return
    print("\nSecond run, until the hottest call is measured", file=sys.stderr, flush=True)
    path = output and output.with_suffix(".receipt.jsonl")
    if problem := measure(account.command, list_targets(account), path, plan):
        print(problem, file=sys.stderr)


def main(words: Sequence[str] | None = None) -> None:
    """The command `ftax-run`, and with ``words`` that of `ftax run`."""
    try:
        sys.exit(run(sys.argv[1:] if words is None else words))
    except RunError as error:
        print(f"ftax run: {error}", file=sys.stderr)
        sys.exit(2)
