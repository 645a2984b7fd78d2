"""What a claim is: a function that looks at numbers and says which conditions they meet.

The same function reads the paper's numbers and those of a machine of today. It names models as the
paper does (as the zoo does where the paper has none), and the figure that has the paper's numbers.
A machine of today has one number for each cell, the same for all figures.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from ftax.errors import FtaxError, ResultsError
from ftax.paper.claims.arithmetic import Missing, list_some
from ftax.paper.reference import (
    BASELINE_GPU,
    PAPER_GPUS,
    PAPER_RUNTIMES,
    PaperRow,
    list_rows,
    read_data,
    read_table,
)
from ftax.steps.zoo.registry import find_spec, list_models

POWERS = (1, 2, 4, 8, 16, 32, 64, 128)

_FEWEST_MODELS = 3
_LEAST_SHARE = 0.5
_MOST_NAMES = 6
_PADDED = ("padded/python", "nested/python")
_FIELDS = {
    "gmacs": "gmacs",
    "kernel_ms": "kernel_ms",
    "latency_ms": "latency_ms",
    "samples": "size",
}

# What a claim is judged on: one machine at a time, all GPUs together, all GPUs of known peak rate,
# the GPUs that it names, or the paper's data alone.
Scope = Literal["machine", "gpus", "trend", "named", "paper"]


class RequiredCell(NamedTuple):
    """A cell by the names of today: the zoo's model, "runtime/host", and sizes.

    The sequence is None for models of images.
    """

    model: str
    framework: str
    dtype: str
    batch: int
    sequence: int | None

    def label(self) -> str:
        """A short form for people, such as "bert-base eager/python fp16 b1 s128"."""
        length = "" if self.sequence is None else f" s{self.sequence}"
        return f"{self.model} {self.framework} {self.dtype} b{self.batch}{length}"


class Lookup(NamedTuple):
    """One number: a column of a cell, by the paper's name of the model, and where the paper has it.

    A length of None is the model's own; ``source`` is empty where the paper has no data.
    """

    model: str
    runtime: str
    dtype: str
    batch: int
    length: int | None
    column: str
    source: str
    device: str


class Source(Protocol):
    """Where a claim's numbers come from. ``drift`` is the machine's, within a worker."""

    is_paper: bool
    drift: float
    gpus: Sequence[str]

    def read(self, wanted: Lookup) -> Any:
        """The number, or a `Missing`."""

    def read_speed(self, gpu: str) -> float:
        """Peak rate in fp16 without Tensor Cores, TFLOP/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition: what it says, whether it is so, and what is left of it without its size."""

    about: str
    truth: Any
    left: str = ""
    relation: Any = None


@dataclass(slots=True)
class Findings:
    """What a claim found in some numbers; ``counted`` are values without rounds behind them."""

    values: dict[str, Any] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    checks: list[Condition] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)


class Results:
    """Source as a claim reads them, and the place for what it finds."""

    def __init__(
        self, numbers: Source, found: Findings, source: str = "", device: str = BASELINE_GPU
    ) -> None:
        self._numbers, self._found, self._source, self.device = numbers, found, source, device
        self.is_paper, self.drift, self.gpus = numbers.is_paper, numbers.drift, numbers.gpus

    def of(self, source: str) -> Results:
        """With the paper's numbers from "Figure 4", "Table 1", or "raw" for its main run."""
        return Results(self._numbers, self._found, source, self.device)

    def on(self, device: str) -> Results:
        """On a GPU of the paper; of today that is the one that is looked at, or of that name."""
        return Results(self._numbers, self._found, self._source, device)

    def ms(
        self, model: str, runtime: str, dtype: str, batch: int = 1, length: int | None = None
    ) -> Any:
        """A latency."""
        return self.read("latency_ms", model, runtime, dtype, batch, length)

    def series(
        self, model: str, runtime: str, dtype: str, batches: Iterable[int] = POWERS
    ) -> list[Any]:
        """Latencies over the batch."""
        return [self.ms(model, runtime, dtype, batch) for batch in batches]

    def read(
        self, column: str, model: str, runtime: str, dtype: str, batch: int = 1,
        length: int | None = None,
    ) -> Any:  # fmt: skip
        """Any column: "gmacs", "modules", "kernel_ms", "kernels", "device_mb", ..."""
        wanted = (model, f"{runtime}/python", dtype, batch, length, column)
        return self._numbers.read(Lookup(*wanted, self._source, self.device))

    def read_speed(self, gpu: str) -> float:
        """Peak rate of a GPU in fp16 without Tensor Cores, TFLOP/s."""
        return self._numbers.read_speed(gpu)

    def over(self, models: Sequence[str], *columns: tuple[str, str, str, int]) -> list[list[Any]]:
        """Each column ("latency_ms", runtime, dtype, batch) of the models that have all of them,
        with a note of those that have not; of all models if too few are left."""
        table = {
            model: [
                self.read(name, model, runtime, dtype, batch)
                for name, runtime, dtype, batch in columns
            ]
            for model in models
        }
        left_out = [
            model
            for model, numbers in table.items()
            if any(isinstance(number, Missing) for number in numbers)
        ]
        kept = [numbers for model, numbers in table.items() if model not in left_out]
        if len(kept) < max(_FEWEST_MODELS, _LEAST_SHARE * len(models)):
            kept = list(table.values())
        elif left_out:
            names = list_some(left_out, _MOST_NAMES, between=", ", more=" and {} more")
            note = f"over {len(kept)} of the paper's {len(models)} models: no {names}"
            self._found.notes[note] = None
        return [list(column) for column in zip(*kept)]

    def value(self, name: str, number: Any, *, counted: bool = False) -> Any:
        """Keep a number, or a list of them, under a name. ``counted`` has no interval."""
        self._found.values[name] = number
        self._found.counted |= {name} if counted else set()
        return number

    def check(self, about: str, truth: Any, left: str = "", relation: Any = None) -> None:
        """Keep a condition; ``left`` says what ``relation`` is, the same without its size."""
        self._found.checks.append(Condition(about=about, truth=truth, left=left, relation=relation))


Test = Callable[[Results], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement of the paper, or a check of its numbers, and the function that tests it.

    Attributes:
        kind: "flat", "knee", "ordering", "overhead-share" or "speedup".
        origin: "paper", or "consistency-check" for what the paper does not say itself.
        devices: the GPUs of the paper that it is about, where it is about several.
        reason: why no measurement of today bears on it, for the scope "paper".
    """

    id: str
    section: str
    kind: str
    origin: str
    expected: str
    text: str
    test: Test
    scope: Scope
    devices: tuple[str, ...]
    reason: str

    def run(self, numbers: Source, device: str = BASELINE_GPU) -> Findings:
        """What it finds in these numbers."""
        found = Findings()
        self.test(Results(numbers, found, device=device))
        return found


TESTS: dict[str, tuple[Test, Scope, tuple[str, ...], str]] = {}


def claim(
    name: str, scope: Scope = "machine", devices: Sequence[str] = (), reason: str = ""
) -> Callable[[Test], Test]:
    """Say that a function tests the claim of data/claims.csv with this id."""

    def keep(test: Test) -> Test:
        TESTS[name] = (test, scope, tuple(devices), reason)
        return test

    return keep


def read_claims() -> tuple[Claim, ...]:
    """All claims that have a function, in the order of data/claims.csv."""
    rows = csv.DictReader(read_data("claims.csv").splitlines())
    claims = []
    for row in rows:
        row.pop("remark")
        test, scope, devices, reason = TESTS[row["id"]]
        claims.append(Claim(test=test, scope=scope, devices=devices, reason=reason, **row))
    return tuple(claims)


@functools.cache
def find_cell(
    model: str, framework: str, dtype: str, batch: int, length: int | None
) -> RequiredCell | Missing:
    """The cell of today, for a model by the paper's name or the zoo's."""
    name, _, step = model.partition(" ")
    try:
        spec = find_spec(_list_models().get(name, name))
    except FtaxError:
        return Missing(f"no model here stands for the paper's {name!r}")
    sequence = None if spec.sequence is None else length or spec.sequence
    return RequiredCell(f"{spec.name} {step}".strip(), framework, dtype, batch, sequence)


@functools.cache
def _list_models() -> dict[str, str]:
    """The paper's name -> the zoo's name."""
    return {spec.paper_name: spec.name for spec in reversed(list_models()) if spec.paper_name}


class PaperNumbers:
    """The paper's own: rows of its figures and of its repository's runs, and printed tables."""

    is_paper, drift = True, 0.0
    gpus: Sequence[str] = PAPER_GPUS

    def read(self, wanted: Lookup) -> Any:
        """The number of the only row that is meant; a `Missing` if the paper has none.

        Raises ResultsError if there are several.
        """
        framework = PAPER_RUNTIMES.get(wanted.runtime, "")
        if wanted.source == "Table 3":
            table = read_table("table3_utilization.csv")
            return next(float(row[wanted.column]) for row in table if row["framework"] == framework)
        cell = find_cell(*wanted[:5])
        length = None if isinstance(cell, Missing) else cell.sequence
        key = (wanted.source, wanted.model, framework, wanted.device, wanted.batch)
        rows = [
            row
            for row in _index_rows().get(key, ())
            if row.dtype in (wanted.dtype, "unknown")
            and row.is_padded == (wanted.runtime in _PADDED)
            and (row.size == length or None in (length, row.size))
        ]
        if len(rows) > 1:
            raise ResultsError(f"{len(rows)} rows of the paper are {wanted}; at most 1 may be")
        if not rows:
            return Missing("the paper has no such number")
        if wanted.column == "modules":
            number = rows[0].read_note("nn_calls")
        else:
            number = getattr(rows[0], _FIELDS.get(wanted.column, ""), None)
        return Missing(f"the paper has no {wanted.column}") if number is None else float(number)

    def read_speed(self, gpu: str) -> float:
        """As Table 2 has it."""
        rows = read_table("table2_hardware.csv")
        return next(float(row["fp16_tflops"]) for row in rows if row["gpu"] == gpu)


@functools.cache
def _index_rows() -> Mapping[tuple[str, str, str, str, int], list[PaperRow]]:
    found: dict[tuple[str, str, str, str, int], list[PaperRow]] = {}
    for row in list_rows():
        key = (_name_source(row), row.model, row.framework, row.device, row.batch)
        found.setdefault(key, []).append(row)
    return found


def _name_source(row: PaperRow) -> str:
    """What claims call it: the panel of Figure 4 over lengths is a source beside it."""
    if row.source.endswith("3090-1.csv"):
        return ""  # repeats of what is in its main run
    if "2022_1025_pretrained" in row.source or row.source.endswith("rtx8000-cuda.csv"):
        return "raw"
    return row.figure + (" over length" if "sequence-length panel" in row.note else "")
