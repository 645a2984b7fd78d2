"""Why numbers of a receipt are missing or not to go by: one sentence, and what to do.

It names the first cause that is there, in the order in which one makes the next likely. Every
warning is in the details.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ftax.ladders.evidence import TOO_FEW_TO_RESOLVE
from ftax.ladders.lines import Line
from ftax.ladders.receipt import Receipt
from ftax.timing.trust import DISTURBED_IN, TOO_FEW, find_disturbance

_MOST_S = 600.0  # that somebody may want to measure for
_REMEDY = "leave the machine alone"
_OR_WAIT = "--patience 60 waits until it is quiet"  # which ranks do not, each for the others


def say_reason(found: Receipt) -> tuple[str, ...]:
    """Why numbers are missing or not to go by, and what to do; () if all are."""
    if found.work_problem:
        remedy = "Measure a step whose work does not change."
        return (f"! Not the same work in each call: {found.work_problem}. {remedy}", "")
    what, why = _name_unresolved(found), _find_cause(found)
    if what:
        return (f"! {what} not resolved: {why}.", "")
    warnings = found.collect_warnings()
    is_told = find_disturbance(warnings) or _find_interruption(warnings)
    return (f"! {why[0].upper()}{why[1:]}.", "") if is_told else ()


def _name_unresolved(found: Receipt) -> str:
    """``'launch and graph are'``; "" if all lines are resolved."""
    lines = [line for line in found.lines if not line.resolved]
    if found.rungs[0].doubt:
        return "All of this is"
    if len(lines) > 1 and len(lines) >= len(found.lines) - 1:
        return "What each layer costs is"
    names = " and ".join(line.name for line in lines)
    return f"{names[0].upper()}{names[1:]} {'is' if len(lines) == 1 else 'are'}" if names else ""


def _find_cause(found: Receipt) -> str:
    """The one that makes the others likely, with its remedy."""
    warnings = found.collect_warnings()
    if interruption := _find_interruption(warnings):
        return f"{interruption}; run it again to the end"
    if disturbance := find_disturbance(warnings):
        rounds = disturbance.removeprefix(DISTURBED_IN).partition(" rounds")[0]
        remedy = _REMEDY if found.collectives else f"{_REMEDY}, or {_OR_WAIT}"
        return f"other programs used the CPU in{rounds} rounds; {remedy}"
    lines = [line for line in found.lines if not line.resolved]
    doubts = [found.rungs[0].doubt, *(line.problem or line.doubt for line in lines)]
    doubt = next(filter(None, doubts), "")
    if doubt.endswith(TOO_FEW):
        limits = (text for text in warnings if TOO_FEW_TO_RESOLVE in text)
        return next(limits, f"{doubt}; --duration measures more")
    return doubt or f"noise is larger; {_say_duration(lines, found)}"


def _find_interruption(warnings: Sequence[str]) -> str:
    return next((text for text in warnings if text.startswith("interrupted")), "")


def _say_duration(lines: Sequence[Line], found: Receipt) -> str:
    """How long to measure until they are resolved, as far as the rounds tell."""
    measured = (*found.rungs, *found.others)
    needed = max((line.rounds_needed or math.inf for line in lines), default=0)
    whole_ns = sum(item.burst * sum(map(sum, item.samples_ns)) for item in measured)
    seconds = needed / len(found.rungs[0].values_ns) * whole_ns / 1e9
    if seconds <= _MOST_S:
        return f"--duration {max(math.ceil(seconds), 1)} should do"
    return f"{'it' if len(lines) == 1 else 'they'} may as well be nothing"
