"""Verdicts of claims as tables: one row a claim, and the conditions and numbers behind each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import get_args

from ftax.paper.claims.arithmetic import list_some
from ftax.paper.claims.claim_verdict import OUTCOMES, ClaimValue, PaperVerdict, Verdict
from ftax.reports.columns import NOTHING, Cell
from ftax.reports.table import Rows

_ANSWERS = {True: "holds", False: "does not hold", None: "no data"}
_NUMBERS = {"paper": "paper", "today": "today", "95 % low": "low", "95 % high": "high"}
_MOST_VALUES = 3
_MOST_NUMBERS = 4


def make_claims_tables(verdicts: Sequence[Verdict]) -> list[Rows]:
    """How many of each outcome, the verdicts, then conditions and numbers."""
    return [
        make_outcome_table(verdicts),
        make_claims_table(verdicts),
        make_condition_table(verdicts),
        make_value_table(verdicts),
    ]


def make_claims_table(verdicts: Sequence[Verdict]) -> Rows:
    """A row a verdict."""
    cells: dict[str, Cell] = {
        "claim": "id",
        "section": "section",
        "what it says": "claim",
        "paper's data": "paper",
        "today": "today",
        "in a sentence": lambda verdict: verdict.sentence or NOTHING,
        "machine": lambda verdict: verdict.machine or NOTHING,
        "conditions": _count_conditions,
        "paper -> today": describe_numbers,
        "why": lambda verdict: describe_reason(verdict) or NOTHING,
    }
    return Rows.of("Claims of the paper", verdicts, cells, text={*cells} - {"conditions"})


def make_outcome_table(verdicts: Sequence[Verdict]) -> Rows:
    """How many claims have which outcome, by that of the paper's own data."""
    counts = Counter((verdict.today, verdict.paper) for verdict in verdicts)

    def count(*papers: PaperVerdict) -> Cell:
        return lambda outcome: sum(counts[outcome, paper] for paper in papers)

    papers: tuple[PaperVerdict, ...] = get_args(PaperVerdict)
    return Rows.of(
        "Today, by what the paper's own data say",
        OUTCOMES,
        {"today": str, "all": count(*papers), **{paper: count(paper) for paper in papers}},
        text=("today",),
    )


def make_condition_table(verdicts: Sequence[Verdict]) -> Rows:
    """A row a condition."""
    cells: dict[str, Cell] = {
        "claim": "0.id",
        "machine": lambda pair: pair[0].machine or NOTHING,
        "condition": "1.about",
        "paper's data": lambda pair: _ANSWERS[pair[1].paper],
        "today": "1.today",
        "resamples": ("1.share", "{:.0%}".format),
        "why": lambda pair: pair[1].why or NOTHING,
    }
    pairs = [(verdict, test) for verdict in verdicts for test in verdict.tests]
    return Rows.of("Conditions", pairs, cells, text={*cells} - {"resamples"})


def make_value_table(verdicts: Sequence[Verdict]) -> Rows:
    """A row a number, and for each item of a list."""
    places = [
        (verdict, value, index, max(len(value.paper), len(value.today), 1))
        for verdict in verdicts
        for value in verdict.values
        for index in range(max(len(value.paper), len(value.today), 1))
    ]
    return Rows.of(
        "Numbers of the claims",
        places,
        {
            "claim": "0.id",
            "machine": lambda place: place[0].machine or NOTHING,
            "name": lambda place: place[1].name + (f"[{place[2]}]" if place[3] > 1 else ""),
            **{column: _find_number(field) for column, field in _NUMBERS.items()},
            "why": lambda place: place[1].why or NOTHING,
        },
        text=("claim", "machine", "name", "why"),
    )


def describe_numbers(verdict: Verdict) -> str:
    """The first numbers of a claim, the paper's before today's: "cut_b1 73.3 -> 81.2 [80.9, 81.6]";
    a dash if it computes none."""
    values = map(_describe_value, verdict.values)
    return list_some(values, _MOST_VALUES, more="; and {} more") or NOTHING


def describe_reason(verdict: Verdict) -> str:
    """Why its outcome is not that it holds, and what to know about it."""
    return "; ".join(filter(None, (explain_outcome(verdict), *verdict.notes)))


def explain_outcome(verdict: Verdict) -> str:
    """Why it is not plainly decided, or what it comes to if it does not simply hold; empty for a
    claim that holds."""
    parts = [verdict.reason] if verdict.reason else []
    if verdict.today in ("changed", "does not hold"):
        parts.append(verdict.sentence)
    return "; ".join(filter(None, parts))


def _describe_value(value: ClaimValue) -> str:
    paper = _format_list(value.paper) if value.paper else "no data"
    if not value.today:
        return f"{value.name} {paper} -> none"
    interval = ""
    if len(value.today) == 1 and value.low:
        interval = f" [{format_number(value.low[0])}, {format_number(value.high[0])}]"
    return f"{value.name} {paper} -> {_format_list(value.today)}{interval}"


def _count_conditions(verdict: Verdict) -> str:
    holding = sum(test.today == "holds" for test in verdict.tests)
    return f"{holding} of {verdict.tested}" if verdict.tested else "-"


def _find_number(field: str) -> Cell:
    def find(place: tuple[Verdict, ClaimValue, int, int]) -> str | None:
        numbers = getattr(place[1], field)
        return format_number(numbers[place[2]]) if place[2] < len(numbers) else None

    return find


def _format_list(numbers: tuple[float, ...]) -> str:
    shown = ", ".join(format_number(number) for number in numbers[:_MOST_NUMBERS])
    return f"{shown}, ..." if len(numbers) > _MOST_NUMBERS else shown


def format_number(number: float) -> str:
    """Four significant digits, without an exponent."""
    return f"{number:.4g}" if abs(number) < 1e4 else f"{number:.0f}"
