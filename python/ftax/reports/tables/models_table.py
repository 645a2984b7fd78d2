"""The zoo as a table: for `ftax models`, and for the page of the documentation that lists it.

The page holds the table between two marks and this module rewrites what is between them, so that
the page says what the registry says.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from ftax.errors import InvalidArgumentError
from ftax.reports.columns import Column, Numbers, choose, for_programs
from ftax.reports.table import Printout, Rows
from ftax.steps.spec import ModelSpec
from ftax.steps.zoo.registry import list_models

_START, _END = "<!-- zoo: generated -->", "<!-- zoo: end -->"
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


def render_zoo() -> str:
    """The zoo in Markdown: a table for each family but single layers, then notes."""
    lines: list[str] = []
    models = [spec for spec in list_models() if spec.family != "layer"]
    for (family, unit), specs in itertools.groupby(models, lambda spec: (spec.family, spec.unit)):
        lines += [
            f"**{family.capitalize()}**",
            "",
            f"| name | parameters | {unit} | what it is |",
            "|---|---:|---:|---|",
            *map(_render_row, specs),
            "",
        ]
    notes = [f"- `{spec.name}`: {spec.note}." for spec in models if spec.note]
    return "\n".join([*lines, "Notes:", "", *notes, ""])


def _render_row(spec: ModelSpec) -> str:
    cells = (
        f"`{spec.name}`",
        f"{spec.parameter_count:,}",
        _describe_limits(spec),
        spec.description,
    )
    return f"| {' | '.join(cells)} |"


def update_page(text: str) -> str:
    """`text` with the zoo of today between its two marks.

    Raises InvalidArgumentError if the marks are not there.
    """
    before, found_start, rest = text.partition(_START)
    _, found_end, after = rest.partition(_END)
    if not found_start or not found_end:
        raise InvalidArgumentError(
            f"the page has no place for the zoo: put {_START!r} and {_END!r} on lines of their own"
        )
    return f"{before}{_START}\n{render_zoo()}{_END}{after}"


def _describe_limits(spec: ModelSpec) -> str:
    if spec.fixed_size:
        return f"{spec.size} only"
    limits = [f"≥{spec.min_size}"] if spec.min_size > 1 else []
    limits += [f"≤{spec.max_size}"] if spec.max_size is not None else []
    return f"{spec.size} ({', '.join(limits)})" if limits else f"{spec.size}"


def main(path: Path) -> None:
    """Rewrites the zoo in the page at `path`."""
    path.write_text(update_page(path.read_text()))


if __name__ == "__main__":
    import sys

    main(Path(sys.argv[1]))
