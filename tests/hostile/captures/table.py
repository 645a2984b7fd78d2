"""Odd things to capture, and what is changed between their calls: each with what has to become of
it.

An entry makes a whole scene, and the test plays it twice from the start, once with the original and
once with the capture. So nothing has to be copied, and globals may be changed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch

from support.small_models import normal

Outcome = Literal["right", "refused", "frozen"]
_T = TypeVar("_T", bound=Callable[..., Any])


def nothing(*_: Any) -> None:
    """What is done where nothing is."""


def one(seed: int) -> tuple[Any, ...]:
    return (normal(3, 4, seed=seed),)


def step_and_clear(loss: torch.Tensor, optimizer: Any) -> torch.Tensor:
    """A training step from its loss on, which leaves no gradients."""
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


@dataclass(slots=True, kw_only=True)
class Given:
    """Arguments of a call that are not all tensors in a tuple."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Scene:
    """``disturb(0)`` and ``disturb(1)`` are called between calls; ``watch()`` is all that a call
    may change; ``around()`` is the caller's mode; ``undo`` is called when all is over."""

    what: Any
    inputs: Callable[[int], Any] = one
    disturb: Callable[[int], object] = nothing
    watch: Callable[[], Any] = nothing
    around: Callable[[], Any] = torch.no_grad
    undo: Callable[[], object] = nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``recorded``: how many times the capture may record; None: not looked at. ``replayed``: how
    many of the six calls have to be replays. ``moves``: an iterator moves on, and nobody can put it
    back."""

    make: Callable[[], Scene]
    outcome: Outcome
    words: str
    recorded: int | None
    replayed: int
    moves: bool
    options: dict[str, Any]
    marks: Sequence[Any]


TABLE: dict[str, Case] = {}


def _enter(
    outcome: Outcome,
    words: str,
    *,
    recorded: int | None = None,
    replayed: int = 1,
    moves: bool = False,
    marks: Sequence[Any] = (),
    **options: Any,
) -> Callable[[_T], _T]:
    def enter(what: _T) -> _T:
        name = what.__name__.replace("_", " ")
        if name in TABLE or not (words or outcome == "right"):
            raise ValueError(f"{name} is entered twice, or nothing is expected to be said of it")
        is_captured = not isinstance(what, type) and bool(inspect.signature(what).parameters)

        def make() -> Scene:
            torch.manual_seed(0)
            made = what if is_captured else what()
            return made if isinstance(made, Scene) else Scene(made)

        TABLE[name] = Case(
            make=make,
            outcome=outcome,
            words=words,
            recorded=recorded,
            replayed=replayed,
            moves=moves,
            options=options,
            marks=marks,
        )
        return what

    return enter


def right(**options: Any) -> Callable[[_T], _T]:
    """All calls are those of the original, and some of them are replays."""
    return _enter("right", "", **options)


def refused(words: str, **options: Any) -> Callable[[_T], _T]:
    """The first capture, or one that a later call needs, says what cannot be done, and all stays as
    it was."""
    return _enter("refused", words, **options)


def frozen(words: str, **options: Any) -> Callable[[_T], _T]:
    """Calls do differ from the original, and `explain` said that they might."""
    return _enter("frozen", words, **options)


DEPENDS = "number that depends on inputs or state"
MEMORY = "reads a tensor's memory by"
CHANGES = "each call changes"
