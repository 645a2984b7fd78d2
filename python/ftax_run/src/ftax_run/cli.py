"""`ftax run`: a program, as it is, and what kept its device waiting."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

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
    raise_limit_of_files,
    start,
)
from ftax_run.page import write_page
from ftax_run.report import describe, make_verdict
from ftax_run.sampler import Sampler
from ftax_run.second_run import measure, require_ftax
from ftax_run.target import list_targets
from ftax_run.timeline import write_chrome, write_speedscope
from ftax_run.watcher import Watcher

_USAGE = "ftax run [options] (script.py | -m module | -c code | -- command) [arguments]"
_OF_PYTHON = ("-m", "-c", "-")  # with which Python is told what to run
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
        help="each call of it, from the second on, is an iteration: __main__:train_step",
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
    while place < len(words) and words[place].startswith("-"):
        if words[place] in (*_OF_PYTHON, "--"):
            break
        place += 2 if words[place] in takes_value else 1
    return list(words[:place]), list(words[place:])


def make_command(program: list[str]) -> list[str]:
    """What is started."""
    if not program or program in (["-m"], ["-c"], ["--"]):
        raise RunError(f"no program is given: {_USAGE}")
    if program[0] == "--":
        return program[1:]
    if program[0] not in _OF_PYTHON and not Path(program[0]).exists():
        raise RunError(f"{program[0]} is not there: give a script, -m module, or -- command")
    return [find_interpreter(), *program]


def watch(command: list[str], rate: float, iteration: str = "") -> Account:
    """Run a command to its end, and say what was found."""
    folder, hook = (Path(tempfile.mkdtemp(prefix="ftax-run-")) for _ in range(2))
    environment = make_environment(folder)
    if iteration:
        environment = add_hook(hook, {**environment, ITERATION: iteration})
    try:
        with Sampler(rate) as sampler, pass_signals() as pass_to:
            program = start(command, environment)
            pass_to(program)
            account = _follow(program, command, folder, sampler)
    finally:
        for made in (folder, hook):
            shutil.rmtree(made, ignore_errors=True)
    main = account.find_main()
    if iteration and main is not None and not main.marked:
        main.problem = (
            f"{iteration} was not seen to be called twice: name a plain function as its code does "
            "(outer.<locals>.inner of a closure), no coroutine or generator"
        )
    return account


def _follow(program: Popen[bytes], command: list[str], folder: Path, sampler: Sampler) -> Account:
    """If watching fails, the program still runs to its end, and its exit code is given."""
    watcher, began = Watcher(program.pid, folder, sampler), time.monotonic()
    problem = ""
    try:
        raise_limit_of_files()
        watcher.follow(lambda: program.poll() is not None)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        problem = (
            f"Watching ended after {time.monotonic() - began:.1f} s, and the program went on: "
            f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        )
        program.wait()
    account = watcher.make_account(command, program.returncode)
    account.problem = problem
    return account


def run(words: Sequence[str]) -> int:
    """Run or show, print, and give the program's exit code, a signal's number below 0."""
    mine, program = split_options(words)
    options = make_parser().parse_args(mine)
    plan = _make_plan(options)
    budget = None if options.budget is None else read_budget(options.budget)
    outputs: list[tuple[Path | None, str, Callable[[Account, Path], None]]] = [
        (options.output, records.PREFIX, records.append),
        (options.html, "<", write_page),
        (options.speedscope, "{", write_speedscope),
        (options.chrome, "{", write_chrome),
    ]
    for path, begins, _ in outputs:
        if path is not None:
            records.check_output(path, begins)
    if options.show is not None:
        account = records.read(options.show)[-1]
    else:
        account = _watch_program(options, program)
    text = json.dumps(make_verdict(account)) if options.json else "\n".join(describe(account))
    if options.show is not None:
        print(text)
    else:  # standard output is the program's
        _say(f"\n{text}")
    code = 0
    for path, _, write in outputs:
        try:
            if path is not None:
                write(account, path)
        except RunError as error:  # what else there is to write is still written
            _say(f"ftax run: {error}")
            code = 2
    if budget is not None:
        kept, held = hold(account, budget)
        _say("\n".join(["", *kept]) if kept else "")
        code = code or held
    if options.show is not None:
        return code
    if options.receipt:
        _measure_again(account, options.output, plan)
    return account.exit_code or code


def _say(text: str) -> None:
    """To people. Nothing is lost if there is no place to say it: closed, or a full disk."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


def _watch_program(options: argparse.Namespace, program: list[str]) -> Account:
    """Raises RunError for what cannot be started."""
    if not 1 <= options.rate <= 20_000:
        raise RunError(f"--rate is {options.rate:g}: give 1 to 20000 samples a second")
    command = make_command(program)
    if options.receipt:
        require_ftax(command)
        _say(_TWICE)
    if options.iteration and not all(options.iteration.partition(":")):
        raise RunError(
            f"--iteration is {options.iteration!r}: give module:function, such as "
            "__main__:train_step"
        )
    return watch(command, options.rate, options.iteration)


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
        _say(f"\nNo receipt: the program was ended by {name}")
        return
    _say("\nSecond run, until the hottest call is measured")
    path = output and output.with_suffix(".receipt.jsonl")
    if problem := measure(account.command, list_targets(account), path, plan):
        _say(problem)


def main(words: Sequence[str] | None = None) -> None:
    """The command `ftax-run`, and with ``words`` that of `ftax run`. It ends as the program did: a
    shell's loop goes on after an exit code, and not after Ctrl-C."""
    try:
        code = run(sys.argv[1:] if words is None else words)
    except RunError as error:
        _say(f"ftax run: {error}")
        code = 2
    if code < 0:
        _end_by_signal(-code)
    sys.exit(code)


def _end_by_signal(number: int) -> None:
    """The core that the program may have left is not overwritten by one of this process."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or full
            stream.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
