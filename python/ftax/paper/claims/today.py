"""The translation of a claim: from rows of the paper to the cells that say the same today.

The surprising choice: it goes through the paper's row and not through the selector. A selector may
leave out the dtype or the length, the row that it means has them.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ftax.errors import InvalidArgumentError
from ftax.paper.claims.paper import Element, Formulas, find_names, find_operand
from ftax.paper.claims.record import Claim, TestOutcome, TestVerdict, list_claims
from ftax.paper.claims.scope import (
    CONSISTENCY,
    OWN_NUMBERS,
    Condition,
    RequiredCell,
    find_amendment,
    find_varied,
    split_selector,
)
from ftax.paper.claims.translation import (
    UNKNOWN,
    UNSTATED_DTYPE,
    find_model,
    translate_row,
)
from ftax.paper.claims.words import word_condition
from ftax.paper.reference import FRAMEWORKS

DRIFT = "drift"  # in formulas: of the machine, within a worker; 0 where nothing says so
_TABLE_3 = "table3_utilization.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One number that a claim needs today: a column of a cell, or a constant of the paper.

    Attributes:
        device: the paper's GPU, "unknown" where it does not say.
        problem: why nothing that could be measured stands for it.
    """

    column: str
    cell: RequiredCell | None = None
    device: str = UNKNOWN
    constant: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOperand:
    """A name of a claim, today.

    Attributes:
        many: whether it is a list.
        models: the paper's names of a list over models, whose order no formula relies on, so that
            models that were not measured can be left out; empty otherwise.
    """

    items: tuple[Wanted, ...]
    many: bool
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTest:
    """A condition, today.

    Attributes:
        relation: what is left of it without its size, "" if nothing is; ``left`` says it.
    """

    expression: str
    about: str
    paper: bool | None
    relation: str
    left: str
    devices: frozenset[str]

    def make_verdict(self, today: TestOutcome, **more: Any) -> TestVerdict:
        """What it is worth."""
        stated = {name: getattr(self, name) for name in (*Condition._fields, "paper")}
        return TestVerdict(**stated, today=today, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPlan:
    """A claim in terms of today's cells.

    Attributes:
        formulas: its tests, then the relations of those that have one.
        needs_named_gpus: whether it compares GPUs, or means certain ones.
        gpus: the paper's that it looks at, if that is what it is about: no one of them has more
            than half of the conditions.
        reason: why it cannot be tested on any results; "" if it can.
    """

    claim: Claim
    operands: Mapping[str, PlannedOperand]
    compute: Mapping[str, str]
    tests: tuple[PlannedTest, ...]
    formulas: Formulas
    needs_named_gpus: bool
    gpus: frozenset[str]
    reason: str

    def cells(self) -> frozenset[RequiredCell]:
        """Everything that has to be measured for it."""
        return frozenset(
            item.cell
            for operand in self.operands.values()
            for item in operand.items
            if item.cell is not None
        )


def required_cells(claims: Iterable[Claim] | None = None) -> set[RequiredCell]:
    """The cells (model, framework, dtype, batch, sequence) that claims look at; all of them without
    an argument. A framework is written "runtime/host"."""
    chosen = list_claims() if claims is None else claims
    return {cell for claim in chosen for cell in make_plan(claim).cells()}


def make_plan(claim: Claim) -> ClaimPlan:
    """The claim translated; by its id, so that it is done once."""
    return _make_plan(claim.id)


@functools.cache
def _make_plan(name: str) -> ClaimPlan:
    claim = next(claim for claim in list_claims() if claim.id == name)
    amended = find_amendment(name)
    reason = OWN_NUMBERS if claim.origin == CONSISTENCY else amended.untestable
    if amended.operands:
        operands = {name: _plan_added(item) for name, item in amended.operands.items()}
    else:
        operands = {} if reason else _plan_operands(claim)
    compute = amended.compute or claim.compute
    devices = _Devices(operands, compute)
    tests = tuple(
        PlannedTest(**condition._asdict(), paper=paper, devices=devices.of(condition.expression))
        for condition, paper in _list_conditions(claim)
    )
    relations = [test.relation for test in tests if test.relation]
    return ClaimPlan(
        claim=claim,
        operands=operands,
        compute=compute,
        tests=tests,
        formulas=Formulas.compile(
            [*(operands or claim.operands), DRIFT],
            compute,
            [test.expression for test in tests] + relations,
        ),
        needs_named_gpus=amended.names_its_gpus or any(len(test.devices) > 1 for test in tests),
        gpus=_find_gpus(tests),
        reason=reason,
    )


def _find_gpus(tests: Sequence[PlannedTest]) -> frozenset[str]:
    counts = Counter(device for test in tests for device in test.devices)
    is_one = any(2 * count > len(tests) for count in counts.values())
    return frozenset() if is_one or len(counts) < 2 else frozenset(counts)


def _list_conditions(claim: Claim) -> list[tuple[Condition, bool | None]]:
    """Each condition of today, and whether the paper's data meet it."""
    amended = find_amendment(claim.id)
    papers: list[bool | None] = [test.holds for test in claim.tests]
    conditions = amended.conditions or tuple(
        Condition(test.expression, word_condition(claim.id, test.about))._replace(
            **amended.changes.get(index, {})
        )
        for index, test in enumerate(claim.tests)
    )
    return list(zip(conditions, papers or [None] * len(conditions), strict=True))


def _plan_added(selector: Mapping[str, Any]) -> PlannedOperand:
    """An operand that is cells of today from the start."""
    items = tuple(
        Wanted(column=cell.pop("column", "latency_ms"), cell=RequiredCell(**cell))
        for cell in split_selector(selector)
    )
    return PlannedOperand(items=items, many=bool(find_varied(selector)))


def _plan_operands(claim: Claim) -> dict[str, PlannedOperand]:
    """The operands that a formula uses."""
    texts = [*claim.compute.values(), *(test.expression for test in claim.tests)]
    used = frozenset[str]().union(*map(find_names, texts)) if texts else frozenset()
    planned = {}
    for name in (name for name in claim.operands if name in used):
        found = find_operand(claim.operands[name])
        loose = found.over == "model" and not any(_indexes(name, text) for text in texts)
        planned[name] = PlannedOperand(
            items=tuple(_translate(element) for element in found.elements),
            many=bool(found.over),
            models=tuple(claim.operands[name]["model"]) if loose else (),
        )
    return planned


def _indexes(name: str, text: str) -> bool:
    """Whether a formula takes items of a list by their place."""
    return re.search(rf"\b{re.escape(name)}\[", text) is not None


def _translate(element: Element) -> Wanted:
    try:
        if element.row is not None:
            return Wanted(
                column=element.column, cell=translate_row(element.row), device=element.row.device
            )
        if element.file == _TABLE_3 and element.cells is not None:
            framework = FRAMEWORKS[element.cells["framework"]]
            cell = RequiredCell(find_model("bert"), framework, UNSTATED_DTYPE, 1, 128)
            return Wanted(column=element.column, cell=cell)
    except InvalidArgumentError as error:
        return Wanted(column=element.column, problem=str(error))
    return Wanted(column=element.column, constant=element.value)


class _Devices:
    """The paper's GPUs that a formula depends on, through the values that it uses."""

    def __init__(self, operands: Mapping[str, PlannedOperand], compute: Mapping[str, str]) -> None:
        self.operands, self.compute = operands, compute

    def of(self, text: str) -> frozenset[str]:
        found: set[str] = set()
        for name in find_names(text):
            if name in self.operands:
                found |= {item.device for item in self.operands[name].items}
            elif name in self.compute:
                found |= self.of(self.compute[name])
        return frozenset(found - {UNKNOWN})
