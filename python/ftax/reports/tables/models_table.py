"""The zoo as a table: for `ftax models`, and for the page of the documentation that lists it.

The surprising choice: the page holds the table between two marks and this module rewrites what is
between them, so that the page cannot say anything that the registry does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from ftax.errors import InvalidArgumentError
from ftax.reports.numbers import Field, Numbers, read_all
from ftax.reports.table import Cell, Printout, Rows
from ftax.steps.spec import ModelSpec
from ftax.steps.zoo.registry import list_models

_START, _END = "<!-- zoo: generated -->", "<!-- zoo: end -->"
_SHORT_UNITS = {"pixels a side": "px"}


_FIELDS: Mapping[str, Field] = {
    "name": "name",
    "family": "family",
    "parameters": "parameter_count",
    "input_size": "size",
    "input_unit": "unit",
    "paper_name": "paper_name",
    "paper_section": "paper_section",
    "dtypes": lambda spec: " ".join(spec.dtypes),
    "description": "description",
    "source": "source",
    "note": "note",
}
_CELLS: Mapping[str, Cell] = {
    "name": "name",
    "family": "family",
    "parameters": ("parameter_count", lambda count: f"{count / 1e6:.1f} M"),
    "input": lambda spec: _describe_size(spec),
    "paper name": "paper_name",
    "description": "description",
}
_MORE: Mapping[str, Cell] = {  # too long for a terminal
    "paper section": "paper_section",
    "dtypes": lambda spec: " ".join(spec.dtypes),
    "source": "source",
    "note": "note",
}


def draw_models(*, full: bool) -> Printout:
    """The zoo as it is printed."""
    return Printout(tables=(list_rows(full=full),), numbers=_number_models)


def _number_models() -> Numbers:
    return Numbers.of(_FIELDS, [read_all(spec, _FIELDS) for spec in list_models()])


def list_rows(*, full: bool) -> Rows:
    """One row for each model of the zoo; `full` adds what is too long for a terminal."""
    more = _MORE if full else {}
    return Rows.of(
        "Models",
        list_models(),
        {**_CELLS, **more},
        text={*_CELLS, *more} - {"parameters", "input"},
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


def _describe_size(spec: ModelSpec) -> str:
    return f"{spec.size} {_SHORT_UNITS.get(spec.unit, spec.unit)}"


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
