"""A worker's own end of the line to its parent: it answers in lines of JSON, and dies with it.

The surprising choice: what a model or a library prints goes to standard error, so that nothing but
answers is ever on standard output.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

_PR_SET_PDEATHSIG = 1  # prctl(2)

Say = Callable[..., None]  # writes an answer: what it is, and its fields


def die_with(parent: int) -> None:
    """Let the kernel end this process when the thread that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        sys.exit("the process that started this worker has ended")


def claim_output() -> Say:
    """What writes an answer. What a model prints goes to standard error from now on."""
    descriptor = os.dup(1)
    os.dup2(2, 1)

    def say(what: str, **fields: Any) -> None:
        line = json.dumps({"say": what, **fields}, allow_nan=False) + "\n"
        rest = line.encode()
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    return say
