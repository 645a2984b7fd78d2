"""A way to run one model, made ready: something to time, and something to check it by.

The timed loop knows nothing else. Models, runtimes and rungs end here, at a runner of the C++ core,
the callable that gives its outputs, and what was found on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import torch

from ftax import _core
from ftax.errors import UnsupportedError
from ftax.steps.tensors import same_bytes
from ftax.timing.checks import Checks, SameWork
from ftax.timing.preparation import Preparation

Host = Literal["python", "cpp"]


def name_caller(host: Host) -> str:
    """What a reader calls the language that drives a runtime: ``"Python"``, ``"C++"``."""
    return {"python": "Python", "cpp": "C++"}[host]


class Place(NamedTuple):
    """A runtime, and who drives it; in words "eager/python"."""

    runtime: str
    host: Host

    def __str__(self) -> str:
        return f"{self.runtime}/{self.host}"


class Placed:
    """What has a runtime and a host."""

    __slots__ = ()
    if TYPE_CHECKING:  # fields of the class that it is

        @property
        def runtime(self) -> str:
            """What runs."""

        @property
        def host(self) -> Host:
            """Who drives it."""

    @property
    def place(self) -> Place:
        """Both."""
        return Place(self.runtime, self.host)


class Watch(Protocol):
    """Looks whether every call is the work that was recorded (`ftax.runtimes.same_work`)."""

    def begin(self) -> None:
        """Before the rounds."""

    def look(self) -> None:
        """Between two rounds."""

    def look_in_a_row(self, elapsed_s: float) -> None:
        """At consecutive calls, after rounds that took ``elapsed_s``."""

    def compare_outputs(self) -> None:
        """Once all that was written has been put back."""

    def judge(self) -> SameWork:
        """What was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """The tensors that a replay reads (inputs and constants) and writes (outputs). ``copied`` is
    where it copies its inputs first, if it does."""

    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    constants: tuple[torch.Tensor, ...]
    mutated: bool = False  # the model writes into its inputs or constants
    copied: tuple[torch.Tensor, ...] = ()

    def run(
        self, replay: Callable[[], object], inputs: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """The outputs of ``replay()`` on these inputs. Call it under inference mode.

        Raises UnsupportedError if the replay changes a weight, a buffer or an input.
        """
        self._poison_outputs()
        for target, source in zip(self.inputs, inputs, strict=True):
            target.copy_(source)
        before = self._sum_what_is_read()
        replay()
        written = self._sum_what_is_read() != before
        if not self.mutated and (written or not all(map(same_bytes, self.copied, self.inputs))):
            raise UnsupportedError("the replay writes into the model's weights, buffers or inputs")
        return self.outputs

    def _poison_outputs(self) -> None:
        """Bytes of ones: NaN in every floating-point format, -1 in integers. An output that is an
        input or a weight is nobody's to overwrite."""
        kept = {tensor.untyped_storage().data_ptr() for tensor in (*self.inputs, *self.constants)}
        for output in self.outputs:
            storage = output.untyped_storage()
            if storage.data_ptr() not in kept:
                storage.fill_(255)  # type: ignore[attr-defined]

    def _sum_what_is_read(self) -> list[int]:
        """A sum a tensor: a copy of the weights could be more than the device has room for."""
        sums = [
            tensor.detach().contiguous().reshape(-1).view(torch.uint8).sum(dtype=torch.int64)
            for tensor in (*self.inputs, *self.constants)
            if tensor.layout == torch.strided and not (tensor.is_quantized or tensor.is_nested)
        ]
        return [int(total) for total in sums]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Placed):
    """``runner`` is what the timed loop drives; ``run()`` is one inference by the same means, with
    its outputs. ``feed(inputs)`` puts other inputs where ``run`` reads them; None: that is the
    memory of the model's own inputs. ``preparation`` and ``checks`` go into the measurement.
    ``buffers`` are what every request reads and writes, where that memory is fixed. ``judge()`` is
    asked after the rounds, and says what went wrong in them; ``check_again()`` checks outputs once
    more then: it may have stopped computing; ``watch()`` gives what looks, beside the rounds,
    whether each call is still the same work."""

    runtime: str
    host: Host
    runner: _core.Runner
    run: Callable[[], Sequence[torch.Tensor]]
    preparation: Preparation = field(default_factory=Preparation)
    checks: Checks = field(default_factory=Checks)
    options: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    judge: Callable[[], Sequence[str]] = tuple
    check_again: Callable[[], Checks] | None = None
    feed: Callable[[Sequence[torch.Tensor]], None] | None = None
    buffers: Buffers | None = None
    watch: Callable[[], Watch] | None = None
