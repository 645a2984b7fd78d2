"""What was checked of a runtime: whether it computes what eager computes, and the same each time.

There is one verdict on outputs, the worst of all inputs that were checked. A branch that goes the
other way on another input is not "bitwise equal", however equal the first input was. As with
`Preparation`, what code reads again is a field, and the rest is `details`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from ftax.errors import LONGEST_REASON, shorten

_AS_EAGER = "differs as eager from itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Equality:
    """Result of a comparison. ``difference`` is the largest relative norm over all outputs.
    ``repeats``: the reference gives these outputs each time, or at least was not seen to differ
    from itself by as much."""

    bitwise: bool
    within_tolerance: bool
    difference: float
    tolerance: float | None  # None in records that do not say
    problem: str | None  # in words, when not within tolerance
    has_nan: bool = False
    repeats: bool = True
    error: str = ""  # all of what was raised in the place of outputs

    def describe(self) -> str:
        """One short phrase for a table."""
        if self.bitwise:
            return "bitwise equal"
        if not self.repeats:
            return _AS_EAGER
        if self.within_tolerance:
            return f"equal within {self.difference:.1e}"
        return self.problem or "different"

    def to_dict(self) -> dict[str, object]:
        """JSON-able form, without the error if there is none. An infinite difference is stored as
        null."""
        finite = self.difference if math.isfinite(self.difference) else None
        stored = {**asdict(self), "difference": finite}
        return {name: value for name, value in stored.items() if name != "error" or value}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """What `to_dict` stored."""
        known = {"tolerance": None, "has_nan": False, "repeats": True, "error": "", **stored}
        if known["difference"] is None:
            known["difference"] = math.inf
        return cls(**{field.name: known[field.name] for field in fields(cls)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SameWork:
    """How many calls were observed while others were timed, how many of them in a row, of how many
    operator calls they are, and how one differed; "" if none did."""

    observed: int
    in_a_row: int
    calls: int
    problem: str

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """What was stored; a record of another program may lack the counts."""
        counts = {name: stored.get(name, 0) for name in ("observed", "in_a_row", "calls")}
        return cls(**counts, problem=str(stored.get("problem", "")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """``equal``: within the tolerance of the dtype on every input that was checked. ``problem``
    says what is wrong; "" if nothing is, and if nothing was checked."""

    equal: bool
    words: str  # for a table
    tolerance: float | None
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What was checked before the rounds, and of the same work while they went on: outputs on the
    main inputs and on a second set; None where that was not checked. ``baked``: the first number
    that a runtime repeats although the model reads it of inputs or state anew in each call."""

    outputs: Equality | None = None
    second_input: Equality | None = None
    same_work: SameWork | None = None
    baked: str = ""
    details: Mapping[str, object] = field(default_factory=dict)  # JSON-able, for readers

    @property
    def work_problem(self) -> str:
        """Why the calls that were timed were not all the same work; "" if that was not seen."""
        return "" if self.same_work is None else self.same_work.problem

    def judge_outputs(self) -> Outputs:
        """The worst of what is known of outputs."""
        if self.outputs is None:
            return Outputs(equal=False, words="not checked", tolerance=None, problem="")
        tolerance = self.outputs.tolerance
        known = {"": self.outputs}
        if self.second_input is not None:
            known["on a second input "] = self.second_input
        for where, found in known.items():
            if not found.within_tolerance:
                problem = shorten(f"{where}{found.problem}", LONGEST_REASON)
                return Outputs(equal=False, words=problem, tolerance=tolerance, problem=problem)
        words = "bitwise equal"
        if not all(found.repeats for found in known.values()):
            words = _AS_EAGER
        elif not all(found.bitwise for found in known.values()):
            words = f"equal within {max(found.difference for found in known.values()):.0e}"
        if self.second_input is None:
            words += ", on one input"
        if self.baked:
            words += ", numbers baked in"
        return Outputs(equal=True, words=words, tolerance=tolerance, problem="")

    def to_dict(self) -> dict[str, object]:
        """As `Measurement.checks` has it."""
        stored = dict(self.details)
        for name in ("outputs", "second_input"):
            if (found := getattr(self, name)) is not None:
                stored[name] = found.to_dict()
        if self.baked:
            stored["baked"] = self.baked
        return stored if self.same_work is None else {**stored, "same_work": asdict(self.same_work)}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """What `to_dict` stored, in a record of any version."""
        details = dict(stored)
        known = {name: details.pop(name, None) for name in ("outputs", "second_input", "same_work")}
        baked = details.pop("baked", "")
        outputs, second, work = (
            found if isinstance(found, Mapping) else None for found in known.values()
        )
        return cls(
            outputs=None if outputs is None else Equality.of(outputs),
            second_input=None if second is None else Equality.of(second),
            same_work=None if work is None else SameWork.of(work),
            baked=str(baked),
            details=details,
        )
