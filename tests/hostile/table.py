"""What an entry of the table of odd modules holds, and the words by which one is entered.

An entry is a decorator, so that a module stands beside what is expected of it. A class is built
without arguments, a function of tensors is a forward pass, and a function of nothing makes the
module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from support.small_models import Lambda, normal

Outcome = Literal["right", "refused", "marked"]
_T = TypeVar("_T", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One odd module. ``inputs(seed)``: 0 are measured, 1 are the check inputs where ``check``, 2
    are what nobody but the test has seen. ``words`` must occur in what ftax says of it."""

    make: Callable[[], nn.Module]
    outcome: Outcome
    words: str
    inputs: Callable[[int], Any]
    check: bool
    runtimes: Any
    marks: Sequence[Any]


TABLE: dict[str, Case] = {}


def one(seed: int) -> tuple[torch.Tensor, ...]:
    return (normal(3, 4, seed=seed),)


def signed(seed: int) -> tuple[torch.Tensor, ...]:
    """Above 0 everywhere, or below it for the check inputs: branches go both ways."""
    return (normal(3, 4, seed=seed).abs() * (-1 if seed == 1 else 1),)


class Inner(nn.Module):
    """A function in a part called ``gate``, so that a message has a path to name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.gate = Lambda(function)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.gate(*args, **kwargs)


def _enter(outcome: Outcome, words: str, options: dict[str, Any]) -> Callable[[_T], _T]:
    def enter(what: _T) -> _T:
        name = what.__name__.replace("_", " ")
        if name in TABLE or not (words or outcome == "right"):
            raise ValueError(f"{name} is entered twice, or nothing is expected to be said of it")
        is_forward = not isinstance(what, type) and inspect.signature(what).parameters

        def make() -> nn.Module:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                return Inner(what) if is_forward else what()

        TABLE[name] = Case(
            make=make,
            outcome=outcome,
            words=words,
            **{
                "inputs": signed if options.get("check") else one,
                "check": False,
                "runtimes": "none",
                "marks": (),
                **options,
            },
        )
        return what

    return enter


def right(words: str = "", **options: Any) -> Callable[[_T], _T]:
    """The tape is there, and is the model on inputs that ftax never saw."""
    return _enter("right", words, options)


def refused(words: str, **options: Any) -> Callable[[_T], _T]:
    """No tape, or no measurement, and one of ftax's own errors says why."""
    return _enter("refused", words, options)


def marked(words: str, **options: Any) -> Callable[[_T], _T]:
    """There are numbers, and a warning beside them says what is not as it seems."""
    return _enter("marked", words, options)
