"""Rows of docs/measured.md: figures of the committed records as cells of a table.

The surprising choice: a row is a figure of a record, and brings its target and whether it was met
along. Which record it is, is a rule (the last of its script with nine cells, with three processes),
so that a new run takes the place of an old one and nobody chooses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from paper_today import Records as PaperRecords

from ftax import Receipt
from ftax.records.store import read_records
from record import RESULTS, read_lines

Record = Mapping[str, Any]


class Records:
    """The committed records, as the sections read them."""

    def __init__(self, folder: Path = RESULTS) -> None:
        self.folder = folder
        self.paper = PaperRecords(folder)

    def all(self, name: str) -> list[dict[str, Any]]:
        """Of a script, in the order in which they were made."""
        return read_lines(self.folder / f"{name}.jsonl")

    def last(self, name: str, which: Callable[[Record], bool] = lambda record: True) -> Record:
        """Of a script, the last one of that kind. Raises ValueError if there is none."""
        found = [record for record in self.all(name) if which(record)]
        if not found:
            raise ValueError(f"{name}.jsonl has no record of the kind that a row needs")
        return found[-1]

    def receipts(self, name: str) -> list[Receipt]:
        """Those of a file."""
        found = read_records(self.folder / f"{name}.jsonl").records
        return [item for item in found if isinstance(item, Receipt)]


def make_cells(record: Record, name: str, spec: str = ".0f", unit: str | None = None) -> str:
    """What a row says of a figure: value, target, verdict; cells of a table, without the outer
    bars."""
    figure = record["figures"][name]
    unit = figure["unit"] if unit is None else unit
    target = "" if figure["target"] is None else f"{figure['target']} {unit}"
    return f"{figure['value']:{spec}} {unit} | {target} | {judge(figure['met'])}"


def judge(met: bool | None) -> str:
    """Whether a target was met, in a word."""
    return {True: "met", False: "missed", None: ""}[met]


def count(hits: int, number: int) -> str:
    """Cells of a row that wants all."""
    return f"{hits} of {number} | {number} of {number} | {judge(hits == number)}"


def round_up(value: float, digits: int) -> str:
    """As something that is said to be within it: never below it."""
    return f"{math.ceil(value * 10**digits - 1e-9) / 10**digits:.{digits}f}"


def span(values: Iterable[float], spec: str) -> str:
    """From the smallest to the largest."""
    found = sorted(values)
    return f"{found[0]:{spec}} to {found[-1]:{spec}}"
