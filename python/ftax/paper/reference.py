"""The numbers of "The Framework Tax" as they ship with ftax: rows of latencies, tables, setup.

Nothing is tidied on reading. What the paper leaves open is "unknown". One measurement may appear in
several figures with several values; data/README.md says which contradict each other.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any

from ftax.errors import InvalidArgumentError
from ftax.sweeps.results import list_choices

TABLES = ("table1_scaling.csv", "table2_hardware.csv", "table3_utilization.csv")
HARDWARE_TODAY = "hardware_today.csv"  # not the paper's: GPUs as their vendors describe them

# The paper's frameworks on dense input; the host is Python in all of its runs.
FRAMEWORKS = {
    "pytorch-eager": "eager/python",
    "torchscript": "torchscript/python",
    "cuda-graphs": "cuda-graph/python",
    "onnxruntime": "onnxruntime/python",
    "ort-cuda-graphs": "onnxruntime-cuda-graph/python",
}
# The paper's names of our runtimes.
PAPER_RUNTIMES = {ours: name for name, ours in FRAMEWORKS.items()} | {
    "padded/python": "pytorch-eager",
    "nested/python": "bettertransformer",
}
# From the oldest architecture to the newest, as in Table 2.
PAPER_GPUS = ("1080Ti", "V100", "2080Ti", "RTX-8000", "3090", "A6000", "A100")
BASELINE_GPU = "RTX-8000"  # Section 4
_RAW_RUNS = "JaredFern/Framework-Tax@9d9ee85:experiments/pretrained/2022_1025_pretrained"
_PADDED = "-padded"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRow:
    """One measurement of the paper or of its repository.

    Attributes:
        source: "Figure 4 [owner/name@commit:path]", "Table 1", or a file of the repository.
        model, framework: as the repository calls them ("bert", "pytorch-eager").
        dtype, device: "unknown" where the source does not say.
        input: tokens, pixels a side or samples of a request; "128-padded" for texts of natural
            lengths padded to 128, "gen16" for 16 generated tokens, empty where it is not known.
        latency_ms: of one forward pass of the whole batch.
        kernel_ms: summed kernel time.
        gmacs: 1e9 multiply-accumulates of the whole batch, without those of attention's matrices.
    """

    source: str
    model: str
    framework: str
    dtype: str
    device: str
    batch: int
    input: str
    latency_ms: float | None
    kernel_ms: float | None
    gmacs: float | None
    note: str

    @property
    def figure(self) -> str:
        """The source without its file: "Figure 4", "Table 1", or all of it."""
        return self.source.split(" [")[0]

    @property
    def size(self) -> int | None:
        """Tokens, pixels or samples of a request, padded ones too; None for "gen16"."""
        digits = self.input.removesuffix(_PADDED)
        return int(digits) if digits.isdecimal() else None

    @property
    def is_padded(self) -> bool:
        """Whether the texts have natural lengths and are padded to `size`."""
        return self.input.endswith(_PADDED)

    def read_note(self, name: str) -> float | None:
        """The number after "name=" in the note."""
        found = re.search(re.escape(name) + r"=([\d.]+)", self.note)
        return None if found is None else float(found.group(1))


_COLUMNS = {field.name: field.name for field in fields(PaperRow)} | {"input": "seq_or_input"}


@functools.cache
def list_rows() -> tuple[PaperRow, ...]:
    """All measurements, in the order of the file."""
    return tuple(_make_row(row) for row in _read_csv("latencies.csv"))


def select(*, note_has: str | None = None, **wanted: Any) -> tuple[PaperRow, ...]:
    """The rows whose fields or properties have these values.

    A value may be a collection of values. ``figure="Figure 4"`` is what one mostly starts with.

    Raises InvalidArgumentError for a name that rows have not got.
    """
    choices = {
        name: list_choices(name, value, _FIELDS, "rows of the paper")
        for name, value in wanted.items()
    }
    return tuple(
        row
        for row in list_rows()
        if all(getattr(row, name) in values for name, values in choices.items())
        and (note_has is None or note_has in row.note)
    )


@functools.cache
def read_table(name: str) -> tuple[Mapping[str, str], ...]:
    """The rows of one of `TABLES`, as printed in the paper."""
    if name not in TABLES:
        raise InvalidArgumentError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
    return tuple(_read_csv(name))


@functools.cache
def find_hardware(gpu: str) -> Mapping[str, str]:
    """What the vendor states of a GPU, by the driver's name for it; empty if it is not known."""
    for row in _read_csv(HARDWARE_TODAY):
        if gpu.removeprefix("NVIDIA ") == row["name"]:
            return row
    return {}


def raw_run(framework: str, dtype: str) -> str:
    """The source of the paper's main run on the baseline GPU, in eager or TorchScript."""
    suffix = {"pytorch-eager": "", "torchscript": "-torchscript"}[framework]
    # The directory of the TorchScript run in fp32 does not name its dtype.
    precision = "" if (framework, dtype) == ("torchscript", "fp32") else f"-{dtype}"
    return f"{_RAW_RUNS}{suffix}{precision}/{BASELINE_GPU}.csv"


def read_data(name: str) -> str:
    """The text of a file in data/."""
    return (resources.files("ftax.paper") / "data" / name).read_text("utf-8")


def _read_csv(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(read_data(name).splitlines()))


def _make_row(row: Mapping[str, str]) -> PaperRow:
    values: dict[str, Any] = {name: row[column] for name, column in _COLUMNS.items()}
    values["batch"] = int(values["batch"])
    for name in ("latency_ms", "kernel_ms", "gmacs"):
        values[name] = float(values[name]) if values[name] else None
    return PaperRow(**values)


_FIELDS = (*_COLUMNS, "figure", "size", "is_padded")
