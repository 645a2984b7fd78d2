"""Watches, beside the timing, that every call of a model is the same work as the one recorded.

Checks before the rounds cannot know what a model does later: a cache that grows, every hundredth
call doing more. So eager is observed once a round, outside its samples, and many times in a row
after the last one. It is let run as it is, with nothing put back, because that is what is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from ftax.errors import FtaxError, describe
from ftax.steps.loaded import LoadedModel
from ftax.steps.module_calls import Call, describe_change
from ftax.tape.equality import compare_outputs
from ftax.tape.recording import COMPILED_CODE, observe
from ftax.tape.tape import run_eager
from ftax.timing.checks import Equality, SameWork

_MOST_IN_A_ROW = 128
_LEAST_IN_A_ROW = 3
_ROW_SHARE, _ROW_LEAST_S = 0.1, 0.1  # of the time that the rounds took, and no less than that


class WorkWatch:
    """``calls`` are those of the tape, and ``reference`` eager's outputs on the main inputs before
    the rounds; what is not given is found by `begin`. ``share`` is that of the time between
    observations which one may take: a longer one waits for later rounds."""

    def __init__(
        self,
        loaded: LoadedModel,
        calls: Sequence[Call] | None = None,
        reference: Sequence[torch.Tensor] | None = None,
        *,
        share: float = 0.1,
        is_compiled: bool = False,
        still_compiled: Callable[[], bool] | None = None,
        compare: Callable[..., Equality] = compare_outputs,
    ) -> None:
        self._loaded = loaded
        self._reference = reference
        self._share, self._compare, self._is_compiled = share, compare, is_compiled
        self._still_compiled = still_compiled
        self._calls = None if calls is None else list(calls)
        self._observed = self._in_a_row = 0
        self._problem = ""
        self._last_end, self._cost_s = time.perf_counter(), 0.0

    def begin(self) -> None:
        """Find what later calls are held against, where it was not given."""
        if self._reference is None:
            self._reference = run_eager(self._loaded.call, self._loaded)
        if self._calls is None:
            self._observe()

    def look(self) -> None:
        """Observe one call, unless the last one took a large part of the time since."""
        if time.perf_counter() - self._last_end >= self._cost_s / self._share:
            self._observe()

    def look_in_a_row(self, elapsed_s: float) -> None:
        """Observe consecutive calls, for a tenth of the time that the rounds took: work that
        changes with a period of fewer calls is seen for certain."""
        end = time.perf_counter() + max(_ROW_LEAST_S, _ROW_SHARE * elapsed_s)
        while not self._problem and self._in_a_row < _MOST_IN_A_ROW:
            if self._in_a_row >= _LEAST_IN_A_ROW and time.perf_counter() > end:
                break
            self._observe()
            self._in_a_row += 1

    def compare_outputs(self) -> None:
        """After the rounds, with what tensors hold put back: whether eager still gives the outputs
        that every runtime was held against. What Python keeps may have changed them."""
        if self._problem or self._reference is None:
            return
        try:
            outputs = run_eager(self._loaded.call, self._loaded)
            if self._still_compiled is not None and not self._still_compiled():
                self._problem = (
                    "a later call runs none of the compiled code that the first one ran (torch "
                    "gives it up past a limit of compilations)"
                )
                return
        except (FtaxError, RuntimeError) as error:
            self._problem = f"a later call failed: {describe(error)}"
            return
        problem = self._compare(self._reference, outputs).problem
        if problem:
            self._problem = f"a later call gives other outputs than the first ({problem})"
            if self._loaded.kind != "forward":
                self._problem += self._loaded.say_remedy()

    def judge(self) -> SameWork:
        """What was seen."""
        return SameWork(
            observed=self._observed,
            in_a_row=self._in_a_row,
            calls=len(self._calls or ()),
            problem=self._problem,
        )

    def _observe(self) -> None:
        if self._problem:
            return
        start = time.perf_counter()
        try:
            self._loaded.prepare()
            seen = observe(
                self._loaded.call,
                has_autograd=self._loaded.has_autograd,
                is_compiled=self._is_compiled,
            )
            if self._loaded.device != "cpu":
                torch.cuda.synchronize(self._loaded.device)  # or it would run into the next round
        except (FtaxError, RuntimeError) as error:
            self._problem = f"a later call failed: {describe(error)}"
            return
        self._observed += 1
        if not self._is_compiled and any(call.name == COMPILED_CODE for call in seen):
            self._problem = "a later call runs code that torch.compile made, and the first did not"
        if self._calls is None:
            self._calls = seen
        elif not self._problem:
            self._problem = describe_change(self._calls, seen)
        self._last_end = time.perf_counter()
        self._cost_s = self._last_end - start
