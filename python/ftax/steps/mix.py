"""A workload: steps of different shapes, each with how often it comes.

The surprising choice: a mix is no step. It has no cell and no tape of its own; its parts are
measured as what they are, in the same rounds, and the mean is computed of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from torch import nn

from ftax.errors import InvalidArgumentError, name_type
from ftax.steps.loaded import LoadedModel
from ftax.steps.step import Step, check_name

Part = Step | LoadedModel | tuple[nn.Module, Any]

_FORMS = "give ftax.mix([(step, weight), ...])"
_PARTS = (
    "give a step (ftax.step, ftax.train, ftax.decode), ftax.load_model(...), or a pair of a module "
    "and its inputs"
)


# Not compared by value: equality of tensors is a tensor.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mix:
    """Parts and their weights, not yet looked at.

    Attributes:
        parts: steps, loaded models, or pairs of a module and its inputs, each with its weight: a
            positive number, of whatever unit, such as requests a second.
        name: by which results know it.
    """

    parts: tuple[tuple[Part, float], ...] = field(repr=False)
    name: str = "mix"

    def __post_init__(self) -> None:
        if not self.parts:
            raise InvalidArgumentError(f"a mix has no parts: {_FORMS}")
        for place, (part, weight) in enumerate(self.parts):
            if not _is_part(part):
                raise InvalidArgumentError(f"part {place} of a mix is {_describe(part)}: {_PARTS}")
            is_number = isinstance(weight, Real) and not isinstance(weight, bool)
            if not is_number or not 0 < weight <= sys.float_info.max:
                raise InvalidArgumentError(
                    f"the weight of part {place} is {weight!r}: give a finite number above 0, such "
                    "as how many of its requests come in a second"
                )
            if any(part is other for other, _ in self.parts[:place]):
                raise InvalidArgumentError(
                    f"part {place} of a mix is there already: give it once, with the sum of its "
                    "weights"
                )

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights, which sum to 1."""
        return compute_shares(self.weights)

    @property
    def weights(self) -> tuple[float, ...]:
        """As they were given."""
        return tuple(float(weight) for _, weight in self.parts)

    def list_given(self) -> Iterator[Any]:
        """All that the user handed in, of which measuring leaves everything as it was found."""
        for part, _ in self.parts:
            yield from part if isinstance(part, tuple) else (part,)


class MixGivenError(InvalidArgumentError):
    """A mix where one step is wanted; whoever takes mixes finds it here.

    Attributes:
        mix: what was given, or what the user's code gave.
    """

    def __init__(self, mix: Mix) -> None:
        count = len(mix.parts)
        super().__init__(
            f"{mix.name} is a mix of {count} part{'' if count == 1 else 's'}, which ftax.tax and "
            "`ftax tax` alone take: give one of its parts"
        )
        self.mix = mix


def mix(parts: Iterable[tuple[Part, float]], *, name: str = "mix") -> Mix:
    """A workload, measured by `ftax.tax`: several steps in the same rounds, and their mean.

    Args:
        parts: pairs of what is run and its weight. A part is a step (`ftax.step`, `ftax.train`,
            `ftax.decode`), an `ftax.load_model(...)`, or a pair of a module and its inputs. All
            have one device and one ladder. Weights are positive numbers of any unit: the share of
            a part is its weight by their sum. They count runs, not tokens or samples.
        name: by which results know it.

    Raises InvalidArgumentError for parts and weights of other kinds, for none, and for a part that
    is there twice.
    """
    try:
        pairs = [(part, weight) for part, weight in parts]
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"the parts of a mix are no pairs: {_FORMS}") from error
    check_name(name)
    return Mix(parts=tuple(pairs), name=name)


def compute_shares(weights: Sequence[float]) -> tuple[float, ...]:
    """The same, with a sum of 1."""
    largest = max(weights)  # for a sum that is finite, whatever the unit
    total = math.fsum(weight / largest for weight in weights)
    return tuple(weight / largest / total for weight in weights)


def tell_apart(parts: Sequence[tuple[str, int | None, int, int]]) -> tuple[str, ...]:
    """What parts are called, by (name, tokens, batch, units): the name; where several have it, with
    sizes in which they differ; numbered, where that is not enough."""
    words = [
        (name, f"{tokens} tokens" if tokens else "", f"batch {batch}", f"{units} units")
        for name, tokens, batch, units in parts
    ]
    names, *sizes = map(list, zip(*words, strict=True))
    for size in sizes:
        if len(set(names)) < len(names) and len(set(size)) > 1:
            names = [", ".join(filter(None, pair)) for pair in zip(names, size, strict=True)]
    return tuple(
        f"{name} ({names[:place].count(name) + 1})" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    )


def _is_part(part: object) -> bool:
    is_pair = isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], nn.Module)
    return isinstance(part, Step | LoadedModel) or is_pair


def _describe(part: object) -> str:
    if isinstance(part, nn.Module):
        return "a module without inputs"
    return repr(part) if isinstance(part, str) else name_type(part)
