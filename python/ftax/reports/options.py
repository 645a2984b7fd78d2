"""Options of cells, as tables and charts tell them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ftax.sweeps.record import GPU
from ftax.timing.candidate import name_caller
from ftax.timing.cell import Cell

# What a cell is, by the names that columns have.
COLUMNS = ("model", "runtime", "called from", "device", "dtype", "batch", "sequence")

# Options that say nothing new: what models are given unless one asks for something else.
_USUAL: Mapping[str, object] = {
    "seed": 0,
    "inputs": "random",
    "weights": "random",
    "attention": "sdpa",
    "attention_mask": "none",
}


def read_column(cell: Cell, name: str) -> Any:
    """What stands in a column of `COLUMNS`, or of another field."""
    return name_caller(cell.host) if name == "called from" else getattr(cell, name)


def describe_options(cell: Cell) -> str:
    """The step, and the options, that tell a cell from the usual one of its model, but for the kind
    of GPU that it asked for, which its machine says; "" if there are none."""
    texts = [] if cell.step == "forward" else [cell.step]
    for name, value in sorted(cell.options.items()):
        if value is None or value is False or _USUAL.get(name) == value or name == GPU:
            continue
        word = name.replace("_", " ")
        texts.append(word if value is True else f"{word} {json.dumps(value).strip(chr(34))}")
    return ", ".join(texts)
