"""Verdicts on the paper's claims: the counts, a row a claim, and the numbers behind each.

The surprising choice: claims that cannot be tested are listed too, each with its reason. A page
that left them out would look as if the paper had said less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ftax.paper.claims.record import OUTCOMES, ClaimValue, Verdict
from ftax.paper.claims.tables import explain_outcome
from ftax.reports.html.sources import Found
from ftax.reports.html.view import TableView
from ftax.reports.table import Rows

_NOTHING = "-"
_UNTESTED = "cannot be tested here"
_MOST = 8  # numbers of a list that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsView:
    """Verdicts on the results of one machine; ``machine`` as they name it."""

    machine: str
    summary: str
    tested: TableView | None
    untested: TableView | None
    values: TableView | None
    notes: tuple[str, ...]


def make_claims_views(found: Sequence[Found]) -> list[ClaimsView]:
    """The verdicts of each machine; none without records of them."""
    groups: dict[str, list[Found]] = {}
    for item in found:
        if isinstance(item.record, Verdict):
            groups.setdefault(item.record.machine, []).append(item)
    return [_make_view(machine, group) for machine, group in groups.items()]


def _make_view(machine: str, group: Sequence[Found]) -> ClaimsView:
    counts = Counter(item.record.today for item in group)
    told = ", ".join(f"{outcome} {counts[outcome]}" for outcome in OUTCOMES if counts[outcome])
    tested = [item for item in group if item.record.today != _UNTESTED]
    untested = [item for item in group if item.record.today == _UNTESTED]
    values = [(item, value) for item in tested for value in item.record.values]
    notes = [f"{item.record.id}: {note}" for item in group for note in item.record.notes]
    return ClaimsView(
        machine=machine or "On no single machine",
        summary=f"{len(group)} {'claim' if len(group) == 1 else 'claims'}: {told}.",
        tested=_make_table("Claims of the paper, then and now", tested),
        untested=_make_table(f"Claims that cannot be tested here: {len(untested)}", untested),
        values=_make_values(values) if values else None,
        notes=tuple(dict.fromkeys(notes)),
    )


def _make_table(title: str, group: Sequence[Found]) -> TableView | None:
    if not group:
        return None
    return TableView(
        rows=Rows(
            title=title,
            columns=(
                "claim",
                "section",
                "what it says",
                "the paper's data",
                "today",
                "certainty",
                "in a sentence",
                "why",
            ),
            numeric=("certainty",),
            rows=tuple(_describe(item.record) for item in group),
        ),
        records=tuple(item.ref for item in group),
    )


def _make_values(values: Sequence[tuple[Found, ClaimValue]]) -> TableView:
    return TableView(
        rows=Rows(
            title="Numbers behind the verdicts",
            columns=("claim", "number", "formula", "paper", "today", "95 % interval"),
            numeric=("paper", "today"),
            rows=tuple(_describe_value(item.record, value) for item, value in values),
        ),
        records=tuple(item.ref for item, _ in values),
    )


def _describe(verdict: Verdict) -> tuple[str, ...]:
    share = verdict.shares.get(verdict.today)
    return (
        verdict.id,
        verdict.section or _NOTHING,
        verdict.claim,
        verdict.paper,
        verdict.today,
        _NOTHING if share is None else f"{share:.0%}",
        verdict.sentence or explain_outcome(verdict) or _NOTHING,
        verdict.reason or _NOTHING,
    )


def _describe_value(verdict: Verdict, value: ClaimValue) -> tuple[str, ...]:
    ends = [f"{low:.3g} to {high:.3g}" for low, high in zip(value.low, value.high, strict=True)]
    return (
        verdict.id,
        value.name,
        value.formula,
        _join(f"{number:.4g}" for number in value.paper),
        _join(f"{number:.4g}" for number in value.today) if value.today else value.why,
        _join(ends),
    )


def _join(texts: Iterable[str]) -> str:
    listed = list(texts)
    more = f" and {len(listed) - _MOST} more" if len(listed) > _MOST else ""
    return ("; ".join(listed[:_MOST]) + more) or _NOTHING
