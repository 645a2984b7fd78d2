"""Where the program itself says what an iteration is.

`with ftax_run.iteration(): ...` costs nothing but a call when `ftax run` does not watch. One that
begins while another has not ended, nested or in another thread, is a part of that one.
"""

from __future__ import annotations

import array
import atexit
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_FOLDER = os.environ.get("FTAX_RUN_FOLDER")
_WRITE_EVERY_NS = 20_000_000


class iteration:
    """A context: one iteration of the program's main loop."""

    __slots__ = ("_start",)

    def __enter__(self) -> None:
        if _FOLDER:
            self._start = time.monotonic_ns() if _open[0].acquire(blocking=False) else 0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if _FOLDER and self._start and _open[0].locked():  # else it was forked meanwhile
            now = time.monotonic_ns()
            _marks.extend((self._start, now, threading.get_native_id()))
            _open[0].release()
            if now - _last_write[0] > _WRITE_EVERY_NS:
                _write()


_marks = array.array("Q")
_last_write = [0]
_open = [threading.Lock()]  # whether an iteration has begun


def _write() -> None:
    content = _marks.tobytes()
    del _marks[:]
    _last_write[0] = time.monotonic_ns()
    path = Path(str(_FOLDER)) / f"{os.getpid()}.marks"
    with suppress(OSError), path.open("ab", buffering=0) as file:  # the watcher has ended
        file.write(content)


def _forget() -> None:
    """In a child, what is its parent's."""
    del _marks[:]
    _open[0] = threading.Lock()


if _FOLDER:
    from multiprocessing import util

    atexit.register(_write)
    # A forked worker of multiprocessing ends with its own finalizers and none of atexit's.
    util.register_after_fork(iteration, lambda _: util.Finalize(None, _write, exitpriority=0))
    os.register_at_fork(after_in_child=_forget)
