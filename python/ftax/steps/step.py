"""A step: what is measured once, as its user says it.

A module's forward pass is one kind of step; here is any other callable: a decoded token, a training
step, a function. What a step writes need not be listed. Tensors that it writes and did not make are
found by watching it (`ftax.steps.state`); only what Python keeps (a list that grows, a position)
has to be brought back by the user's own `reset`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, overload

import torch

from ftax.errors import InvalidArgumentError, check_count, name_type
from ftax.steps.feeds import Feed
from ftax.steps.setting import GradMode


# Not compared by value: equality of tensors is a tensor.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """One step, not yet looked at.

    Attributes:
        function: what runs, called as ``function(*inputs)``.
        inputs, check_inputs: as for `ftax.load_model`.
        state: tensors that it writes, beside those that are found by watching it.
        reset: called without arguments before each run, outside its time: brings back what Python
            keeps. It does not draw random numbers and makes no new tensors that the step reads.
        units: how many tokens, samples or the like one run makes.
        sequence: tokens of a request, where the inputs do not tell: of the prompt, in decoding.
        name: by which results know it.
        kind: "step", "train" or "decode"; "call": it is captured, and not measured.
        grad_mode: None: the caller's, when it is measured.
        feed: where its inputs come from: it gives these, or the next ones.
        through_library: does the same work as the library that people use does it, such as by
            `generate()`.
    """

    function: Callable[..., Any]
    inputs: Any = field(default=(), repr=False)
    check_inputs: Any = field(default=None, repr=False)
    state: tuple[torch.Tensor, ...] = field(default=(), repr=False)
    reset: Callable[[], object] | None = field(default=None, repr=False)
    units: int = 1
    sequence: int | None = None
    name: str = "step"
    kind: str = "step"
    grad_mode: GradMode | None = None
    feed: Feed | None = field(default=None, repr=False)
    through_library: Callable[[], object] | None = field(default=None, repr=False)
    _undo: list[Callable[[], None]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidArgumentError(
                f"a step is given {name_type(self.function)}, which cannot be called: give a "
                "function of its inputs"
            )
        if self.reset is not None and not callable(self.reset):
            raise InvalidArgumentError(
                f"reset is {name_type(self.reset)}: give a function without arguments"
            )
        check_name(self.name)
        is_whole = isinstance(self.units, Integral) and not isinstance(self.units, bool)
        # As tokens or samples that one run makes; a record has no number of numpy.
        object.__setattr__(self, "units", int(self.units) if is_whole else self.units)
        check_count("units", self.units)
        for item in self.state:
            if not isinstance(item, torch.Tensor):
                raise InvalidArgumentError(
                    f"state holds {name_type(item)}: give tensors, and reset= for all else"
                )

    def undo_later(self, undo: Callable[[], None]) -> None:
        """Have `undo_all` call this: it makes what running the step changed as it was."""
        self._undo.append(undo)

    def undo_all(self) -> None:
        """What was measured is afterwards as it was found."""
        while self._undo:
            self._undo.pop()()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself: what is decorated stays what it was."""
        return self.function(*args, **kwargs)


def check_name(name: object) -> None:
    """Raise InvalidArgumentError for what is no line of text, by which results could be known."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise InvalidArgumentError(f"name is {name!r}: give a line of text that is not empty")


@overload
def step(
    function: Callable[..., Any],
    inputs: Any = (),
    *,
    state: Sequence[torch.Tensor] = (),
    reset: Callable[[], object] | None = None,
    check_inputs: Any = None,
    units: int = 1,
    name: str | None = None,
) -> Step: ...


@overload
def step(
    function: None = None,
    inputs: Any = (),
    *,
    state: Sequence[torch.Tensor] = (),
    reset: Callable[[], object] | None = None,
    check_inputs: Any = None,
    units: int = 1,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Step]: ...


def step(
    function: Callable[..., Any] | None = None,
    inputs: Any = (),
    *,
    state: Sequence[torch.Tensor] = (),
    reset: Callable[[], object] | None = None,
    check_inputs: Any = None,
    units: int = 1,
    name: str | None = None,
) -> Step | Callable[[Callable[..., Any]], Step]:
    """Any callable as a step that `ftax.tax` and its kin take; also a decorator.

    Args:
        function: runs once, as ``function(*inputs)``. Autograd is on, unless the caller has it off.
        inputs, check_inputs: as for `ftax.load_model`; none for a function without arguments. What
            a step learns from check inputs is whether its work depends on values.
        state: tensors that it writes. Needless for what operators write: that is found by watching.
        reset: brings back, before each run and outside its time, what Python keeps.
        units: how many tokens, samples or the like one run makes.
        name: by which results know it; the function's own, if left out.

    Raises InvalidArgumentError for arguments of other kinds.
    """

    if isinstance(state, torch.Tensor) or not isinstance(state, Iterable):
        raise InvalidArgumentError(
            f"state is {name_type(state)}: give a sequence of tensors, such as (tensor,)"
        )

    def make(chosen: Callable[..., Any]) -> Step:
        return Step(
            function=chosen,
            inputs=inputs,
            check_inputs=check_inputs,
            state=tuple(state),
            reset=reset,
            units=units,
            name=name or getattr(chosen, "__name__", "") or name_type(chosen),
        )

    return make if function is None else make(function)


class StandIn:
    """Measured as what it stands for, beside which it is a row of its own."""

    def open(self, inputs: Any = None) -> tuple[Any, Any]:
        """A module or a step, and its inputs; those that are given, if any."""
        raise NotImplementedError
