"""A model that is ready to run: the module, its inputs, and all that identifies the pair.

Every model carries a second input. A program recorded on one input is believed only once it agrees
with the module on another.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from ftax import _core
from ftax.errors import UnsupportedError
from ftax.records.record import JsonScalar
from ftax.steps.feeds import Feed
from ftax.steps.input_trees import flatten_tensors
from ftax.steps.inputs import InputPair, repeat_input
from ftax.steps.outputs import call_model, find_tensors, flatten_outputs
from ftax.steps.setting import Setting, use_autograd
from ftax.steps.spec import Dtype
from ftax.steps.step_module import StepModule


# Not compared by value: equality of tensors is a tensor.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredModel:
    """What a cell says of a model: its name, the setting that it has, in which dtype, device and
    batch are known, and what else tells it from others. A model file of the user, which has no
    Python module, is no more than that."""

    name: str
    setting: Setting
    options: Mapping[str, JsonScalar]
    kind: str = "forward"  # of step
    units: int = 1  # that one run makes

    @property
    def dtype(self) -> Dtype:
        """Of weights and inputs."""
        return self.setting.dtype or "fp32"

    @property
    def device(self) -> str:
        """As torch spells it on tensors: "cpu", "cuda:0"."""
        return self.setting.device or "cpu"

    @property
    def batch(self) -> int:
        """Requests in one call."""
        return self.setting.batch or 1

    @property
    def sequence(self) -> int | None:
        """Tokens of each request; None for images."""
        return self.setting.sequence


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedModel(MeasuredModel):
    """A module in eval mode whose parameters need no gradient, with two inputs of equal shapes,
    or a step in the place of a module.

    `args` and `kwargs` may nest lists, tuples and dicts; all their tensors are on `device`.
    `options` are JSON scalars. `warnings` are sentences that belong beside any result of this
    model.
    """

    module: nn.Module = field(repr=False)
    pair: InputPair = field(repr=False)
    parameter_count: int
    source: str
    warnings: tuple[str, ...] = ()
    # What `load_model` makes this model of again, in its setting, where that is enough.
    again: str | None = field(default=None, repr=False)
    is_code: bool = field(default=False, repr=False)  # of the user, so that name may change
    is_capture: bool = False  # it stands for a capture, which the user's code gave
    max_sequence: int | None = None  # the longest request that the model takes, if that is known
    # The same module with made inputs, in a setting of another size.
    finish: Callable[[Setting], "LoadedModel"] | None = field(default=None, repr=False)

    @property
    def args(self) -> tuple[Any, ...]:
        """Positional main inputs."""
        return self.pair.args

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """Main inputs by name."""
        return self.pair.kwargs

    @property
    def check_args(self) -> tuple[Any, ...]:
        """Positional check inputs."""
        return self.pair.check_args

    @property
    def check_kwargs(self) -> Mapping[str, Any]:
        """Check inputs by name."""
        return self.pair.check_kwargs

    @property
    def reproducible(self) -> bool:
        """Whether another process can build the same model and inputs from `recipe()`."""
        return self.again is not None

    def recipe(self) -> dict[str, JsonScalar] | None:
        """JSON-able arguments: `load_model(**recipe)` builds this model again, in any process.

        None where it cannot: a module or inputs that exist only in this process.
        """
        return None if self.again is None else {"model": self.again, **self.setting.of_loading}

    def identity(self) -> dict[str, JsonScalar] | None:
        """What tells the model from all others; None where only its calls and weights do."""
        return None if self.is_code else self.recipe()

    @property
    def step(self) -> StepModule | None:
        """What was found of a step while it ran a few times; None for a forward pass."""
        return self.module if isinstance(self.module, StepModule) else None

    @property
    def is_compiled(self) -> bool | None:
        """Whether torch.compile made a part of it; None before it has run, as a step has."""
        return None if self.step is None else self.step.is_compiled

    @property
    def has_autograd(self) -> bool:
        """Whether it runs with autograd on."""
        return self.setting.grad_mode == "grad"

    @contextmanager
    def guard(self) -> Iterator[None]:
        """What it runs under where its outputs or its calls are looked at."""
        with use_autograd(self.has_autograd):
            yield

    def prepare(self) -> None:
        """Put back what decides which work a step does; nothing for a forward pass."""
        if self.step is not None:
            with self.guard():
                self.step.prepare()

    def call(self) -> Any:
        """One forward pass on the main inputs, under the caller's gradient mode."""
        return self._call(*self.args, **self.kwargs)

    def call_check(self) -> Any:
        """One forward pass on the check inputs, under the caller's gradient mode."""
        return self._call(*self.check_args, **self.check_kwargs)

    @property
    def _call(self) -> Callable[..., Any]:
        # A step is no module to the user, whose global hooks see none.
        return self.module if self.step is None else self.step.forward

    def with_size(self, *, batch: int | None = None, sequence: int | None = None) -> "LoadedModel":
        """The same module with made inputs of another size; None keeps the size that it has.

        The inputs are those that `load_model` makes for that size. Raises UnsupportedError for
        inputs that were given, and InvalidArgumentError for a size that the model does not take.
        """
        if self.finish is None:
            raise UnsupportedError(
                f"{self.name} runs on inputs that were given, so ftax cannot make some of another "
                "size: give a module with a function from a batch to inputs in their place, or "
                "measure a step of each size"
            )
        sizes = {"batch": batch, "sequence": sequence}
        changes = {name: size for name, size in sizes.items() if size is not None}
        return self.finish(replace(self.setting, **changes))  # type: ignore[arg-type]

    def run_as(self, setting: Setting) -> "LoadedModel":
        """The same module and inputs, run as ``setting`` says, which says no more than that."""
        return replace(self, setting=self.setting.beside(setting))

    def keep_constants(self) -> "LoadedModel":
        """The same model checked on inputs in which what is constant stays so; it says why."""
        if self.pair.steady_check is None:
            return self
        args, kwargs = self.pair.steady_check
        note = (
            "other values than the constant ones take another path through the model, or fail: all "
            f"numbers are of inputs in which {', '.join(self.pair.varied)} is constant"
        )
        pair = replace(
            self.pair, check_args=args, check_kwargs=kwargs, steady_check=None, varied=()
        )
        return replace(self, pair=pair, warnings=(*self.warnings, note))

    def check_on_own(self, problem: str) -> "LoadedModel":
        """The same model checked on its main inputs, since the drawn ones were no valid ones."""
        note = (
            f"checked on one input: on values that ftax drew for a second one {self.name} "
            f"{problem}; give check_inputs= with values that it takes"
        )
        pair = repeat_input(self.args, self.kwargs)
        return replace(self, pair=pair, warnings=(*self.warnings, note))

    def bind(self) -> Callable[[], Any]:
        """`call` without a Python frame of ours: what a timed loop calls."""
        return functools.partial(self.function, *self.args, **self.kwargs)

    @property
    def function(self) -> Callable[..., Any]:
        """The module, or the step's own function: what is called with the inputs."""
        return self.module if self.step is None else self.step.step.function

    @property
    def through_library(self) -> Callable[[], Any] | None:
        """The same work through the library that people use; None for what has no such form."""
        return None if self.step is None else self.step.step.through_library

    @property
    def returned(self) -> list[torch.Tensor]:
        """What a step writes, which is compared as its outputs are; nothing for a forward pass."""
        return [] if self.step is None else self.step.returned

    @property
    def leaves(self) -> list[torch.Tensor]:
        """Where a step may leave gradients, in modules or not; nothing for a forward pass."""
        return [] if self.step is None else self.step.leaves

    @property
    def feeds(self) -> list[Feed]:
        """The loaders from which a step takes its batches; none for a forward pass."""
        return [] if self.step is None else self.step.feeds

    @property
    def mixes_inference(self) -> bool:
        """Whether it enters inference mode beside operators that autograd records."""
        return self.step is not None and self.step.mixes_inference

    def call_on_next(self) -> Any:
        """One call on the next batch of a step's loader; on the main inputs without one."""
        if self.step is None:
            return self.call()
        return self.step.call_on_next(self.args, dict(self.kwargs))

    def say_remedy(self) -> str:
        """What a step changes that is not put back, and what to do; "" for a forward pass."""
        if self.step is None:
            return ""
        with self.guard():
            return f". {self.step.say_changes(self.call)}"

    @property
    def _may_return_nothing(self) -> bool:
        """Whether it is a step, and not captured, which are compared by tensors alone."""
        return self.step is not None and self.kind != "call"

    def find_outputs(self, output: Any) -> list[torch.Tensor]:
        """The tensors of what a call returned. Of a step that is measured there may be none."""
        return find_tensors(output) if self._may_return_nothing else flatten_outputs(output)

    def list_outputs(self, call: Callable[[], Any]) -> list[torch.Tensor]:
        """What ``call`` on the main inputs is compared by. Of a step there may be nothing."""
        if self.step is None or not self._may_return_nothing:
            return flatten_outputs((call_model(call), self.list_returned()))
        step = self.step
        return find_tensors((call_model(lambda: step.collect(call)), self.list_returned()))

    def list_returned(self) -> list[torch.Tensor]:
        """Beside its outputs, what one call on the main inputs is compared by."""
        return [] if self.step is None else self.step.list_returned(self.args, dict(self.kwargs))

    def wrap_runner(self, runner: _core.Runner) -> _core.Runner:
        """``runner`` with the state of a step put back outside its time."""
        return runner if self.step is None else self.step.wrap_runner(runner)

    def given(self) -> tuple[Any, ...]:
        """All that calls are made with: main arguments, then those of the check."""
        return (self.args, dict(self.kwargs), self.check_args, dict(self.check_kwargs))

    def flat_inputs(self) -> list[torch.Tensor]:
        """The tensors of the main inputs, in pytree order: `args`, then `kwargs`."""
        return flatten_tensors((self.args, dict(self.kwargs)))

    def flat_check_inputs(self) -> list[torch.Tensor]:
        """The tensors of the check inputs, in the order of `flat_inputs`."""
        return flatten_tensors((self.check_args, dict(self.check_kwargs)))
