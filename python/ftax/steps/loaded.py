"""A model that is ready to run: the module, its inputs, and all that identifies the pair.

The surprising choice: every model carries a second input. A program recorded on one input is
believed only once it agrees with the module on another.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ftax.errors import UnsupportedError
from ftax.records.record import JsonScalar
from ftax.steps.spec import Dtype

# (batch, sequence) -> the same module with inputs of that size; None keeps the size that it has.
Resize = Callable[[int | None, int | None], "LoadedModel"]


# Not compared by value: equality of tensors is a tensor.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedModel:
    """A module in eval mode whose parameters need no gradient, with two inputs of equal shapes.

    `args` and `kwargs` may nest lists, tuples and dicts; all their tensors are on `device`. `batch`
    is the number of requests in one call, `sequence` the tokens of each (None for images).
    `options` are JSON scalars. `warnings` are sentences that belong beside any result of this
    model.
    """

    name: str
    module: nn.Module = field(repr=False)
    args: tuple[Any, ...] = field(repr=False)
    kwargs: Mapping[str, Any] = field(repr=False)
    check_args: tuple[Any, ...] = field(repr=False)
    check_kwargs: Mapping[str, Any] = field(repr=False)
    batch: int
    sequence: int | None
    dtype: Dtype
    device: str
    options: Mapping[str, JsonScalar]
    parameter_count: int
    source: str
    warnings: tuple[str, ...] = ()
    # The arguments of `load_model` that make this model again, where they are enough.
    arguments: Mapping[str, JsonScalar] | None = field(default=None, repr=False)
    max_sequence: int | None = None  # the longest request that the model takes, if that is known
    resize: Resize | None = field(default=None, repr=False)
    # Arguments that are constant in the main inputs and not in the check inputs, and the check
    # inputs (args, kwargs) in which they are constant too, for a model that needs them so.
    varied: tuple[str, ...] = ()
    steady_check: tuple[tuple[Any, ...], Mapping[str, Any]] | None = field(default=None, repr=False)

    @property
    def reproducible(self) -> bool:
        """Whether another process can build the same model and inputs from `recipe()`."""
        return self.arguments is not None

    def recipe(self) -> dict[str, JsonScalar] | None:
        """JSON-able arguments: `load_model(**recipe)` builds this model again, in any process.

        None where it cannot: a module or inputs that exist only in this process.
        """
        return None if self.arguments is None else dict(self.arguments)

    def call(self) -> Any:
        """One forward pass on the main inputs, under the caller's gradient mode."""
        return self.module(*self.args, **self.kwargs)

    def call_check(self) -> Any:
        """One forward pass on the check inputs, under the caller's gradient mode."""
        return self.module(*self.check_args, **self.check_kwargs)

    def with_size(self, *, batch: int | None = None, sequence: int | None = None) -> "LoadedModel":
        """The same module with made inputs of another size; None keeps the size that it has.

        The inputs are those that `load_model` makes for that size. Raises UnsupportedError for
        inputs that were given, and InvalidArgumentError for a size that the model does not take.
        """
        if self.resize is None:
            raise UnsupportedError(
                f"{self.name} runs on inputs that were given, so ftax cannot make some of another "
                "size: give inputs of each size yourself"
            )
        return self.resize(batch, sequence)

    def keep_constants(self) -> "LoadedModel":
        """The same model checked on inputs in which what is constant stays so; it says why."""
        if self.steady_check is None:
            return self
        args, kwargs = self.steady_check
        note = (
            "other values than the constant ones take another path through the model, or fail: all "
            f"numbers are of inputs in which {', '.join(self.varied)} is constant"
        )
        return replace(
            self,
            check_args=args,
            check_kwargs=kwargs,
            steady_check=None,
            varied=(),
            warnings=(*self.warnings, note),
        )

    def bind(self) -> Callable[[], Any]:
        """`call` without a Python frame of ours: what a timed loop calls."""
        return functools.partial(self.module, *self.args, **self.kwargs)

    def given(self) -> tuple[Any, ...]:
        """All that calls are made with: main arguments, then those of the check."""
        return (self.args, dict(self.kwargs), self.check_args, dict(self.check_kwargs))

    def flat_inputs(self) -> list[torch.Tensor]:
        """The tensors of the main inputs, in pytree order: `args`, then `kwargs`."""
        return flatten_tensors((self.args, dict(self.kwargs)))

    def flat_check_inputs(self) -> list[torch.Tensor]:
        """The tensors of the check inputs, in the order of `flat_inputs`."""
        return flatten_tensors((self.check_args, dict(self.check_kwargs)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileModel:
    """What a measurement says of a model file; the fields of a LoadedModel that a cell needs."""

    name: str
    device: str
    dtype: Literal["fp32", "fp16", "bf16"]
    batch: int
    sequence: int | None = None
    options: dict[str, str | int | float | bool | None] = field(default_factory=dict)


Subject = LoadedModel | FileModel  # what a cell says of a model


def flatten_tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors among the leaves of `tree`."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
