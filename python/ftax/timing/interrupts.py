"""Ctrl-C, while what was measured is not safe yet.

Inside `hold` a Ctrl-C waits, so that nothing that was measured is lost between the rounds and the
file or the screen; `interruptible` lets it through, into what may be ended. Who may be ended is
told by frames. A signal that arrives while C++ runs is handled on its way out, in the frame that is
about to get the result; raised there, it would take the result with it.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

_blocks = 0  # of `hold` that are open
_is_waiting = False
_open: FrameType | None = None  # what runs below it may be ended


@contextmanager
def hold() -> Iterator[None]:
    """Inside, Ctrl-C waits: for `interruptible`, for `take`, or for the end of the outermost block,
    which raises KeyboardInterrupt, unless something else is raised there.

    Nothing happens outside of the main thread, which alone is interrupted, and where the program
    deals with Ctrl-C itself.
    """
    global _blocks, _open
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or not (_blocks or is_default):
        yield
        return
    if _blocks == 0:
        signal.signal(signal.SIGINT, _note)
    outer, _open = _open, None
    _blocks += 1
    try:
        yield
    except BaseException:
        if _blocks == 1:
            take()
        raise
    finally:
        _blocks -= 1
        _open = outer
        if _blocks == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if (_blocks == 0 or _open is not None) and take():
        raise KeyboardInterrupt


def interruptible(function: Callable[_P, _T], /, *arguments: _P.args, **keywords: _P.kwargs) -> _T:
    """What ``function`` returns. Raises KeyboardInterrupt if a Ctrl-C waits, or comes meanwhile;
    one that comes when there is a result waits."""
    global _open
    if take():
        raise KeyboardInterrupt
    outer, _open = _open, sys._getframe()
    try:
        return function(*arguments, **keywords)
    finally:
        _open = outer


def take() -> bool:
    """Whether a Ctrl-C waits; who asks deals with it, and it waits no longer."""
    global _is_waiting
    found, _is_waiting = _is_waiting, False
    return found


def _note(_number: int, frame: FrameType | None) -> None:
    global _is_waiting
    if _open is not None and frame is not _open:
        raise KeyboardInterrupt
    _is_waiting = True
