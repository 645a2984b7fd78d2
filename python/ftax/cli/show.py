"""Results in the format that was asked for, kept whatever comes.

What comes after measuring may fail, and costs nothing that was measured. Records that cannot be
saved are shown, and kept elsewhere; and whoever presses Ctrl-C reads what there is, where it is,
and how to go on.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from ftax.cli.options import Output
from ftax.errors import FtaxError, InvalidArgumentError, ResultsError, UnavailableError, say_count
from ftax.records.result import Shown
from ftax.records.store import Storable, append_record, make_line
from ftax.reports.table import Printout, Rows
from ftax.reports.terminal import say, show_on_stdout
from ftax.timing.interrupts import hold, take

if TYPE_CHECKING:
    from ftax.instruments.trace.records import Trace
    from ftax.ladders.receipt import Receipt
    from ftax.sweeps.processes import JobRuns

_AGAIN = "and the same command measures all of it"


def show(what: Shown | Printout | Rows, form: Output = Output()) -> None:  # noqa: B008  (frozen)
    """Print it as CSV or Markdown, or for people; nothing where standard output has the records."""
    if is_stdout(form.json):
        return
    if isinstance(what, Rows):
        what = Printout(tables=(what,))
    drawn = what if isinstance(what, Printout) else what.draw()
    if form.csv:
        say(drawn.to_numbers().to_csv(), error=False, end="")
    elif form.markdown:
        say(drawn.to_markdown(), error=False, end="")
    else:
        show_on_stdout(drawn)


def show_receipt(receipt: Receipt, form: Output, *, everything: bool, is_saved: bool) -> None:
    """Print its first screen or, if ``everything`` is asked for, all of it; and keep it for `ftax
    show`, which prints the last one."""
    is_kept = keep_last(receipt)
    more = "ftax show --all" if is_kept else "the same command with --all"
    saved = "Kept until the next (--json FILE saves it)." if is_kept else ""
    saved = f"Saved in {form.json}." if is_saved else saved
    if everything or is_stdout(form.json):
        show(receipt.details, form)
    else:
        legend = not (form.csv or form.markdown) and explain_once(receipt.ladder.name)
        show(receipt.draw(saved=saved, more=more, legend=legend), form)


def find_last() -> Path:
    """Where the last receipt of the command line is kept."""
    from ftax.runtimes.cache import cache_root

    return cache_root() / "last.jsonl"


def keep_last(receipt: Storable) -> bool:
    """Keep it until the next one; False where nothing can be written."""
    last = find_last()
    try:
        last.parent.mkdir(parents=True, exist_ok=True)
        os.replace(_write_apart(last.parent, last.name, [receipt]), last)
    except (FtaxError, OSError):
        return False
    return True


def explain_once(ladder: str) -> bool:
    """Whether the lines of that ladder were never explained on this machine; from now on they
    were."""
    try:
        (find_last().parent / f"explained-{ladder}").touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True  # and again the next time
    return True


def write_traces(traces: Sequence[Trace], path: Path) -> None:
    """Write traces for a trace viewer."""
    from ftax.instruments.trace.chrome import write_chrome_trace

    if not traces:
        raise UnavailableError(
            f"there is no trace to write to {path}: none was taken, as the receipt says"
        )
    try:
        write_chrome_trace(traces, path)
    except OSError as error:
        raise InvalidArgumentError(
            f"{path}: {error.strerror or error}; choose a path that can be written"
        ) from error


@contextmanager
def keep_rounds(path: Path | None) -> Iterator[Callable[[Storable], None]]:
    """What keeps a receipt beside the results file (or among temporary files) until the command is
    done, so that a fault of a runtime while it is traced costs no round that was measured."""
    kept: list[Path] = []

    def keep(receipt: Storable) -> None:
        try:
            kept.append(_keep_apart(path, [receipt]))
        except (FtaxError, OSError) as error:  # no reason to lose the receipt itself
            say(f"! the rounds were not kept until the command is done: {error}")

    try:
        yield keep
    except BaseException:  # Ctrl-C too
        for file in kept:
            say(f"the rounds that were measured are in {file}; `ftax report {file}` shows them")
        raise
    for file in kept:
        with suppress(OSError):
            file.unlink()


def _keep_apart(path: Path | None, records: Sequence[Storable]) -> Path:
    """Write records into a new file that its user alone may open, beside ``path`` if that can be,
    under a name that nobody could foresee: in a folder of all users it might be a link of
    another's. Raises what the last folder's failure raises, and leaves no file then."""
    is_file = path is not None and not is_stdout(path)
    name = path.name if path and is_file else "ftax"
    if path and is_file:
        with suppress(FtaxError, OSError):
            return _write_apart(path.absolute().parent, name, records)
    return _write_apart(Path(tempfile.gettempdir()), name, records)


def _write_apart(folder: Path, name: str, records: Sequence[Storable]) -> Path:
    descriptor, file = tempfile.mkstemp(prefix=f"{name[:64]}.", suffix=".rounds", dir=folder)
    os.close(descriptor)
    try:
        for record in records:
            append_record(file, record)
    except BaseException:
        os.unlink(file)
        raise
    return Path(file)


def leave_if_ended(runs: JobRuns, processes: int, json: Path | None) -> None:
    """Say what the answer is of, and exit, if not all was run: 130 after Ctrl-C, else 4; or raise
    what ended it in this process."""
    if runs.ended is None:
        return
    interrupted = isinstance(runs.ended, KeyboardInterrupt)
    if processes == 1 and interrupted:
        leave_interrupted(json, "the table is of what was measured until then")
    if processes == 1:
        raise runs.ended
    done = len({m.process.index for m in runs.measurements})
    leave_short(runs.ended, f"{done} of {processes} processes")


def leave_short(ended: BaseException | None, done: str) -> None:
    """Say of what the answer is, and exit, if something ended it: 130 after Ctrl-C, else 4."""
    if ended is None:
        return
    interrupted = isinstance(ended, KeyboardInterrupt)
    reason = "interrupted" if interrupted else str(ended)
    say(f"{reason}; this is the answer of {done}, {_AGAIN}")
    raise typer.Exit(130 if interrupted else 4)


def leave_interrupted(json: Path | None, what: str) -> NoReturn:
    """Say what there is after Ctrl-C, where it is kept and how to go on; then exit with 130."""
    kept = "--json FILE keeps it" if json is None else "it is kept"
    if json is not None and not is_stdout(json):
        kept = f"it is in {json}"
    say(f"interrupted; {what}, {kept}, {_AGAIN}")
    raise typer.Exit(130)


def is_stdout(path: Path | None) -> bool:
    """Whether records go to standard output, which then gets nothing else."""
    return str(path) == "-"


def save(path: Path | None, records: Sequence[Storable], *, quiet: bool = False) -> None:
    """Append records to a results file, if one was asked for; to standard output for "-". Says so
    unless ``quiet``.

    Raises ResultsError if it cannot be written, which says where the records are kept instead.
    """
    if path is None or not records:
        return
    if is_stdout(path):
        for record in records:
            say(make_line(record), error=False)
        return
    for place, record in enumerate(records):
        try:
            append_record(path, record)
        except ResultsError as error:
            raise ResultsError(f"{error}{_rescue(records[place:])}") from error
    if not quiet:
        say(f"appended {say_count(len(records), 'record')} to {path}")


@contextmanager
def saved(path: Path | None, records: Sequence[Storable], *, quiet: bool = False) -> Iterator[bool]:
    """`save`, but what is inside is done even if that fails; what `save` raises comes after it.
    Gives whether a file has the records. Ctrl-C waits for both, and is then told with what was
    saved where."""
    failure = None
    with hold():
        try:
            save(path, records, quiet=quiet)
        except ResultsError as error:
            failure = error
        try:
            yield path is not None and failure is None
        finally:
            if failure is not None:
                raise failure
        if take():
            leave_interrupted(path, "all that was measured is shown")


def _rescue(records: Sequence[Storable]) -> str:
    try:
        return f". What was to be saved is in {_keep_apart(None, records)}"
    except (FtaxError, OSError):
        return ""
