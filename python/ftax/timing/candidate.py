"""A way to run one model, made ready: something to time, and something to check it by.

The timed loop knows nothing else. Models, runtimes and rungs end here, at a runner of the C++ core,
the callable that gives its outputs, and what was found on the way.
Of a `Preparation`, what code reads is a field; all else is `details`, which no code may read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

import torch

from ftax import _core
from ftax.errors import UnsupportedError
from ftax.steps.tensors import same_bytes
from ftax.timing.checks import Checks, SameWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """What one request of a captured graph launches, one driver call each: how many, and how often
    each type of node and each attribute of a launch occurs."""

    count: int
    types: Mapping[str, int]
    attributes: Mapping[str, int]
    is_chain: bool
    lost_programmatic_edges: int

    def to_dict(self) -> dict[str, object]:
        """As it is stored."""
        return {
            "launches": self.count,
            "launch_types": dict(self.types),
            "launch_attributes": dict(self.attributes),
            "is_chain": self.is_chain,
            "lost_programmatic_edges": self.lost_programmatic_edges,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """How a runtime was made ready.

    Attributes:
        made_seconds: for making its artefact or variant, whenever that was; None: it has none.
        peak_host_bytes, peak_device_bytes: most memory meanwhile, beyond what was in use before;
            None where this machine does not tell.
        from_cache: whether making it was paid before.
        ready_seconds: for all that was done this time.
        baseline: the runtime that it is compared with; "" for the first rung.
        launches: of one request, where a graph tells them.
        details: JSON-able, for readers of the record.
    """

    made_seconds: float | None = None
    peak_host_bytes: int | None = None
    peak_device_bytes: int | None = None
    from_cache: bool = False
    ready_seconds: float | None = None
    baseline: str = ""
    launches: Launches | None = None
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def seconds(self) -> float | None:
        """For making it once and loading it now; None where neither was timed."""
        if self.ready_seconds is None:
            return self.made_seconds
        made_s = self.made_seconds or 0.0
        return max(self.ready_seconds + (made_s if self.from_cache else 0.0), made_s)

    def also(self, **details: object) -> Self:
        """With more details."""
        return replace(self, details={**self.details, **details})

    def costing(self, other: Self) -> Self:
        """With what making the other one cost."""
        return replace(
            self,
            made_seconds=other.made_seconds,
            peak_host_bytes=other.peak_host_bytes,
            peak_device_bytes=other.peak_device_bytes,
            from_cache=other.from_cache,
        )

    def to_dict(self) -> dict[str, object]:
        """As `Measurement.preparation` has it."""
        stored: dict[str, object] = dict(self.details)
        if self.made_seconds is not None:
            stored |= {
                "seconds": self.made_seconds,
                "peak_host_bytes": self.peak_host_bytes,
                "peak_device_bytes": self.peak_device_bytes,
                "from_cache": self.from_cache,
            }
        if self.ready_seconds is not None:
            stored["ready_seconds"] = self.ready_seconds
        if self.baseline:
            stored["baseline"] = self.baseline
        return stored | (self.launches.to_dict() if self.launches else {})

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """What `to_dict` stored, or an artefact's facts; launches stay among the details."""
        details = dict(stored)

        def take(name: str, *kinds: type) -> Any:
            value = details.pop(name, None)
            return value if type(value) in kinds else None  # a file may hold anything

        return cls(
            made_seconds=take("seconds", float, int),
            peak_host_bytes=take("peak_host_bytes", int),
            peak_device_bytes=take("peak_device_bytes", int),
            from_cache=take("from_cache", bool) is True,
            ready_seconds=take("ready_seconds", float, int),
            baseline=take("baseline", str) or "",
            details=details,
        )


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
