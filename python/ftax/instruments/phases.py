"""How long the phases of a training step take: zero_grad, forward, backward, optimizer.

A phase begins where torch says so: at an optimizer's `zero_grad` and `step`, and at the one
function through which Python starts a backward pass. The step is not asked what its phases are, so
any step that trains has them. Modules are watched only where there is a second forward pass, after
a backward pass: a hook on each would be much of what is timed.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ftax.errors import RunnerError
from ftax.records.record import Name, Record
from ftax.steps.feeds import Feed
from ftax.steps.module_calls import watch_module_calls

_AFTER_BACKWARD, _OPTIMIZER, _AFTER_OPTIMIZER = "after backward", "optimizer", "after optimizer"
_SECONDS, _LEAST, _MOST = 1.0, 5, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase(Record):
    """Medians over runs of Python eager, ns: how long the host was in the phase, and how long the
    device's queue took from its first mark to its last; None on a CPU."""

    name: Name
    host_ns: float
    device_ns: float | None = None


def time_phases(
    run: Callable[[], object],
    prepare: Callable[[], None],
    device: str,
    feeds: Sequence[Feed] = (),
) -> tuple[Phase, ...]:
    """The phases of ``run()``, in the order in which they first begin, for about a second.

    ``prepare`` is called before each run, outside all times. ``feeds``, from which it takes its
    batches, go on meanwhile.
    """
    marks = _Marks(device)
    with ExitStack() as stack:
        for feed in feeds:
            stack.enter_context(feed.live(marks.mark))
        return _time_phases(marks, run, prepare)


def _time_phases(
    marks: _Marks, run: Callable[[], object], prepare: Callable[[], None]
) -> tuple[Phase, ...]:
    found: list[dict[str, tuple[float, float | None]]] = []
    with marks.watch(modules=False):
        prepare()
        marks.begin()
        run()
        passes = marks.count("backward")
    end = time.perf_counter() + _SECONDS
    with marks.watch(modules=passes > 1):
        while len(found) < _LEAST or (len(found) < _MOST and time.perf_counter() < end):
            prepare()
            marks.begin()
            try:
                run()
            except RunnerError as error:
                if len(found) < _LEAST or not isinstance(error.__cause__, StopIteration):
                    raise
                break  # an epoch is over, and there is no other
            found.append(marks.finish())
    names = dict.fromkeys(name for one in found for name in one)
    return tuple(_summarise(name, [one[name] for one in found if name in one]) for name in names)


def _summarise(name: str, times: list[tuple[float, float | None]]) -> Phase:
    devices = [device for _, device in times if device is not None]
    return Phase(
        name=name,
        host_ns=statistics.median(host for host, _ in times),
        device_ns=statistics.median(devices) if devices else None,
    )


class _Marks:
    """Where phases of one run begin, on the host's clock and in the device's queue."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._marks: list[tuple[str, int, torch.cuda.Event | None]] = []
        self._is_stepping = False  # an optimizer, which may call for backward passes

    def begin(self) -> None:
        self._wait()
        self._marks.clear()
        self.mark("forward")

    def finish(self) -> dict[str, tuple[float, float | None]]:
        """Host and device time by phase, ns."""
        self.mark("")
        self._wait()
        found: dict[str, tuple[float, float | None]] = {}
        for (name, start, first), (_, end, last) in zip(self._marks, self._marks[1:], strict=False):
            host, device = found.get(name, (0.0, None))
            if first is not None and last is not None:
                device = (device or 0.0) + first.elapsed_time(last) * 1e6
            found[name] = host + end - start, device
        return found

    def count(self, name: str) -> int:
        """How often the phase has begun."""
        return sum(mark[0] == name for mark in self._marks)

    @contextmanager
    def watch(self, *, modules: bool) -> Iterator[None]:
        """Mark what happens inside; with ``modules`` their calls after a backward pass too."""
        autograd: Any = torch.autograd
        engine, zero_grad = autograd._engine_run_backward, Optimizer.zero_grad
        handles = [
            register_optimizer_step_pre_hook(lambda *_: self._begin_step()),
            register_optimizer_step_post_hook(lambda *_: self._end_step()),
        ]
        autograd._engine_run_backward = self._wrap(engine, "backward", _AFTER_BACKWARD)
        Optimizer.zero_grad = self._wrap(zero_grad, "zero_grad", "forward")  # type: ignore[method-assign]
        try:
            with watch_module_calls(self._call_module) if modules else nullcontext():
                yield
        finally:
            autograd._engine_run_backward, Optimizer.zero_grad = engine, zero_grad  # type: ignore[method-assign]
            for handle in handles:
                handle.remove()

    def _wrap(self, function: Callable[..., Any], during: str, after: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            self.mark(during)
            try:
                return function(*args, **kwargs)
            finally:
                is_within = self._is_stepping and after == _AFTER_BACKWARD
                self.mark(_OPTIMIZER if is_within else after)

        return marked

    def _begin_step(self) -> None:
        self._is_stepping = True
        self.mark(_OPTIMIZER)

    def _end_step(self) -> None:
        self._is_stepping = False
        self.mark(_AFTER_OPTIMIZER)

    def _call_module(self, *_: Any) -> None:
        if self._marks and self._marks[-1][0] in (_AFTER_BACKWARD, _OPTIMIZER, _AFTER_OPTIMIZER):
            self.mark("forward")

    def mark(self, name: str) -> None:
        """A phase of this name begins."""
        event = None
        if self._device != "cpu":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        self._marks.append((name, time.perf_counter_ns(), event))

    def _wait(self) -> None:
        if self._device != "cpu":
            torch.cuda.synchronize(self._device)
