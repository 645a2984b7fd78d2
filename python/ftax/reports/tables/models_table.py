"""The zoo as a table, for `ftax models`."""

from __future__ import annotations

from ftax.reports.columns import Column, Numbers, choose, for_programs
from ftax.reports.table import Printout, Rows
from ftax.steps.zoo.registry import list_models

_SHORT_UNITS = {"pixels a side": "px"}
COLUMNS = (
    Column("name", "name", "name", is_text=True),
    Column("family", "family", "family", is_text=True),
    Column("parameters", ("parameter_count", lambda n: f"{n / 1e6:.1f} M"), "parameters"),
    Column("input", lambda spec: f"{spec.size} {_SHORT_UNITS.get(spec.unit, spec.unit)}"),
    *for_programs(input_size="size", input_unit="unit"),
    Column("paper name", "paper_name", "paper_name", is_text=True),
    Column("paper section", "paper_section", "paper_section", is_text=True),
    Column("dtypes", lambda spec: " ".join(spec.dtypes), "dtypes", is_text=True),
    Column("description", "description", "description", is_text=True),
    Column("source", "source", "source", is_text=True),
    Column("note", "note", "note", is_text=True),
)
_SHOWN = ("name", "family", "parameters", "input", "paper name", "description")
_TOO_LONG = ("paper section", "dtypes", "source", "note")  # for a terminal


def draw_models(*, full: bool) -> Printout:
    """The zoo as it is printed."""
    return Printout(
        tables=(list_rows(full=full),), numbers=lambda: Numbers.of(list_models(), COLUMNS)
    )


def list_rows(*, full: bool) -> Rows:
    """One row for each model of the zoo; `full` adds what is too long for a terminal."""
    more = _TOO_LONG if full else ()
    return Rows.of_columns(
        "Models",
        list_models(),
        choose(COLUMNS, *_SHOWN, *more),
        gives_way=("paper name", "family", *more),
    )
