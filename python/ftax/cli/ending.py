"""How a command ends: what it raised becomes a sentence, or a short report, and an exit code.

Typer's own way of ending is not used. It gives 1, which is `ftax compare`'s word for slower, to a
broken pipe and to whatever nobody foresaw; a gate would take both for an answer. What is left to
Python, 1 as well, is only what fails before this file is imported.
"""

from __future__ import annotations

import errno
import functools
import os
import platform
import re
import select
import signal
import sys
import traceback
import warnings
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, TextIO

import typer

from ftax.errors import (
    FtaxError,
    RunnerError,
    UnavailableError,
    UnsupportedError,
    describe,
    describe_fault,
    is_out_of_memory,
    shorten,
)
from ftax.reports.terminal import drop_bad_sizes, keep_results_apart, say

WRONG, LACKING, FAILED, UNSURE = 2, 3, 4, 5
UNFORESEEN = 70  # EX_SOFTWARE in sysexits.h
_MOST_CHARACTERS = 1000  # of one sentence; FTAX_TRACEBACK=1 has the rest
INTERRUPTED = 128 + signal.SIGINT
_UNHEARD = 128 + signal.SIGPIPE  # whoever read the output has gone

# What typer raises for wrong usage. Its home differs between versions of typer, its heir's not.
_UsageError: Any = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)
# The paths and the disk are the user's; other failures of the system are nobody's to foresee.
_OF_THE_DISK = {
    errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENAMETOOLONG, errno.ENOSPC,
    errno.EPERM, errno.EROFS,
}  # fmt: skip
_KEYWORD = re.compile(r"\b([a-z_]+)='([\w.:-]+)'")  # as errors name what to give in Python
_PACKAGE = Path(__file__).parents[1]


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Run the command that ``arguments`` name; its exit code."""
    _prepare_streams()
    drop_bad_sizes(os.environ)  # typer's help reads them too, and so do workers
    try:
        code = _run(app, arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BaseException as error:
        code = _end(error, app)
    _let_go(sys.stdout, 1)
    _let_go(sys.stderr, 2)
    return code


def _run(app: typer.Typer, arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        if "_FTAX_COMPLETE" in os.environ:  # a shell asks what could come next
            command.main(arguments, prog_name="ftax")
        context = command.make_context("ftax", arguments)
    except typer.Exit as end:  # --help, --version
        return end.exit_code
    except SystemExit as end:  # typer's way to end what it does for a shell
        if end.code:
            raise
        return 0
    try:
        # Typer prints the help of a command itself.
        apart = nullcontext() if "--help" in arguments else keep_results_apart()
        with context, apart:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    return 0


def _end(error: BaseException, app: typer.Typer) -> int:
    """Say what ended the command, if anybody hears it."""
    code, text = UNFORESEEN, f"ftax: {type(error).__name__}"  # of an error that cannot be told
    with suppress(Exception):
        code, text = _explain(error)
        if isinstance(error, FtaxError):
            text = _KEYWORD.sub(functools.partial(_name_option, _list_options(app)), text)
    try:
        if text:
            say(text)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (OSError, ValueError):  # a full disk, or nobody there, behind standard error
        pass
    return code


def _list_options(app: typer.Typer) -> set[str]:
    """Of all commands: "--device"."""
    commands: Any = typer.main.get_command(app)
    return {
        option
        for command in commands.commands.values()
        for parameter in command.params
        for option in parameter.opts
    }


def _name_option(options: set[str], keyword: re.Match[str]) -> str:
    """What the command has in the place of a keyword of Python's."""
    option = f"--{keyword[1].replace('_', '-')}"
    return f"{option} {keyword[2]}" if option in options else keyword[0]


def _explain(error: BaseException) -> tuple[int, str]:
    if isinstance(error, _UsageError):
        said, place = error.format_message(), getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":  # the help itself, or nothing
            return WRONG, said
        hint = f"; see `{place.command_path} --help`" if place is not None else ""
        return WRONG, f"ftax: {said.rstrip('.')}{hint}"
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return INTERRUPTED, f"ftax: {str(error) or 'interrupted'}; the same command starts again"
    if isinstance(error, BrokenPipeError) and _has_lost_its_reader():
        return _UNHEARD, ""
    if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
        return _UNHEARD, ""  # how rich ends while it prints the help
    if isinstance(error, FtaxError):
        said = shorten(" ".join(str(error).splitlines()), _MOST_CHARACTERS)
        return choose_code(error), "\n".join((f"ftax: {said}", *_tell_all(error)))
    if is_out_of_memory(error):
        return FAILED, f"ftax: {describe(error)}"
    if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
        what = error.filename if error.filename is not None else "the output"
        return WRONG, (
            f"ftax: {what}: {error.strerror}; choose a path that can be written, or make room"
        )
    return UNFORESEEN, _report(error)


def choose_code(error: FtaxError) -> int:
    """The exit code of an error of ftax."""
    if isinstance(error, (UnavailableError, UnsupportedError)):
        return LACKING
    return FAILED if isinstance(error, RunnerError) else WRONG


def _report(error: BaseException) -> str:
    """What happened, where, with which versions, and what to do."""
    lines = [f"ftax: this was not foreseen, and is a fault of ftax: {describe_fault(error)}"]
    if place := _find_place(error):
        lines.append(f"  in {place}")
    lines.append(f"  {describe_versions()}")
    lines.append("  please report it, with the command and what FTAX_TRACEBACK=1 makes of it")
    return "\n".join((*lines, *_tell_all(error)))


def _tell_all(error: BaseException) -> list[str]:
    """The error with its traceback and all that it came from, where the environment asks for it."""
    if not os.environ.get("FTAX_TRACEBACK"):
        return []
    return ["".join(traceback.format_exception(error)).rstrip()]


def _find_place(error: BaseException) -> str | None:
    """The last line of ftax that the error came through, beside this file's own."""
    found = None
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE) and path != Path(__file__):
            found = f"ftax/{path.relative_to(_PACKAGE)}, line {frame.lineno}, {frame.name}"
    return found


def _prepare_streams() -> None:
    # A closed standard stream leaves its number to the next file that is opened, and what a library
    # prints would go into it.
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a locale without our letters
    warnings.showwarning = _show_warning


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Libraries warn of what models do, in the models' words."""
    text = warnings.formatwarning(message, category, filename, lineno, line)
    if file is None:
        say(text, end="")
    else:
        file.write(text)


def _has_lost_its_reader() -> bool:
    """Whether it is our output that is broken, and no pipe to another process."""
    outputs = select.poll()
    for descriptor in (1, 2):
        outputs.register(descriptor, 0)  # errors alone
    return any(event & select.POLLERR for _, event in outputs.poll(0))


def _let_go(stream: TextIO | None, descriptor: int) -> None:
    """What cannot be written now must not be tried again when Python ends: that would change the
    exit code."""
    try:
        if stream is not None:
            stream.flush()
    except (OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)


# --- versions -------------------------------------------------------------------------------------


def describe_versions() -> str:
    """``ftax 0.1.0 (CPU build), torch 2.13.0+cpu (CPU build), Python 3.11.7, Linux x86_64``.

    Torch's kind and ftax's are said apart. An ftax whose build found no nvcc has no CUDA parts,
    whatever torch has.
    """
    import torch

    from ftax import _build_info as built

    return (
        f"ftax {built.VERSION} ({_describe(built.TORCH_CUDA if built.WITH_CUDA else None)}), "
        f"torch {torch.__version__} ({_describe(torch.version.cuda)}), "
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )


def _describe(cuda: str | None) -> str:
    return f"CUDA {cuda} build" if cuda else "CPU build"


def show_version(given: bool) -> None:
    """The callback of ``--version``: print and end."""
    if given:
        say(describe_versions(), error=False)
        raise typer.Exit
