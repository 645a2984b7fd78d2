"""Grids: the product of models, runtimes, hosts, dtypes, batches, sequences and devices.

The surprising choice: a grid is checked when it is made, and a contradiction anywhere in the
product (a CUDA runtime on a CPU, a sequence for images) refuses all of it. What belongs apart is
written as two grids, which one sweep takes together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ftax.errors import InvalidArgumentError, suggest
from ftax.records.fields import FrozenMap
from ftax.steps.setting import Setting, read_setting
from ftax.steps.spec import TORCH_DTYPES
from ftax.sweeps.grid_checks import (
    HOSTS,
    OF_GRIDS,
    check_choices,
    check_devices,
    check_folder,
    check_setting,
    check_sizes,
    check_variant,
    clean_axis,
    find_zoo,
    pair_runtimes,
)
from ftax.sweeps.record import REPETITION
from ftax.timing.candidate import Host
from ftax.timing.cell import Cell

AXES = ("models", "runtimes", "hosts", "dtypes", "batches", "sequences", "devices")
_LOOKS = ("utilisation", "memory")  # that are a GPU's
_VARIANT = ("tiny", "attention", "use_cache")  # stored of every grid
_NOT_OPTIONS = ("grad_mode", "runtime_options")  # of a cell: a field, and taken apart
_MOST_REPETITIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A product of cells.

    Attributes:
        models: of the zoo, or local Hugging Face folders.
        runtimes: "name/host", or a name, which goes with each of ``hosts`` that it has.
        sequences: tokens or samples of a request; None is the model's default, and all that a model
            of images takes.
        devices: "cpu", "cuda" (any GPU that the sweep may use) or "cuda:1" (that GPU alone).
        setting: of every cell, what is no axis: tiny, attention, use_cache, seed, grad_mode, cold,
            transfers, runtime_options.
        utilisation: on a GPU, read its counters too, about a second a cell.
        memory: on a GPU, find what each runtime takes of it; makes it ready once more.
        repetitions: how many times more each cell is measured, at intervals over the whole sweep,
            with the option ``repetition`` from 1 on; all grids' k-th ones beside each other.
        pairs: (runtime, host), as the two axes say together.

    Raises:
        InvalidArgumentError: an axis is empty, a value is unknown, or two contradict each other.
    """

    models: tuple[str, ...]
    runtimes: tuple[str, ...] = ("eager/python",)
    hosts: tuple[str, ...] = ("python",)
    dtypes: tuple[str, ...] = ("fp32",)
    batches: tuple[int, ...] = (1,)
    sequences: tuple[int | None, ...] = (None,)
    devices: tuple[str, ...] = ("cpu",)
    setting: Setting = field(default_factory=Setting)
    utilisation: bool = False
    memory: bool = False
    repetitions: int = 0
    pairs: tuple[tuple[str, Host], ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        for axis in AXES:
            object.__setattr__(self, axis, clean_axis(axis, getattr(self, axis)))
        check_choices("hosts", self.hosts, HOSTS)
        check_choices("dtypes", self.dtypes, tuple(TORCH_DTYPES))
        check_sizes("batches", self.batches, default=False)
        check_sizes("sequences", self.sequences, default=True)
        for name in _LOOKS:
            if type(getattr(self, name)) is not bool:
                raise InvalidArgumentError(f"{name} is {getattr(self, name)!r}; give true or false")
        if type(self.repetitions) is not int or not 0 <= self.repetitions <= _MOST_REPETITIONS:
            raise InvalidArgumentError(
                f"repetitions is {self.repetitions!r}; give a whole number from 0 to "
                f"{_MOST_REPETITIONS}"
            )
        check_devices(self.devices)
        for name in _LOOKS:
            if getattr(self, name) and set(self.devices) == {"cpu"}:
                raise InvalidArgumentError(
                    f"{name} is True, but that is read of a GPU and devices has only 'cpu'; "
                    f"leave {name} out, or give devices = ['cuda']"
                )
        object.__setattr__(self, "pairs", pair_runtimes(self.runtimes, self.hosts))
        check_devices(self.devices, self.pairs)
        check_setting(self.setting, self.devices, self.pairs)
        for model in self.models:
            spec = find_zoo(model)
            if spec is None:
                check_folder(model, tiny=self.setting.tiny)
            else:
                check_variant(spec, self.sequences, self.setting)

    def cells(self) -> tuple[Cell, ...]:
        """All cells, models outermost, runtimes innermost; then those measured once more."""
        return tuple(
            cell for number in range(self.repetitions + 1) for cell in self._make_cells(number)
        )

    def _make_cells(self, repetition: int) -> tuple[Cell, ...]:
        mark = {REPETITION: repetition} if repetition else {}
        options = FrozenMap({**self.options, **mark})
        return tuple(
            Cell.of(
                replace(
                    self.setting,
                    device=device,
                    dtype=dtype,  # type: ignore[arg-type]  # checked above
                    batch=batch,
                    sequence=self._resolve_sequence(model, sequence),
                ),
                model=model,
                runtime=runtime,
                host=host,
                options=options,
            )
            for model, device, dtype, batch, sequence, (runtime, host) in itertools.product(
                self.models, self.devices, self.dtypes, self.batches, self.sequences, self.pairs
            )
        )

    @property
    def options(self) -> FrozenMap:
        """What tells cells of this grid from those of others: the choices that are no default."""
        chosen = {**self.setting.chosen, **self.setting.runtime_options}
        return FrozenMap({name: chosen[name] for name in chosen if name not in _NOT_OPTIONS})

    def to_dict(self) -> dict[str, Any]:
        """The grid as a file says it: `make_grid` takes it."""
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.init}
        setting = own.pop("setting")
        return {**own, **{name: getattr(setting, name) for name in _VARIANT}, **setting.to_dict()}

    def _resolve_sequence(self, model: str, sequence: int | None) -> int | None:
        spec = find_zoo(model)
        if sequence is not None or spec is None or spec.sequence is None:
            return sequence
        return spec.tiny_size if self.setting.tiny else spec.size


def read_cell(cell: Cell) -> Setting:
    """The setting that a grid made a cell of, but for its device, dtype and size."""
    options = {name: value for name, value in cell.options.items() if name != REPETITION}
    own: dict[str, Any] = {name: options.pop(name) for name in OF_GRIDS if name in options}
    return Setting(
        grad_mode=cell.grad_mode,  # type: ignore[arg-type]  # a grid made it
        runtime_options=options,  # type: ignore[arg-type]
        **own,
    )


def join_cells(grids: Iterable[Grid]) -> tuple[Cell, ...]:
    """The cells of all grids, each once. Raises InvalidArgumentError if there is no grid."""
    cells = tuple(dict.fromkeys(cell for grid in grids for cell in grid.cells()))
    if not cells:
        raise InvalidArgumentError("the sweep has no grid, so no cell; give at least one grid")
    return cells


def make_grid(values: Mapping[str, Any]) -> Grid:
    """The grid that a file or a command line describes; a single value stands for a list of one.

    "default" stands for None among sequences, since TOML has no null.
    """
    own = [item.name for item in fields(Grid) if item.init and item.name != "setting"]
    known = [*own, *OF_GRIDS]
    for name in values:
        if name not in known:
            raise InvalidArgumentError(
                f"a grid has no field {name!r}; {suggest(name, known)}there are {', '.join(known)}"
            )
    if "models" not in values:
        raise InvalidArgumentError("the grid has no models; give at least one (`ftax models`)")
    made = {name: value for name, value in values.items() if name in own}
    for axis in set(AXES) & set(made):
        value = made[axis]
        items = tuple(value) if isinstance(value, list | tuple) else (value,)
        if axis == "sequences":
            items = tuple(None if item == "default" else item for item in items)
        made[axis] = items
    setting = {name: value for name, value in values.items() if name in OF_GRIDS}
    return Grid(**made, setting=read_setting(setting))
