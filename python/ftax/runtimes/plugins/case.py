"""What a shared library is tried on: a model's tensors by name, and the outputs that are right.

A case holds no model. Tensors travel to another process where a module that exists only in memory
does not, so any model's library can be tried in a process that may die.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import torch

from ftax import _core
from ftax.errors import FtaxError
from ftax.runtimes.cache import write_through_memory
from ftax.steps.loaded import LoadedModel
from ftax.tape.tape import run_eager

Tensors = tuple[torch.Tensor, ...]
# What the two sets of inputs of a case are, in words.
INPUT_SETS = ("on the model's inputs", "on other values in the same inputs")


class CheckFailedError(FtaxError):
    """The library does not do what the interface says; the message says how."""


class CheckSkippedError(FtaxError):
    """The check says nothing about this library, device or machine; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PluginCase:
    """``references[i]`` are eager's outputs on ``inputs[i]``; all tensors are contiguous and on
    ``device``. ``threads`` is what one inference may use."""

    model: str
    device: str
    threads: int
    weights: Mapping[str, torch.Tensor]
    inputs: tuple[Tensors, ...]
    references: tuple[Tensors, ...]

    def save(self, path: Path) -> None:
        """Write it for `load`."""
        names = ("model", "device", "threads", "inputs", "references")
        content = {name: getattr(self, name) for name in names}
        content["weights"] = dict(self.weights)
        write_through_memory(path, lambda file: torch.save(content, file))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote: tensors and text only, never code."""
        return cls(**torch.load(path, weights_only=True))

    def describe(self) -> str:
        """Every tensor that is bound, by name, with its shape."""
        outputs = enumerate(self.references[0])
        named = {
            **self.weights,
            **{f"input{place}": tensor for place, tensor in enumerate(self.inputs[0])},
            **{f"output{place}": tensor for place, tensor in outputs},
        }
        return ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in named.items())


def make_case(loaded: LoadedModel) -> PluginCase:
    """The case of a model: its main inputs first, then those that it is checked on."""
    return PluginCase(
        model=loaded.name,
        device=loaded.device,
        threads=torch.get_num_threads(),
        weights=collect_weights(loaded),
        inputs=(_contiguous(loaded.flat_inputs()), _contiguous(loaded.flat_check_inputs())),
        references=(
            _contiguous(run_eager(loaded.call, loaded)),
            _contiguous(run_eager(loaded.call_check, loaded)),
        ),
    )


def collect_weights(loaded: LoadedModel) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name: the state dict, and the buffers that it leaves out."""
    module = loaded.module
    named = [*module.state_dict(keep_vars=True).items()]
    named += module.named_buffers(remove_duplicate=False)
    found = {name: item for name, item in named if isinstance(item, torch.Tensor)}
    return {name: item.detach().contiguous() for name, item in found.items()}


def _contiguous(tensors: Sequence[torch.Tensor]) -> Tensors:
    return tuple(tensor.detach().contiguous().clone() for tensor in tensors)


def _ignore(call: str) -> None:
    del call


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TriedLibrary:
    """A library with its config, and the case to try it on. ``note`` is told of each call before it
    is made, so that a process which dies in one leaves its name."""

    path: str  # of the library
    config: str
    case: PluginCase
    note: Callable[[str], None] = field(default=_ignore)

    def open_library(self) -> _core.PluginLibrary:
        """Load it and check its version."""
        self.note("loading the library")
        return _core.open_plugin(self.path)

    def create(self, config: str | None = None) -> _core.Plugin:
        """A runner with nothing bound."""
        library = self.open_library()
        chosen = self.config if config is None else config
        self.note("create")
        return _core.Plugin(library, chosen, self.case.device, self.case.threads)

    def bind(self, *, stream: int = 0) -> BoundPlugin:
        """A runner with the case's weights, main inputs, and outputs of its own bound."""
        return BoundPlugin(self, self.create(), stream)


class BoundPlugin:
    """A runner with everything bound. ``inputs`` and ``outputs`` are the tensors that it works on;
    they live as long as this does."""

    def __init__(self, tried: TriedLibrary, plugin: _core.Plugin, stream: int) -> None:
        self.tried, self.plugin, self.stream = tried, plugin, stream
        case = tried.case
        self.inputs = [tensor.clone() for tensor in case.inputs[0]]
        self.outputs = [torch.empty_like(tensor) for tensor in case.references[0]]
        self.poison()
        for name, tensor in case.weights.items():
            self._bind("weight", name, tensor)
        for kind, tensors in (("input", self.inputs), ("output", self.outputs)):
            for place, tensor in enumerate(tensors):
                self._bind(kind, f"{kind}{place}", tensor)

    def __del__(self) -> None:
        # The runner is destroyed next, with the last reference to it.
        self.tried.note("destroy")

    def _bind(self, kind: str, name: str, tensor: torch.Tensor) -> None:
        self.tried.note(f'bind("{name}")')
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.plugin.bind(kind, name, tensor.data_ptr(), list(tensor.shape), dtype)

    def poison(self) -> None:
        """Fill the outputs with what is not the answer, and wait for it."""
        for output, poison in zip(self.outputs, self.make_poison(), strict=True):
            output.copy_(poison)
        self.settle()

    def make_poison(self) -> list[torch.Tensor]:
        """NaN, or for integers the complement of the right answer."""
        return [
            torch.full_like(right, torch.nan)
            if right.is_floating_point()
            else torch.bitwise_not(right)
            for right in self.tried.case.references[0]
        ]

    def settle(self) -> None:
        """Wait for all of the device, whatever the stream: for between the calls of a check."""
        if torch.device(self.tried.case.device).type == "cuda":
            torch.cuda.synchronize(self.tried.case.device)

    def set_inputs(self, place: int) -> None:
        """Write input set ``place`` of the case into the memory that is bound."""
        for bound, value in zip(self.inputs, self.tried.case.inputs[place], strict=True):
            bound.copy_(value)
        self.settle()

    def prepare(self) -> None:
        """One call of prepare, and a wait for it; nothing if the library has none."""
        if self.tried.open_library().has_prepare:
            self.tried.note("prepare")
            self.plugin.prepare(self.stream)
            self.wait()

    def enqueue(self) -> None:
        """One call of enqueue."""
        self.tried.note("enqueue")
        self.plugin.enqueue(self.stream)

    def wait(self) -> None:
        """Wait for an inference as the timed loop does: on a GPU for the stream, on the CPU by the
        library's synchronize, if it has one."""
        device = torch.device(self.tried.case.device)
        if device.type == "cuda":
            self.tried.note("waiting for the stream")
            # Of address 0, torch would make a new stream.
            by_default = torch.cuda.default_stream(device)
            given = torch.cuda.ExternalStream(self.stream, device) if self.stream else by_default
            given.synchronize()
        else:
            self.tried.note("synchronize")
            self.plugin.synchronize(self.stream)

    def run_once(self) -> None:
        """One inference on what is bound: prepared, enqueued and waited for."""
        self.prepare()
        self.enqueue()
        self.wait()

    def run(self, place: int = 0) -> list[torch.Tensor]:
        """Poisoned outputs, input set ``place``, one inference: copies of what it wrote."""
        self.set_inputs(place)
        self.poison()
        self.run_once()
        return [output.clone() for output in self.outputs]
