"""Where the program itself says what an iteration is.

`with ftax_run.iteration(): ...` costs nothing but a call when `ftax run` does not watch.
"""

from __future__ import annotations

import array
import atexit
import os
import time
from pathlib import Path
from types import TracebackType

_FOLDER = os.environ.get("FTAX_RUN_FOLDER")
_BUFFERED = 128  # numbers, before they are written


class iteration:
    """A context: one iteration of the program's main loop."""

    __slots__ = ("_start",)

    def __enter__(self) -> None:
        if _FOLDER:
            self._start = time.monotonic_ns()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if _FOLDER:
            _marks.extend((self._start, time.monotonic_ns()))
            if len(_marks) >= _BUFFERED:
                _write()


_marks = array.array("Q")


def _write() -> None:
    content = _marks.tobytes()
    del _marks[:]
    with (Path(str(_FOLDER)) / f"{os.getpid()}.marks").open("ab", buffering=0) as file:
        file.write(content)


if _FOLDER:
    atexit.register(_write)
    os.register_at_fork(after_in_child=lambda: _marks.__delitem__(slice(None)))
