"""Claims on the paper's own data: the rows behind each operand, and the formulas over them.

The surprising choice: a selector that finds no row or two rows is an error of the data and not a
gap, since the claims were written for exactly these files.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ftax.errors import ResultsError
from ftax.paper.claims.expression import Formula, UndefinedError, compile_formula, run_formula
from ftax.paper.claims.helpers import LackingError, Missing
from ftax.paper.claims.scope import find_varied, split_selector
from ftax.paper.reference import PaperRow, list_rows, read_table

_NOTE = "note:"
_FIELDS = {"seq_or_input": "input"}
_OPTIONS = ("file", "col", "note_has", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One number of an operand: a column of a row of the latencies, or of a printed table."""

    column: str
    value: float
    row: PaperRow | None = None
    file: str = ""
    cells: Mapping[str, str] | None = None  # of the table's row


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """What a name of a claim stands for.

    Attributes:
        over: the field that a list varies; empty for a single number.
    """

    elements: tuple[Element, ...]
    over: str = ""

    @property
    def value(self) -> float | list[float]:
        """The number, or the list of numbers."""
        numbers = [element.value for element in self.elements]
        return numbers if self.over else numbers[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Values of formulas and of tests; a `Missing` where there is none."""

    computed: Mapping[str, Any]
    tests: tuple[bool | Missing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Formulas:
    """The compiled formulas of a claim: values by name, and conditions on operands and values."""

    compute: Mapping[str, Formula]
    tests: tuple[Formula, ...]

    @classmethod
    def compile(
        cls, operands: Collection[str], compute: Mapping[str, str], tests: Collection[str]
    ) -> Formulas:
        """Raises InvalidArgumentError for a formula that has anything unexpected in it."""
        names = {*operands, *compute}
        return cls(
            compute={name: compile_formula(text, operands) for name, text in compute.items()},
            tests=tuple(compile_formula(text, names) for text in tests),
        )

    def run(self, scope: Mapping[str, Any]) -> Evaluation:
        """Everything that can be computed from the operands in ``scope``."""
        own = dict(scope)
        computed = {name: _try(formula, own) for name, formula in self.compute.items()}
        own.update(computed)
        outcomes = (_try(formula, own) for formula in self.tests)
        return Evaluation(
            computed=computed,
            tests=tuple(item if isinstance(item, Missing) else bool(item) for item in outcomes),
        )


def find_operand(selector: Mapping[str, Any]) -> Operand:
    """The rows that a selector means. Raises ResultsError unless it means exactly one each."""
    elements = tuple(map(_find_element, split_selector(selector)))
    return Operand(elements=elements, over=find_varied(selector))


def find_names(text: str) -> frozenset[str]:
    """The names in a formula."""
    return frozenset(
        node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)
    )


def _try(formula: Formula, scope: dict[str, Any]) -> Any:
    try:
        return run_formula(formula, scope)
    except LackingError as error:
        return Missing(str(error))
    except UndefinedError as error:
        return Missing(f"it has no value for these numbers ({error})")


def _find_element(selector: Mapping[str, Any]) -> Element:
    wanted = tuple((k, str(value)) for k, value in selector.items() if k not in _OPTIONS)
    column = selector.get("col", "latency_ms")
    if "file" in selector:
        return _find_in_table(selector["file"], wanted, column)
    row = _find_row(selector["source"], wanted, selector.get("note_has", ""))
    if column.startswith(_NOTE):
        value: Any = row.read_note(column.removeprefix(_NOTE))
    else:
        value = getattr(row, _FIELDS.get(column, column))
    if value is None:
        raise ResultsError(f"the row of {dict(selector)} has no {column}")
    return Element(column=column, value=float(value), row=row)


@functools.cache
def _find_row(source: str, wanted: tuple[tuple[str, str], ...], note_has: str) -> PaperRow:
    hits = [
        row
        for row in _rows_by_source().get(source, ())
        if note_has in row.note
        and all(str(getattr(row, _FIELDS.get(name, name))) == value for name, value in wanted)
    ]
    if len(hits) != 1:
        raise ResultsError(f"{len(hits)} rows of {source} have {dict(wanted)} {note_has!r}, not 1")
    return hits[0]


@functools.cache
def _find_in_table(file: str, wanted: tuple[tuple[str, str], ...], column: str) -> Element:
    hits = [row for row in read_table(file) if all(row[name] == value for name, value in wanted)]
    if len(hits) != 1:
        raise ResultsError(f"{len(hits)} rows of {file} have {dict(wanted)}, not 1")
    return Element(column=column, value=float(hits[0][column]), file=file, cells=hits[0])


@functools.cache
def _rows_by_source() -> Mapping[str, list[PaperRow]]:
    found: dict[str, list[PaperRow]] = {}
    for row in list_rows():
        found.setdefault(row.source, []).append(row)
    return found
