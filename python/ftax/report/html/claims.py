"""The study of the paper on a page: verdicts on its claims, then its figures and tables.

The surprising choice: claims that cannot be tested are listed too, each with its reason. A page
that left them out would look as if the paper had said less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ftax.paper.claims_record import OUTCOMES, ClaimValue, Verdict
from ftax.report.claims_table import explain_outcome, format_number
from ftax.report.html.facets import Filter
from ftax.report.html.figures import ItemsView, make_items_views
from ftax.report.html.sources import Found
from ftax.report.html.sweeps import Sweeps
from ftax.report.html.view import Bar, Bars, Lead, Part

_MOST_TOLD = 3  # outcomes in the headline; the bar has them all
_MOST = 8  # numbers of a list that are shown
_THESIS, _PANELS = 3, 2  # at the top of the page, and how many panels of it
_TOLD = {  # at the top of the page, of one claim and of several
    "holds": ("holds today", "hold today"),
    "changed": ("has changed", "have changed"),
    "does not hold": ("does not hold", "do not hold"),
    "not resolved": ("is not resolved", "are not resolved"),
    "cannot be tested here": ("cannot be tested", "cannot be tested"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictView:
    """One verdict; ``numbers`` as (name, formula, the paper's, today's, intervals)."""

    verdict: Verdict
    ref: str
    certainty: str
    sentence: str
    numbers: tuple[tuple[str, str, str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsView:
    """Verdicts on the results of one machine; ``machine`` as they name it."""

    machine: str
    summary: str
    chart: Bars
    filters: tuple[Filter, ...]
    verdicts: tuple[VerdictView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyView:
    """All of the paper that the results have."""

    claims: tuple[ClaimsView, ...]
    machines: tuple[ItemsView, ...]


def make_study_view(found: Sequence[Found], sweeps: Sweeps) -> StudyView | None:
    """The study of the paper; None without verdicts, which every study ends with."""
    groups: dict[str, list[Found]] = {}
    for item in found:
        if isinstance(item.record, Verdict):
            groups.setdefault(item.record.machine, []).append(item)
    if not groups:
        return None
    ours = [name for name in groups if name]
    if len(ours) == 1 and "" in groups:  # what needs no machine is said beside the only one
        groups = {ours[0]: [item for item in found if isinstance(item.record, Verdict)]}
    views = tuple(_make_view(machine, group) for machine, group in groups.items())
    return StudyView(claims=views, machines=make_items_views(sweeps))


def make_lead(study: StudyView | None) -> Lead | None:
    """How the claims fare, and the figure that the paper is about."""
    if study is None:
        return None
    view = study.claims[0]
    figures = [figure for machine in study.machines for figure in machine.figures]
    shown = [figure for figure in figures if figure.item == f"fig{_THESIS}"][:1]
    panels = [
        (f"Figure {_THESIS}. {name}", plot) for figure in shown for name, plot in figure.panels
    ]
    return Lead(
        section="claims",
        text=view.summary,
        more="",
        charts=(("", view.chart), *panels[:_PANELS]),
        legend=shown[0].legend if shown else (),
    )


def _make_view(machine: str, group: Sequence[Found]) -> ClaimsView:
    counts = Counter(item.record.today for item in group)
    shown = [outcome for outcome in OUTCOMES if counts[outcome]]
    told = [f"{counts[name]} {_TOLD[name][counts[name] > 1]}" for name in shown]
    papers = Counter(item.record.paper for item in group)
    return ClaimsView(
        machine=machine or "On no single machine",
        summary=f"Of {len(group)} claims and checks of the paper, {', '.join(told[:_MOST_TOLD])}"
        + (f" on {machine}" if machine else ""),
        chart=_draw_outcomes(counts, len(group)),
        filters=(
            Filter(name="today", values=tuple(shown), counts=tuple(counts[name] for name in shown)),
            Filter(
                name="paper", values=tuple(papers), counts=tuple(papers.values()),
                label="the paper's own data",
            ),
        ),
        verdicts=tuple(_make_verdict(item) for item in group),
    )  # fmt: skip


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


def _make_verdict(item: Found) -> VerdictView:
    verdict: Verdict = item.record
    share = verdict.shares.get(verdict.today)
    return VerdictView(
        verdict=verdict,
        ref=item.ref,
        certainty="" if share is None else f"{share:.0%}",
        sentence=verdict.sentence or explain_outcome(verdict),
        numbers=tuple(map(_describe_value, verdict.values)),
    )


def _describe_value(value: ClaimValue) -> tuple[str, str, str, str, str]:
    ends = zip(value.low, value.high, strict=True)
    return (
        value.name,
        value.formula,
        _join(map(format_number, value.paper)) or "no data",
        _join(map(format_number, value.today)) or value.why,
        _join(f"{format_number(low)} to {format_number(high)}" for low, high in ends),
    )


def _join(texts: Iterable[str]) -> str:
    listed = list(texts)
    more = f" and {len(listed) - _MOST} more" if len(listed) > _MOST else ""
    return "; ".join(listed[:_MOST]) + more
