"""What one call of a step did, as whole numbers: how many operator calls, host reads, allocations,
and where each was made.

A count is offered only if it is the same in every run, but for instructions. `KINDS` says of each
what it may depend on beside the step: a baseline that was written elsewhere is compared as far as
that is alike. A place is known by the text of its line and not by the line's number, so that a
comment further up in a file changes no baseline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ftax.errors import InvalidArgumentError
from ftax.records.fields import FrozenMap
from ftax.records.record import Count, Name, Record


class Kind(NamedTuple):
    """What is counted, in words, and the settings on which it may depend beside the step; whether
    it is so much the same in every run that it has a baseline; whether a budget has to ask for it.
    """

    words: str
    depends_on: tuple[str, ...]
    has_baseline: bool = True
    on_request: bool = False


# Settings are those of `collect_setting`.
_DISPATCH = ("torch", "device")
_GPU = (*_DISPATCH, "gpu")
KINDS: dict[str, Kind] = {
    "operators": Kind("operator calls", _DISPATCH),
    "host_reads": Kind("host reads", _DISPATCH),
    "copies": Kind("copies between devices", _DISPATCH),
    "allocations": Kind("allocations", (*_DISPATCH, "cpu", "threads")),
    "allocated_bytes": Kind("allocated bytes", (*_DISPATCH, "cpu", "threads")),
    "python_calls": Kind("Python calls", ("python", *_DISPATCH)),
    "graph_breaks": Kind("graph breaks", ("python", *_DISPATCH)),
    "recompilations": Kind("recompilations", ("python", *_DISPATCH)),
    "instructions": Kind("host instructions", ("python", *_DISPATCH, "cpu"), False, True),
    "callgrind": Kind("instructions (callgrind)", ("software", "device", "threads"), True, True),
    "kernels": Kind("kernels", _GPU),
    "launches": Kind("kernel launches", _GPU),
    "graph_launches": Kind("graph launches", _GPU),
    "synchronisations": Kind("synchronisations", _GPU),
}


def check_kind(name: str) -> None:
    """Raises InvalidArgumentError for what is not counted."""
    if name not in KINDS:
        raise InvalidArgumentError(f"{name!r} is not counted: {', '.join(KINDS)} are")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact(Record):
    """``count`` times the step did ``what``, in the module and at the line that ``where`` tells:
    "in encoder.*.query at model.py in Model.forward: h = self.query(x)"; "" where that is not
    known. ``lines`` are where that line stands now: "model.py:12"."""

    what: Name
    where: str = ""
    count: Count = 1
    lines: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """By what a baseline knows it."""
        return f"{self.what} {self.where}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally(Record):
    """One count of a step: all that was counted, by place. ``problem`` says why the number may be
    another one in the next run; "" where it is exact."""

    facts: tuple[Fact, ...] = ()
    problem: str = ""

    @property
    def total(self) -> int:
        """The count."""
        return sum(fact.count for fact in self.facts)

    def find_new(self, known: Mapping[str, int]) -> Iterator[Fact]:
        """What there is more of than is ``known``, by key, and how much more. What only stands at
        another line now is nothing new."""
        for fact in self.facts:
            before = sum(n for key, n in known.items() if f"{key} ".startswith(f"{fact.what} "))
            now = sum(other.count for other in self.facts if other.what == fact.what)
            more = min(fact.count - known.get(fact.key, 0), now - before)
            if more > 0:
                yield Fact(what=fact.what, where=fact.where, count=more, lines=fact.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts(Record):
    """All that was counted of one step; ``setting`` is what the numbers may depend on, and
    ``missing`` why a count that a budget asks for was not made."""

    tallies: Mapping[str, Tally]
    setting: Mapping[str, str]
    missing: Mapping[str, str] = field(default_factory=lambda: FrozenMap({}))


class Notes:
    """Where facts are gathered while a step runs."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lines: dict[tuple[str, str], dict[str, None]] = {}

    def add(self, what: str, where: str = "", line: str = "", count: int = 1) -> None:
        """``count`` times more."""
        self._counts[what, where] += count
        if line:
            self._lines.setdefault((what, where), {})[line] = None

    def to_tally(self) -> Tally:
        """In an order that does not depend on that of the run."""
        return Tally(
            facts=tuple(
                Fact(what=what, where=where, count=count, lines=tuple(self._lines.get(key, ())))
                for key, count in sorted(self._counts.items())
                for what, where in [key]
                if count > 0
            )
        )
