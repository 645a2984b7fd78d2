"""Which sizes a run of the paper's items measures, on which device, and what is missing of them.

A runtime that the device does not have is reported as missing, with its reason, and not refused: on
a CPU there is still half a paper to run. What a device cannot do, what failed, what is not
installed and what was not run yet are four different reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from ftax.errors import InvalidArgumentError
from ftax.paper.claims.arithmetic import list_some
from ftax.paper.machine_view import View, find_place
from ftax.runtimes.catalogue import find_runtime
from ftax.steps.spec import TORCH_DTYPES
from ftax.sweeps.grid import Grid, make_grid, split_runtime
from ftax.sweeps.sweep_records import SweepCell

TEXT_LENGTH = 128  # tokens of the paper's texts (Section 4)
SOUND_LENGTH = 32_000  # samples: 2 s at 16 kHz (Appendix E)

_POWERS = (1, 2, 4, 8, 16, 32, 64, 128)
# Usual sizes by device and whether it is a quick run, which does not look for drift. A CPU of today
# does BERT at batch 16 in about a second: the paper's larger batches show nothing but patience.
_USUAL: dict[tuple[str, bool], dict[str, Any]] = {
    ("cuda", False): {"dtypes": ("fp16", "fp32"), "batches": _POWERS, "lengths": _POWERS,
                      "repetitions": 10},
    ("cuda", True): {"dtypes": ("fp16",), "batches": (1, 8, 64), "lengths": (1, 16, 128)},
    ("cpu", False): {"dtypes": ("fp32",), "batches": (1, 2, 4, 8, 16), "lengths": _POWERS,
                     "repetitions": 4},
    ("cpu", True): {"dtypes": ("fp32",), "batches": (1, 8), "lengths": (1, 128), "tiny": True},
}  # fmt: skip
# What takes longest to make ready: 16 steps of decoding in one trace, searches for the algorithm of
# each depthwise convolution, fusion of a thousand operators.
_GENERATION = ("gpt2-generate", "torchscript/python")
_SLOW = {
    "cpu": {_GENERATION},
    "cuda": {
        _GENERATION,
        ("densenet161", "torchscript/python"),
        ("efficientnet-v2-m", "onnxruntime/python"),
        ("mobilebert", "torchscript/python"),
    },
}
# Seconds that a step of a worker may take. TorchScript's fuser does not end on a GPU with the
# concatenations of densenet161: its one cell ends here.
_LIMITS_S = {"cuda": 60.0, "cpu": 300.0}
_ONLY_PAPERS_DTYPE = {"gpt2-generate": "fp16"}  # where it is among the dtypes of a run


@dataclass(frozen=True, slots=True)
class Want:
    """One model in one runtime and dtype, at some sizes; a sequence of None is its default."""

    model: str  # "bert-base", or with what is run of it: "bert-base train"
    runtime: str  # "eager/python"
    dtype: str
    batches: tuple[int, ...]
    sequences: tuple[int | None, ...] = (None,)
    utilisation: bool = False  # whether the GPU's counters are read too
    memory: bool = False  # whether it is read what the runtime takes of the GPU
    repetitions: int = 0  # how many times more it is measured
    needs: tuple[str, ...] = ()  # fields of `SweepCell` that the item cannot do without

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.model} {self.runtime} {self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySetting:
    """Sizes and device of a run.

    Attributes:
        lengths: of texts, where latency is drawn over the length.
        repetitions: how many times more the cells are measured that show drift.
        tiny: the zoo's tiny models: the same operators in the same order, no real widths.
    """

    device: str
    dtypes: tuple[str, ...]
    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    tiny: bool = False
    quick: bool = False
    repetitions: int = 0

    def __post_init__(self) -> None:
        for name in ("dtypes", "batches", "lengths"):
            if not getattr(self, name):
                raise InvalidArgumentError(f"{name} is empty; give at least one value")
        for dtype in self.dtypes:
            if dtype not in TORCH_DTYPES:
                raise InvalidArgumentError(
                    f"dtype {dtype!r} is none of {', '.join(TORCH_DTYPES)}; give one of them"
                )

    @classmethod
    def choose(
        cls,
        *,
        device: str,
        quick: bool = False,
        dtypes: tuple[str, ...] = (),
        batches: tuple[int, ...] = (),
    ) -> Self:
        """The sizes for a device, but for what is given.

        A GPU gets the paper's: fp16 and fp32, batches 1 to 128. A quick run of a CPU takes tiny
        models.
        """
        usual = _USUAL.get((device.split(":")[0], quick))
        if usual is None:
            raise InvalidArgumentError(f"device is {device!r}; give 'cpu', 'cuda' or 'cuda:0'")
        given: dict[str, Any] = {"dtypes": dtypes, "batches": tuple(sorted(set(batches)))}
        chosen = {name: value for name, value in given.items() if value}
        return cls(device=device, quick=quick, **{**usual, **chosen})

    @property
    def optimizer(self) -> str:
        """Of training: one that never reads a number on the host."""
        return "adamw-fused" if self.device == "cpu" else "adamw-capturable"

    @property
    def main_dtype(self) -> str:
        """The paper's where it used one: fp16, or what there is of it."""
        return "fp16" if "fp16" in self.dtypes else self.dtypes[0]

    @property
    def limit_s(self) -> float:
        """Seconds that a step of a worker may take."""
        return _LIMITS_S[self.device.split(":")[0]]

    def make_grid(self, want: Want) -> Grid | None:
        """The grid of a want; None if there is an obstacle."""
        if self.find_obstacle(want) is not None:
            return None
        model, _, step = want.model.partition(" ")
        trained = {"step": step, "optimizer": self.optimizer} if step else {}
        return make_grid(
            {
                **trained,
                "models": model,
                "runtimes": want.runtime,
                "dtypes": want.dtype,
                "batches": want.batches,
                "sequences": want.sequences,
                "devices": self.device,
                "tiny": self.tiny,
                "utilisation": want.utilisation and self.device != "cpu",
                "memory": want.memory and self.device != "cpu",
                "repetitions": want.repetitions,
            }
        )

    def find_obstacle(self, want: Want) -> str | None:
        """Why this run does not measure it, even with all installed; None if it does."""
        kind = self.device.split(":")[0]
        if kind not in find_runtime(split_runtime(want.runtime)[0]).devices:
            return f"{want.runtime} does not run on a {'CPU' if kind == 'cpu' else 'GPU'}"
        if self.quick and (want.model, want.runtime) in _SLOW[kind]:
            return "left out of a quick run: it takes too long to make ready"
        papers = _ONLY_PAPERS_DTYPE.get(want.model, want.dtype)
        if want.dtype != papers and papers in self.dtypes:
            return (
                f"left out in {want.dtype}: it takes long to make ready, and the paper has {papers}"
            )
        return None

    def describe(self) -> str:
        """One sentence on what is measured."""
        sizes = "tiny models (shapes of curves only, no real sizes)" if self.tiny else "real sizes"
        return (
            f"{sizes} on {self.device}, {' and '.join(self.dtypes)}, batches "
            f"{', '.join(map(str, self.batches))}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Cells that an item wants and that have no rounds, with the reason that they share."""

    what: str  # "bert-base cuda-graph/python fp16, batches 1, 2, 4"
    count: int
    reason: str


NOT_RUN = "not run yet"

_LOOKS = {  # what the field is, and the look of a sweep that finds it
    "macs": ("count of multiply-accumulates", ""),
    "busy_ns": ("busy time", "trace"),
    "device_bytes": ("device memory", "memory"),
    "sm_active_ratio": ("counters of utilisation", "utilisation"),
    "sm_occupancy_ratio": ("counters of utilisation", "utilisation"),
}


def find_missing(
    wants: Iterable[Want], setting: StudySetting, views: Sequence[View]
) -> tuple[Gap, ...]:
    """The cells of ``wants`` that a view has no rounds of, or not all that is needed of them; of
    several views each says which. Without any, all of them are missing."""
    listed = tuple(wants)
    if len(views) < 2:
        return _find_missing(listed, setting, next(iter(views), None))
    return tuple(
        replace(item, what=f"{item.what} on {view.label}")
        for view in views
        for item in _find_missing(listed, setting, view)
    )


def _find_missing(
    wants: Iterable[Want], setting: StudySetting, view: View | None
) -> tuple[Gap, ...]:
    missing: dict[tuple[str, str], list[str]] = {}
    for want in wants:
        for size, reason in _find_gaps(want, setting, view):
            sizes = missing.setdefault((want.label, reason), [])
            if size not in sizes:
                sizes.append(size)
    return tuple(
        Gap(what=f"{label}, {_join(sizes)}", count=len(sizes), reason=reason)
        for (label, reason), sizes in missing.items()
    )


def has_measured(wants: Iterable[Want], setting: StudySetting, views: Sequence[View]) -> bool:
    """Whether any cell of ``wants`` has rounds in one of the views."""
    grids = (setting.make_grid(want) for want in wants)
    places = [find_place(cell) for grid in grids if grid for cell in grid.cells()]
    found = (view.cells.get(place) for view in views for place in places)
    return any(cell is not None and cell.status == "measured" for cell in found)


def describe_missing(missing: Iterable[Gap]) -> list[str]:
    """A line for each reason, with what it keeps away."""
    reasons: dict[str, list[Gap]] = {}
    for item in missing:
        reasons.setdefault(item.reason, []).append(item)
    lines = []
    for reason, items in reasons.items():
        what = list_some((item.what for item in items), 4, more="; and {} more")
        lines.append(f"{_count_cells(items)}: {reason} ({what})")
    return lines


def _find_gaps(want: Want, setting: StudySetting, view: View | None) -> Iterable[tuple[str, str]]:
    """(size, reason) of each cell without rounds."""
    grid = setting.make_grid(want)
    if grid is None:
        obstacle = setting.find_obstacle(want) or NOT_RUN
        for batch in want.batches:
            for sequence in want.sequences:
                yield _name_size(batch, sequence), obstacle
        return
    for cell in grid.cells():
        found = None if view is None else view.cells.get(find_place(cell))
        if found is None:
            yield _name_size(cell.batch, cell.sequence), NOT_RUN
        elif found.status != "measured":
            yield _name_size(cell.batch, cell.sequence), found.reason
        else:
            lacks = [name for name in want.needs if getattr(found, name) is None]
            if lacks:
                yield _name_size(cell.batch, cell.sequence), _explain_lack(found, lacks[0])


def _explain_lack(cell: SweepCell, name: str) -> str:
    """Why a measured cell has not got a field; the sweep says so where it looked."""
    what, look = _LOOKS[name]
    if cell.cell.device == "cpu" and look:
        return f"no {what}: that is of a GPU"
    why = cell.facts.get(look) if look else None
    return f"no {what}" + (f": {why}" if why else "")


def _name_size(batch: int, sequence: int | None) -> str:
    return f"b{batch}" if sequence is None else f"b{batch} s{sequence}"


def _join(sizes: list[str]) -> str:
    return sizes[0] if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def _count_cells(items: list[Gap]) -> str:
    count = sum(item.count for item in items)
    return "1 cell" if count == 1 else f"{count} cells"
