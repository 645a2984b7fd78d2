"""The CUDA stream that a runner is timed on: making one, wrapping a runner in it, and working on it
from Python. On a CPU there is none, and each function does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ftax import _core


def make_stream(device: str) -> torch.cuda.Stream | None:
    """A stream of its own, since the legacy default stream waits for all the others."""
    if torch.device(device).type == "cpu" or not hasattr(_core, "StreamRunner"):
        return None
    torch.cuda.synchronize(device)  # what is there already was put there by another stream
    return torch.cuda.Stream(torch.device(device))


def wrap_runner(runner: _core.Runner, stream: torch.cuda.Stream | None) -> _core.Runner:
    """``runner`` with ``stream`` as torch's current one while it runs."""
    if stream is None:
        return runner
    return _core.StreamRunner(runner, stream.stream_id, stream.device_index, stream.device_type)


@contextmanager
def enter_stream(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """Inside, torch works on ``stream``, after what it did before and before what it does next."""
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        stream.synchronize()
