"""Progress for callers of Python who bring no callback of their own.

What shows it is found by name, as a result finds what draws it (`ftax.records.kinds`), since
terminals stand above this room.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ftax.errors import InvalidArgumentError
from ftax.records.kinds import find
from ftax.timing.plan import Plan, Progress

ProgressChoice = Progress | bool | None


@contextmanager
def watched(
    progress: ProgressChoice, model: object, plan: Plan | None = None
) -> Iterator[Progress | None]:
    """What to call between rounds: the caller's own; nothing for False; for None what shows it in a
    terminal or a notebook, if standard error is one, and for True a line a phase anywhere else.

    Raises InvalidArgumentError for anything else.
    """
    if callable(progress):
        yield progress
    elif progress not in (None, True, False):
        raise InvalidArgumentError(
            f"progress is {progress!r}; give a function of phase, done and total, or False for none"
        )
    elif progress or (progress is None and find("ftax.reports.progress:is_watched")()):
        limit_s = None if plan is None else plan.duration_s
        with find("ftax.reports.progress:show_progress")(
            name_model(model), limit_s=limit_s
        ) as tell:
            yield tell
    else:
        yield None


def tell_interrupted(progress: ProgressChoice, stop_reason: str, done: str) -> None:
    """Whoever presses Ctrl-C reads what became of it; a callback's owner tells it their own way."""
    if stop_reason == "interrupted" and progress is not False and not callable(progress):
        find("ftax.reports.terminal:say")(
            f"interrupted after {done}: the result is of these; call again for all of them"
        )


def name_model(model: object) -> str:
    """What a user calls it before it is loaded."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    return str(getattr(model, "name", None) or type(model).__name__)
