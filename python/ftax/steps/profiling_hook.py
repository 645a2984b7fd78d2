"""Python's profiling hook, lent for a while. The surprising choice: cProfile, which is set in C and
cannot be put back through the hook, is started again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def profiling_hook(see: Callable[[FrameType, str, Any], object]) -> Iterator[None]:
    """``see`` is told of this thread's calls; who was told before is told again afterwards."""
    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(before if callable(before) else None)
        if before is not None and not callable(before):
            before.enable()
