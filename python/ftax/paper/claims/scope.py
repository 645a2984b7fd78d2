"""What the file of claims does not say: how each is put to the test today, from a file of its own.

The surprising choice: where the paper's repository has no numbers the formulas are ours, and their
conditions have no outcome on the paper's side. data/README.md says what the file may hold.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ftax.errors import ResultsError
from ftax.paper.reference import read_data

CONSISTENCY = "consistency-check"
OWN_NUMBERS = "it compares numbers of the paper with each other; there is nothing to measure"


class RequiredCell(NamedTuple):
    """A cell by the names of today: the zoo's model, "runtime/host", and sizes.

    The sequence is None for models of images.
    """

    model: str
    framework: str
    dtype: str
    batch: int
    sequence: int | None

    def label(self) -> str:
        """A short form for people, such as "bert-base eager/python fp16 b1 s128"."""
        length = "" if self.sequence is None else f" s{self.sequence}"
        return f"{self.model} {self.framework} {self.dtype} b{self.batch}{length}"


class Condition(NamedTuple):
    """A condition and what it says; ``relation`` is what is left of it without its size, ``left``
    what that says. "" where nothing is."""

    expression: str
    about: str
    relation: str = ""
    left: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amendment:
    """What a claim is today, as far as it is not what the file of claims says.

    Attributes:
        untestable: why no results can test it.
        names_its_gpus: each condition looks at one GPU, and yet it means that one and no other.
        saying: what its conditions say, around the file's short words for each.
        keeps_names: whether names of GPUs stay in these words.
        operands: selectors of today's cells, instead of the paper's operands and formulas.
        changes: of conditions, by number: fields of `Condition` that are others.
    """

    untestable: str = ""
    names_its_gpus: bool = False
    saying: str = "{}"
    keeps_names: bool = False
    operands: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    compute: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    changes: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


@functools.cache
def list_amendments() -> Mapping[str, Amendment]:
    """By the ids of claims."""
    return {name: _make(item) for name, item in json.loads(read_data("claims_today.json")).items()}


def find_amendment(claim: str) -> Amendment:
    """That of the claim with this id; one that changes nothing for most."""
    return list_amendments().get(claim, Amendment())


def find_varied(selector: Mapping[str, Any]) -> str:
    """The field of a selector that has a list of values; "" if each has one.

    Raises ResultsError if several have.
    """
    lists = [name for name, value in selector.items() if isinstance(value, list)]
    if len(lists) > 1:
        raise ResultsError(f"selector {dict(selector)} varies {lists}; it may vary one field")
    return lists[0] if lists else ""


def split_selector(selector: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A selector of one thing for each value of the list in it."""
    over = find_varied(selector)
    for value in selector[over] if over else ():
        yield {**selector, over: value}
    if not over:
        yield dict(selector)


def _make(item: Mapping[str, Any]) -> Amendment:
    conditions = tuple(Condition(**each) for each in item.get("conditions", ()))
    changes = {int(index): change for index, change in item.get("changes", {}).items()}
    return Amendment(**{**item, "conditions": conditions, "changes": changes})
