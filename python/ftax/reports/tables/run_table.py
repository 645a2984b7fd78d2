"""A program that `ftax run` watched, as it was printed then, and its lines as numbers."""

from __future__ import annotations

from ftax_run.report import describe

from ftax.ladders.runs import Run
from ftax.reports.columns import Numbers
from ftax.reports.table import Printout

_KEYS = ("file", "line", "function", "cause", "idle_ns", "iterations")


def draw_run(run: Run, *, more: str = "") -> Printout:
    """The report; of a program without a device, ``idle_ns`` is the time of its main thread."""
    return Printout(head=tuple(describe(run.account)), numbers=lambda: _list_numbers(run))


def _list_numbers(run: Run) -> Numbers:
    process = run.account.find_main()
    if process is None:
        return Numbers.join(_KEYS, ())
    if process.windows:
        window, _ = process.correct()
        amounts, count = window.idle, window.count
        each = 1 / max(1, count)
    else:
        amounts, count = process.host.spent, process.marked
        each = process.host.unit / max(1, count)
    return Numbers.join(
        _KEYS,
        (
            {"file": file, "line": line, "function": name, "cause": cause,
             "idle_ns": amount * each, "iterations": count}
            for ((file, line, name), cause), amount in amounts.list_largest()
        ),
    )  # fmt: skip
