"""Holds counts to a budget: what there is more of than there may be, and where."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ftax.budgets.baselines import Baseline
from ftax.budgets.budget_file import Budget
from ftax.budgets.counts import KINDS, Counts, Fact, Tally
from ftax.errors import say_count

Verdict = Literal["within", "below", "breach", "cannot tell", "no budget"]
_CAN_BE_ALLOWED = ("host_reads", "copies", "synchronisations")
_MOST_PLACES = 10  # that a breach names


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One count of one step, held to its budget.

    Attributes:
        most: what it may be; None if nothing says so.
        source: what says so: "budget", "baseline" or a git revision, and what may be added to it.
        verdict: "below" is within, and less than the baseline by more than what may be added to
            it; "cannot tell": more than it, but the count is not exact, or the baseline is of
            another setting.
        new: what there is more of than in the baseline; all that was counted where that is nothing.
        problem: why it cannot be told.
    """

    step: str
    kind: str
    measured: int | None
    most: int | None
    source: str
    verdict: Verdict
    new: tuple[Fact, ...] = ()
    problem: str = ""

    @property
    def is_over(self) -> bool:
        """Whether there are more than there may be, certain or not."""
        return self.most is not None and self.measured is not None and self.measured > self.most

    @property
    def words(self) -> str:
        """What was counted."""
        return KINDS[self.kind].words

    @property
    def limit(self) -> str:
        """``5 (baseline)``; "" if there is none."""
        return "" if self.most is None else f"{self.most:,} ({self.source})"

    @property
    def got(self) -> str:
        """What was counted; "" if nothing was."""
        return "" if self.measured is None else f"{self.measured:,}"

    def describe(self) -> str:
        """``host reads: expected at most 0 (budget), got 1``."""
        limit = f"expected at most {self.limit}, " if self.limit else ""
        if self.measured is None:
            return f"{self.words}: {limit}{self.problem}"
        why = f"; {self.problem}" if self.problem else ""
        return f"{self.words}: {limit}got {self.got}{why}"

    def list_places(self) -> Iterator[str]:
        """What is new, and below it the line: ``at model.py:12 in forward: +1 aten::add``."""
        places: dict[str, list[str]] = {}
        for fact in self.new:
            places.setdefault(_say_where(fact), []).append(f"+{fact.count:,} {fact.what}")
        for where, new in list(places.items())[:_MOST_PLACES]:
            place, _, text = where.partition(": ")
            yield f"{place or 'at no line that is known'}: {', '.join(new)}"
            if text:
                yield f"    {text}"
        if len(places) > _MOST_PLACES:
            yield f"and {say_count(len(places) - _MOST_PLACES, 'more place')}"


def _say_where(fact: Fact) -> str:
    """With the numbers of its lines, which the key leaves out."""
    if not fact.lines:
        return fact.where
    file = fact.lines[0].rpartition(":")[0]
    more = [line.rpartition(":")[2] for line in fact.lines[1:]]
    return fact.where.replace(file, ", ".join([fact.lines[0], *more]), 1)


def hold(name: str, counts: Counts, budget: Budget, baseline: Baseline | None) -> list[Held]:
    """Each count that was made, and each that the budget or the baseline has."""
    kinds = [
        kind
        for kind in KINDS
        if kind in counts.tallies
        or kind in budget.most
        or kind in budget.more
        or (baseline and kind in baseline.facts and not KINDS[kind].on_request)
    ]
    return [_hold(name, kind, counts, budget, baseline) for kind in kinds]


def _hold(name: str, kind: str, counts: Counts, budget: Budget, baseline: Baseline | None) -> Held:
    tally = counts.tallies.get(kind)
    facts = None if baseline is None else baseline.facts.get(kind)
    if kind in _CAN_BE_ALLOWED:
        allowed = budget.allow
        tally = None if tally is None else _leave_out(tally, allowed)
        facts = facts and {key: n for key, n in facts.items() if not _has_any(key, allowed)}
    known = None if facts is None else sum(facts.values())
    more = budget.more.get(kind, 0.0)
    most, source = known, "" if baseline is None or known is None else baseline.source
    if kind in budget.most:
        most, source = budget.most[kind], "budget"
    elif known is not None and kind in budget.more:
        most, source = _add_share(known, more), f"{source} + {100 * more:g} %"
    held = Held(step=name, kind=kind, measured=None if tally is None else tally.total, most=most,
                source=source, verdict="no budget")  # fmt: skip
    if tally is not None and tally.problem and (most is not None or source == ""):
        return replace(held, verdict="cannot tell", problem=tally.problem)
    if why := counts.missing.get(kind):
        return replace(held, verdict="cannot tell", problem=f"and not counted: {why}")
    if most is None:
        return held
    if tally is None:
        return replace(held, verdict="cannot tell", problem=_say_why_not(kind))
    if not held.is_over:
        is_less = known is not None and tally.total < known - (_add_share(known, more) - known)
        return replace(held, verdict="below" if is_less else "within")
    if kind in _CAN_BE_ALLOWED and budget.allow and not _is_over_at_lines(tally, held):
        return replace(held, verdict="cannot tell", problem="some have no line to be allowed by")
    held = replace(held, new=tuple(tally.find_new(facts or {})) or tally.facts)
    if source != "budget" and (other := find_other_setting(kind, counts.setting, baseline)):
        return replace(held, verdict="cannot tell", problem=other)
    return replace(held, verdict="breach")


def _is_over_at_lines(tally: Tally, held: Held) -> bool:
    """Whether those with a line alone are too many."""
    placed = Tally(facts=tuple(fact for fact in tally.facts if "at " in fact.where))
    return replace(held, measured=placed.total).is_over


def _add_share(number: int, share: float) -> int:
    """In whole numbers; what floating point lacks of one is one."""
    return math.floor(round(number * (1 + share), 6))


def _say_why_not(kind: str) -> str:
    if kind in ("graph_breaks", "recompilations"):
        return "and torch.compile makes no part of the step"
    if kind == "instructions":
        return "and this machine does not count them; callgrind does"
    return "and CUPTI saw no GPU in it" if "gpu" in KINDS[kind].depends_on else "and not counted"


def _leave_out(tally: Tally, allow: tuple[str, ...]) -> Tally:
    kept = [fact for fact in tally.facts if not _has_any(fact.key, allow)]
    return replace(tally, facts=tuple(kept))


def _has_any(key: str, allow: tuple[str, ...]) -> bool:
    return any(text in key for text in allow)


def find_other_setting(kind: str, now: Mapping[str, str], baseline: Baseline | None) -> str:
    """On which setting the count may depend that the baseline has another value of; "" on none."""
    for name in KINDS[kind].depends_on:
        before = (baseline.setting if baseline else {}).get(name, "")
        if baseline is not None and _shorten(name, before) != _shorten(name, now.get(name, "")):
            return f"the baseline is of {name} {before or 'none'}, and this is {now.get(name)}"
    return ""


def _shorten(name: str, value: str) -> str:
    """Of torch its minor version, within which calls stay what they are."""
    return ".".join(value.split(".")[:2]) if name == "torch" else value
