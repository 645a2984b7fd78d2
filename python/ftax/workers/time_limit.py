"""Ends a step of preparation that runs too long, so that one runtime cannot hold up the others.

What interrupts the step is no Exception. Compilers are full of `except
Exception: try something else`, which would swallow an ordinary error and go on.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ftax.errors import InvalidArgumentError, UnsupportedError

_VARIABLE = "FTAX_PREPARE_SECONDS"
_DEFAULT_SECONDS = 600.0
_AGAIN_SECONDS = 5.0  # a bare `except:` may have swallowed the first interruption


class _Expired(BaseException):
    """The time is up."""


def default_seconds(usual_s: float = _DEFAULT_SECONDS) -> float:
    """``$FTAX_PREPARE_SECONDS``, or ``usual_s``. Raises InvalidArgumentError for no such number."""
    text = os.environ.get(_VARIABLE, "")
    try:
        seconds = float(text) if text else usual_s
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:  # also refuses NaN and infinity
        raise InvalidArgumentError(f"{_VARIABLE} is {text!r}; it has to be a number above 0")
    return seconds


@contextmanager
def time_limit(seconds: float | None, what: str) -> Iterator[None]:
    """Raise UnsupportedError if the block runs longer than ``seconds``; None: `default_seconds`.

    The block ends at the next bytecode that Python runs, so a call into C is waited for. Blocks
    nest; each limit counts. Outside the main thread, which alone has signals, there is no limit.
    """
    limit = default_seconds() if seconds is None else seconds
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    expired = False

    def expire(_signal: int, _frame: FrameType | None) -> None:
        nonlocal expired
        expired = True
        raise _Expired

    handler_before = signal.signal(signal.SIGALRM, expire)
    remaining_before, _ = signal.setitimer(signal.ITIMER_REAL, limit, _AGAIN_SECONDS)
    start = time.monotonic()
    try:
        yield
    except BaseException as error:
        if not expired or isinstance(error, KeyboardInterrupt):
            raise
        raise _make_error(what, limit) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler_before)
        if remaining_before:
            left = remaining_before - (time.monotonic() - start)
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), _AGAIN_SECONDS)
    if expired:  # swallowed; what the block made after that is not to be trusted
        raise _make_error(what, limit)


def _make_error(what: str, limit: float) -> UnsupportedError:
    return UnsupportedError(
        f"{what} ran past {limit:g} s; set {_VARIABLE} to allow more, or leave this runtime out"
    )
