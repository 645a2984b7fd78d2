"""Verdicts of claims as a table, and what their numbers and reasons are in words."""

from __future__ import annotations

from collections.abc import Sequence

from ftax.paper.claims.arithmetic import list_some
from ftax.paper.claims.claim_verdict import ClaimValue, Verdict
from ftax.reports.columns import NOTHING, Cell
from ftax.reports.table import Rows

_MOST_VALUES = 3
_MOST_NUMBERS = 4


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


def _format_list(numbers: tuple[float, ...]) -> str:
    shown = ", ".join(format_number(number) for number in numbers[:_MOST_NUMBERS])
    return f"{shown}, ..." if len(numbers) > _MOST_NUMBERS else shown


def format_number(number: float) -> str:
    """Four significant digits, without an exponent."""
    return f"{number:.4g}" if abs(number) < 1e4 else f"{number:.0f}"
