"""Operators of a receipt by the host time of their calls: `ftax ops`."""

from __future__ import annotations

from typing import NamedTuple

from ftax.ladders.receipt import OperatorCost, Receipt
from ftax.reports.columns import Column, Numbers, choose, for_programs
from ftax.reports.table import Printout, Rows
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import format_time


class _Calls(NamedTuple):
    """A call of an operator, or all calls of one; ``module`` is None then."""

    model: str
    operator: str
    module: str | None
    calls: int
    build_ns: float
    call_ns: float
    release_ns: float
    total_ns: float
    share_ratio: float


COLUMNS = (
    *for_programs("model"),
    Column("operator", "operator", "operator", is_text=True),
    Column("module", lambda calls: calls.module or "(model)", "module", "module", is_text=True),
    Column("calls", "calls", "calls"),
    Column("arguments", ("build_ns", format_time), "build_ns"),
    Column("call", ("call_ns", format_time), "call_ns"),
    Column("release", ("release_ns", format_time), "release_ns"),
    Column("total", ("total_ns", format_time), "total_ns"),
    Column("per call", lambda calls: format_time(calls.total_ns / calls.calls)),
    Column("share", ("share_ratio", "{:.1%}".format), "share_ratio"),
)


def draw_operators(receipt: Receipt, *, limit: int, by_kind: bool) -> Printout:
    """Operators as they are printed; for programs all of them."""
    doubt = receipt.operator_doubt
    return Printout(
        head=(f"Nothing below is resolved: {doubt}.", "") if doubt else (),
        tables=(make_operator_table(receipt, limit=limit, by_kind=by_kind),),
        numbers=lambda: Numbers.of(_list_calls(receipt, by_kind=by_kind), COLUMNS),
    )


def make_operator_table(receipt: Receipt, *, limit: int, by_kind: bool) -> Rows:
    """Host time of the tape's operator calls, dearest first; summed by operator if ``by_kind``."""
    said = format_time(_sum_up(receipt))
    if receipt.operator_doubt:
        said += f", {NOT_RESOLVED}"
    heads = ["operator", "module", "arguments", "call", "release", "share"]
    if by_kind:
        heads = ["operator", "calls", "total", "per call", "share"]
    return Rows.of_columns(
        f"Operator{'s' if by_kind else ' calls'} of {receipt.rungs[0].cell.model} by host time "
        f"({said})",
        _list_calls(receipt, by_kind=by_kind)[:limit],
        choose(COLUMNS, *heads),
    )


def _list_calls(receipt: Receipt, *, by_kind: bool) -> list[_Calls]:
    groups: dict[object, list[OperatorCost]] = {}
    for cost in receipt.operators():
        groups.setdefault(cost.operator if by_kind else cost.index, []).append(cost)
    rows = []
    for costs in groups.values():
        total_ns = sum(cost.total_ns for cost in costs)
        rows.append(
            _Calls(
                model=receipt.rungs[0].cell.model,
                operator=costs[0].operator,
                module=None if by_kind else costs[0].module,
                calls=len(costs),
                build_ns=sum(cost.build_ns for cost in costs),
                call_ns=sum(cost.call_ns for cost in costs),
                release_ns=sum(cost.release_ns for cost in costs),
                total_ns=total_ns,
                share_ratio=total_ns / _sum_up(receipt),
            )
        )
    return sorted(rows, key=lambda row: -row.total_ns)


def _sum_up(receipt: Receipt) -> float:
    return sum(cost.total_ns for cost in receipt.operator_costs) or 1.0
