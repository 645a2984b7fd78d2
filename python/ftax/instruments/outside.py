"""How long a call of a function is outside of torch: before its first operator or module, and after
its last.

What lies between is not looked at. Only at its ends is Python of the user's told from Python of
torch by what happens, and not by whose file it stands in.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from ftax import _core
from ftax.steps.module_calls import watch_module_calls

_SECONDS, _LEAST, _MOST = 1.0, 5, 20  # rounds
_CALLS = 5  # of a round


class _Ends(NamedTuple):
    """Nanoseconds before torch and after it, and whether a module or an operator was the end."""

    before_ns: int
    after_ns: int
    begins_with_module: bool
    ends_with_module: bool


def time_outside(run: Callable[[], object], prepare: Callable[[], None]) -> tuple[float, ...]:
    """Nanoseconds outside of torch, of a call: one value a round, the median of its calls, less
    what an empty module or operator shows. Takes about a second. ``prepare`` is called before each
    call, outside all times."""
    floors = {True: _time_floor(nn.Identity()), False: _time_floor(lambda x: x.view(1))}

    def time_call() -> float:
        prepare()
        found = _time_ends(run)
        before_ns = found.before_ns - floors[found.begins_with_module][0]
        return max(0.0, before_ns) + max(0.0, found.after_ns - floors[found.ends_with_module][1])

    time_call()  # the first one meets what watching costs once
    values: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(values) < _LEAST or (len(values) < _MOST and time.perf_counter() < end):
        values.append(statistics.median(time_call() for _ in range(_CALLS)))
    return tuple(values)


def _time_floor(call: Callable[[torch.Tensor], object]) -> tuple[float, float]:
    """Of a call in which nothing is outside of torch, before and after."""
    x = torch.ones(1)
    found = [_time_ends(lambda: call(x)) for _ in range(_LEAST * _CALLS)]
    return (
        statistics.median(item.before_ns for item in found),
        statistics.median(item.after_ns for item in found),
    )


def _time_ends(run: Callable[[], object]) -> _Ends:
    entered = left = 0

    def enter(_part: Any, _inputs: Any) -> None:
        nonlocal entered
        entered = entered or time.monotonic_ns()

    def leave(_part: Any, _inputs: Any, _output: Any) -> None:
        nonlocal left
        left = time.monotonic_ns()

    log = _core.CallLog()
    with watch_module_calls(enter, leave):
        log.start()
        try:
            start = time.monotonic_ns()
            run()
            end = time.monotonic_ns()
        finally:
            log.stop()
    begins = [at for at in (entered, log.began_ns) if at]
    begin, last = min(begins, default=end), max(left, log.ended_ns) or end
    return _Ends(begin - start, end - last, begin == entered, last == left)
