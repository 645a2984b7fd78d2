"""Verdicts on the paper's claims for a page: how many hold, each with its numbers, and filters.

The surprising choice: claims that cannot be tested are listed too, each with its reason. A page
that left them out would look as if the paper had said less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ftax.paper.claims.helpers import list_some
from ftax.paper.claims.record import OUTCOMES, ClaimValue, Verdict
from ftax.paper.claims.tables import explain_outcome, format_number
from ftax.reports.html.sources import Found
from ftax.reports.html.view import Bar, Bars, Part

_MOST = 8  # numbers of a list that are shown
_MOST_TOLD = 3  # outcomes in the headline; the bar has them all
_TOLD = {  # at the top of the page, of one claim and of several
    "holds": ("holds today", "hold today"),
    "changed": ("has changed", "have changed"),
    "does not hold": ("does not hold", "do not hold"),
    "not resolved": ("is not resolved", "are not resolved"),
    "cannot be tested here": ("cannot be tested", "cannot be tested"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsView:
    """Verdicts on the results of one machine; ``machine`` as they name it.

    Attributes:
        choices: what filters offer: (field, its name, how many there are of each value).
        verdicts: each with what it comes to, and its numbers as
            (name, formula, the paper's, today's, intervals).
    """

    machine: str
    summary: str
    chart: Bars
    choices: tuple[tuple[str, str, Counter[str]], ...]
    verdicts: tuple[tuple[Found, str, tuple[tuple[str, ...], ...]], ...]


def make_claims_views(found: Sequence[Found]) -> list[ClaimsView]:
    """The verdicts of each machine; none without records of them."""
    verdicts = [item for item in found if isinstance(item.record, Verdict)]
    groups: dict[str, list[Found]] = {}
    for item in verdicts:
        groups.setdefault(item.record.machine, []).append(item)
    machines = [name for name in groups if name]
    if len(machines) == 1:  # what needs no machine is said beside the only one
        groups = {machines[0]: verdicts}
    return [_make_view(machine, group) for machine, group in groups.items()]


def _make_view(machine: str, group: Sequence[Found]) -> ClaimsView:
    counts = Counter(str(item.record.today) for item in group)
    today: Counter[str] = Counter({name: counts[name] for name in OUTCOMES if counts[name]})
    told = [f"{count} {_TOLD[name][count > 1]}" for name, count in today.items()]
    where = f" on {machine}" if machine else ""
    return ClaimsView(
        machine=machine or "On no single machine",
        summary=f"Of {len(group)} claims and checks of the paper, "
        f"{', '.join(told[:_MOST_TOLD])}{where}",
        chart=_draw_outcomes(counts, len(group)),
        choices=(
            ("today", "today", today),
            ("paper", "the paper's own data", Counter(item.record.paper for item in group)),
        ),
        verdicts=tuple(
            (
                item,
                item.record.sentence or explain_outcome(item.record),
                tuple(map(_describe_value, item.record.values)),
            )
            for item in group
        ),
    )


def _draw_outcomes(counts: Counter[str], every: int) -> Bars:
    """One bar of all claims, cut where outcomes change."""
    start, parts, legend = 0.0, [], []
    for outcome in OUTCOMES:
        count, kind = counts[outcome], f"outcome-{outcome.replace(' ', '-')}"
        if count:
            width = 100 * count / every
            parts.append(Part(start=start, width=width, kind=kind, text=str(count)))
            legend.append((kind, f"{outcome} {count}"))
            start += width
    bar = Bar(name="claims and checks", value=str(every), parts=tuple(parts))
    return Bars(label="Claims of the paper by what holds today", bars=(bar,), legend=tuple(legend))


def _describe_value(value: ClaimValue) -> tuple[str, ...]:
    ends = zip(value.low, value.high, strict=True)
    return (
        value.name,
        value.formula,
        _join(map(format_number, value.paper)) or "no data",
        _join(map(format_number, value.today)) or value.why,
        _join(f"{format_number(low)} to {format_number(high)}" for low, high in ends),
    )


def _join(texts: Iterable[str]) -> str:
    return list_some(texts, _MOST, more=" and {} more")
