"""Whether a runtime computed what eager computes, as the checks of a measurement say it.

The surprising choice: there is one answer, the worst of all inputs that were checked. A branch that
goes the other way on another input is not "bitwise equal", however equal the first input was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Checks by name, and how each input is called.
_INPUTS = {"outputs": "", "second_input": "on a second input "}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """``equal``: within the tolerance of the dtype on every input that was checked. ``problem``
    says what is wrong; "" if nothing is, and if nothing was checked."""

    equal: bool
    words: str  # for a table
    tolerance: float | None
    problem: str


def read_outputs(checks: Mapping[str, object]) -> Outputs:
    """The worst of what ``checks`` of a measurement (or of what was prepared) say of outputs."""
    found: dict[str, Any] = {
        name: facts for name in _INPUTS if isinstance(facts := checks.get(name), Mapping)
    }
    if "outputs" not in found:
        return Outputs(equal=False, words="not checked", tolerance=None, problem="")
    tolerance = found["outputs"].get("tolerance")
    for name, facts in found.items():
        if not facts["within_tolerance"]:
            problem = f"{_INPUTS[name]}{facts['problem']}"
            return Outputs(equal=False, words=problem, tolerance=tolerance, problem=problem)
    words = "bitwise equal"
    if not all(facts["bitwise"] for facts in found.values()):
        words = f"equal within {max(facts['difference'] for facts in found.values()):.0e}"
    if len(found) < len(_INPUTS):
        words += ", on one input"
    return Outputs(equal=True, words=words, tolerance=tolerance, problem="")


def read_work_problem(checks: Mapping[str, object]) -> str:
    """Why the calls that were timed were not all the same work; "" if that was not seen."""
    watched = checks.get("same_work")
    return str(watched.get("problem", "")) if isinstance(watched, Mapping) else ""
