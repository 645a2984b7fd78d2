"""Python's profiling hook, lent for one call.

A function and no context manager, whose own frames the hook would see. And cProfile, which before
Python 3.12 is set in C and cannot be put back through the hook, is started again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

_T = TypeVar("_T")


def watch_calls(see: Callable[[FrameType, str, Any], object], call: Callable[[], _T]) -> _T:
    """What ``call`` returns. ``see`` is told of this thread's calls meanwhile; who was told before
    is told again afterwards."""
    before = sys.getprofile()
    sys.setprofile(see)
    try:
        return call()
    finally:
        sys.setprofile(before if callable(before) else None)
        if before is not None and not callable(before):
            before.enable()
