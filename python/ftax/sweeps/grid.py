"""Grids: the product of models, runtimes, hosts, dtypes, batches, sequences and devices; and files
of grids, in TOML: one grid, or several as ``[[grid]]``.

A grid is checked when it is made, and a contradiction anywhere in the product (a CUDA runtime on a
CPU, a sequence for images) refuses all of it. What belongs apart is written as two grids, which one
sweep takes together.

A file says what to measure and nothing else. Where to and how carefully is the command line's, so
that one file serves for a first look and for the real thing. So is trust: a file names what is to
be run, and brings no code with it.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ftax.errors import FtaxError, InvalidArgumentError, check_count, suggest
from ftax.records.fields import FrozenMap
from ftax.runtimes.catalogue import check_host, find_runtime, is_library
from ftax.steps.load_code import is_code
from ftax.steps.load_zoo import check_fits
from ftax.steps.paths import describe_path
from ftax.steps.setting import Setting, read_setting
from ftax.steps.spec import ModelSpec
from ftax.steps.zoo.registry import find_spec, list_models
from ftax.sweeps.sweep_records import GPU, REPETITION
from ftax.timing.candidate import Host
from ftax.timing.cell import Cell

AXES = ("models", "runtimes", "hosts", "dtypes", "batches", "sequences", "devices")
# Axes whose values are those of a field of a setting.
_OF_SETTINGS = {"dtypes": "dtype", "batches": "batch", "sequences": "sequence", "devices": "device"}
_SETTING = tuple(item.name for item in fields(Setting))
# Fields of a setting that a grid has for all of its cells.
_OF_GRIDS = tuple(name for name in _SETTING if name not in (*_OF_SETTINGS.values(), "threads"))
# And those that are fields of a cell; the others are among its options.
_OF_CELLS = tuple(item.name for item in fields(Cell) if item.name in _SETTING)
_DEVICE = re.compile(r"cpu|cuda(:\d+)?")
_GPU_NAME = re.compile(r"(?=.*[A-Z])(?=.*\d)[\w .+-]+")  # "NVIDIA H100", "L4"; not "cuda0"
_LOOKS = ("utilisation", "memory")  # that are a GPU's
_FLAGS = (*_LOOKS, "every_machine")
_MOST_REPETITIONS = 1000
_TABLES = "grid"  # of a file with several
MOST_CELLS = 100_000  # of a sweep: days, if each takes two seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A product of cells.

    Attributes:
        models: of the zoo, or local Hugging Face folders.
        runtimes: "name/host", or a name, which goes with each of ``hosts`` that it has.
        sequences: tokens or samples of a request; None is the model's default, and all that a model
            of images takes.
        devices: "cpu", "cuda" (any GPU that the sweep may use), "cuda:1" (that GPU alone) or a part
            of a GPU's name, such as "NVIDIA H100" (any of those; a cell has it as the option
            ``gpu``, and the device "cuda").
        setting: of every cell, what is no axis.
        utilisation: on a GPU, read its counters too, about a second a cell.
        memory: on a GPU, find what each runtime takes of it; makes it ready once more.
        every_machine: of a fleet, each measures each cell, instead of any one of them.
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
    every_machine: bool = False
    repetitions: int = 0
    pairs: tuple[tuple[str, Host], ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        for axis in AXES:
            object.__setattr__(self, axis, _clean_axis(axis, getattr(self, axis)))
        check_count("repetitions", self.repetitions, least=0, most=_MOST_REPETITIONS)
        object.__setattr__(self, "pairs", _pair_runtimes(self.runtimes, self.hosts))
        self._check_size()
        for axis, name in _OF_SETTINGS.items():
            for value in getattr(self, axis):
                _check_value(axis, name, value)
        self._check_devices()
        for name in self.setting.chosen:
            if name not in _OF_GRIDS:
                raise InvalidArgumentError(
                    f"setting has {name}, which is an axis of a grid or of the whole sweep; leave "
                    "it out there"
                )
        for model in self.models:
            self._check_model(model)

    @property
    def _factors(self) -> dict[str, int]:
        """How many values each axis has, whose product is the number of cells."""
        axes = ("models", "devices", "dtypes", "batches", "sequences")
        lengths = {axis: len(getattr(self, axis)) for axis in axes}
        return {**lengths, "runtimes": len(self.pairs), "repetitions": self.repetitions + 1}

    @property
    def size(self) -> int:
        """The number of cells, without making them."""
        return math.prod(self._factors.values())

    def _check_size(self) -> None:
        if self.size > MOST_CELLS:
            factors = [f"{count:,} {axis}" for axis, count in self._factors.items() if count > 1]
            raise InvalidArgumentError(
                f"the grid has {self.size:,} cells ({' x '.join(factors)}) and a sweep takes at "
                f"most {MOST_CELLS:,}; give fewer values, or sweep parts of it one after the other"
            )

    def _check_devices(self) -> None:
        for name in _FLAGS:
            if type(getattr(self, name)) is not bool:
                raise InvalidArgumentError(f"{name} is {getattr(self, name)!r}; give true or false")
        for name in _LOOKS:
            if getattr(self, name) and set(self.devices) == {"cpu"}:
                raise InvalidArgumentError(
                    f"{name} is True, but that is read of a GPU and devices has only 'cpu'; "
                    f"leave {name} out, or give devices = ['cuda']"
                )
        for name in ("transfers", "cold"):
            if getattr(self.setting, name) and "cpu" in self.devices:
                raise InvalidArgumentError(
                    f"{name} is True, but that is of a GPU and devices has 'cpu'; leave {name} "
                    "out, or give devices = ['cuda']"
                )
        for runtime, _ in self.pairs:
            spec = find_runtime(runtime)
            spec.check_options(self.setting.runtime_options)
            for device in self.devices:
                if _split_device(device)[0].split(":")[0] not in spec.devices:
                    raise InvalidArgumentError(
                        f"runtimes has {runtime!r}, which does not run on {device!r}; put it into "
                        f"another grid with devices = {list(spec.devices)}"
                    )

    def _check_model(self, model: Any) -> None:
        """Raise InvalidArgumentError for no model, or for what it does not have."""
        spec = _find_zoo(model)
        with _naming("", ", or put the model into another grid"):
            if spec is not None:
                for sequence in self.sequences:
                    check_fits(spec, replace(self.setting, sequence=sequence))
            elif self.setting.tiny:
                raise InvalidArgumentError(
                    f"tiny is True, but the size of {model} is set by its config.json: leave tiny "
                    "out"
                )
        if spec is None and describe_path(model) != "hf_folder":
            raise InvalidArgumentError(
                f"models has {model!r}, which is one exported program and no model that can be "
                "made in other sizes; give a name of `ftax models` or a Hugging Face folder"
            )

    def cells(self) -> tuple[Cell, ...]:
        """All cells, models outermost, runtimes innermost; then those measured once more."""
        return tuple(
            cell for number in range(self.repetitions + 1) for cell in self._make_cells(number)
        )

    def _make_cells(self, repetition: int) -> tuple[Cell, ...]:
        mark = {REPETITION: repetition} if repetition else {}
        cells = []
        for model, device, dtype, batch, sequence, (runtime, host) in itertools.product(
            self.models, self.devices, self.dtypes, self.batches, self.sequences, self.pairs
        ):
            setting = replace(
                self.setting,
                device=_split_device(device)[0],
                dtype=dtype,  # type: ignore[arg-type]  # checked above
                batch=batch,
                sequence=self._resolve_sequence(model, sequence),
            )
            options = FrozenMap({**self.options, **_split_device(device)[1], **mark})
            cells.append(
                Cell.of(
                    setting, model=model, runtime=runtime, host=host, options=options,
                    units=setting.units,
                )
            )  # fmt: skip
        return tuple(cells)

    @property
    def options(self) -> FrozenMap:
        """What tells cells of this grid from those of others: the choices that are no default."""
        chosen = {**self.setting.chosen, **self.setting.runtime_options}
        fields_of_cells = (*_OF_CELLS, "runtime_options")
        return FrozenMap({name: chosen[name] for name in chosen if name not in fields_of_cells})

    def to_dict(self) -> dict[str, Any]:
        """The grid as a file says it: `make_grid` takes it."""
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.init}
        setting = own.pop("setting")
        return {**own, **setting.to_dict()}

    def _resolve_sequence(self, model: str, sequence: int | None) -> int | None:
        spec = _find_zoo(model)
        if sequence is not None or spec is None or spec.sequence is None:
            return sequence
        return spec.tiny_size if self.setting.tiny else spec.size


def read_cell(cell: Cell) -> Setting:
    """The setting that a grid made a cell of, but for its device."""
    marks = (REPETITION, GPU)
    options = {name: value for name, value in cell.options.items() if name not in marks}
    own = {name: getattr(cell, name) for name in _OF_CELLS if name != "device"}
    own |= {name: options.pop(name) for name in _OF_GRIDS if name in options}
    return Setting(**own, runtime_options=options)  # type: ignore[arg-type]  # a grid made it


def join_cells(grids: Iterable[Grid]) -> tuple[Cell, ...]:
    """The cells of all grids, each once. Raises InvalidArgumentError if there is no grid, and for
    too many cells."""
    grids = tuple(grids)
    if (size := sum(grid.size for grid in grids)) > MOST_CELLS:
        raise InvalidArgumentError(
            f"the grids have {size:,} cells and a sweep takes at most {MOST_CELLS:,}; give fewer "
            "values, or sweep some of the grids one after the other"
        )
    cells = tuple(dict.fromkeys(cell for grid in grids for cell in grid.cells()))
    if not cells:
        raise InvalidArgumentError("the sweep has no grid, so no cell; give at least one grid")
    return cells


def make_grid(values: Mapping[str, Any]) -> Grid:
    """The grid that a file or a command line describes; a single value stands for a list of one.

    "default" stands for None among sequences, since TOML has no null.
    """
    own = [item.name for item in fields(Grid) if item.init and item.name != "setting"]
    known = [*own, *_OF_GRIDS]
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
    setting = {name: value for name, value in values.items() if name in _OF_GRIDS}
    return Grid(**made, setting=read_setting(setting))


def read_grids(path: str | os.PathLike[str], *, allow_libraries: bool = False) -> tuple[Grid, ...]:
    """The grids of a file.

    Args:
        allow_libraries: the file may name shared libraries as runtimes; they would be loaded and
            run with the rights of the user.

    Raises InvalidArgumentError, naming the file and what is wrong in it.
    """
    place = Path(path)
    try:
        with place.open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise InvalidArgumentError(
            f"{place} cannot be read ({error.strerror}); give a grid file, or --model"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{place} is not TOML: {error}") from error
    tables = values.get(_TABLES, [values])
    if _TABLES in values and len(values) > 1:
        other = next(name for name in values if name != _TABLES)
        raise InvalidArgumentError(
            f"{place} has {other!r} beside [[grid]]; put it into each grid that it is for"
        )
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InvalidArgumentError(f"{place}: write each grid as a table [[grid]]")
    grids = []
    for number, table in enumerate(tables, start=1):
        try:
            grids.append(make_grid(table))
            _check_libraries(grids[-1], allow_libraries)
        except InvalidArgumentError as error:
            where = f"{place}, grid {number}" if len(tables) > 1 else str(place)
            raise InvalidArgumentError(f"{where}: {error}") from error
    if not grids:
        raise InvalidArgumentError(f"{place} has no grid; write models = [...] into it")
    return tuple(grids)


def _check_libraries(grid: Grid, allowed: bool) -> None:
    for runtime, _ in grid.pairs:
        if is_library(runtime) and not allowed:
            raise InvalidArgumentError(
                f"runtimes has {runtime!r}, a shared library, which the sweep would load and run "
                "with your rights; if you trust it, give --allow-libraries (in Python "
                "allow_libraries=True), or name it by --runtime instead of in a file"
            )


def split_runtime(text: str) -> tuple[str, str | None]:
    """Name and host of "name/host"; None for a name alone, which may have slashes too."""
    name, slash, host = text.rpartition("/")
    return (name, host) if slash and host in ("python", "cpp") else (text, None)


def _clean_axis(axis: str, value: Any) -> tuple[Any, ...]:
    """The values of an axis, each once. Raises InvalidArgumentError for an empty one."""
    if isinstance(value, str) or not isinstance(value, list | tuple | range):
        raise InvalidArgumentError(f"{axis} is {value!r}; it has to be a list of values")
    if not value:
        raise InvalidArgumentError(
            f"{axis} is empty, so the grid has no cell; give at least one value or leave it out"
        )
    if value[MOST_CELLS:]:
        raise InvalidArgumentError(
            f"{axis} has more than {MOST_CELLS:,} values, and a sweep takes no more cells; give "
            "fewer"
        )
    for item in value:
        if not isinstance(item, str | int | float | None):
            raise InvalidArgumentError(f"{axis} has {item!r}; its values are names or numbers")
    return tuple(dict.fromkeys(value))


def _check_value(axis: str, name: str, value: Any) -> None:
    """Raise InvalidArgumentError for what no setting has as its field ``name``."""
    with _naming(f"{axis} has {value!r}; "):
        if value is None and axis != "sequences":
            raise InvalidArgumentError("None is for sequences alone: give a value")
        if axis == "devices":
            if not (isinstance(value, str) and _DEVICE.fullmatch(_split_device(value)[0])):
                raise InvalidArgumentError(
                    "give 'cpu', 'cuda', 'cuda:<number>' or a part of a GPU's name, such as "
                    "'NVIDIA H100'"
                )
            value = _split_device(value)[0]
        Setting(**{name: value})


def _split_device(device: str) -> tuple[str, dict[str, str]]:
    """What torch calls the device, and what a cell's options say of it."""
    if not _DEVICE.fullmatch(device) and _GPU_NAME.fullmatch(device):
        return "cuda", {GPU: device}
    return device, {}


@contextmanager
def _naming(before: str, after: str = "") -> Iterator[None]:
    """Inside, an error says this around what it says."""
    try:
        yield
    except FtaxError as error:
        raise InvalidArgumentError(f"{before}{error}{after}") from error


def _pair_runtimes(
    runtimes: tuple[Any, ...], hosts: tuple[str, ...]
) -> tuple[tuple[str, Host], ...]:
    """(runtime, host), each once. A name without a host goes with each of ``hosts`` that it has."""
    known, pairs = [check_host(host) for host in hosts], dict[tuple[str, Host], None]()
    for text in runtimes:
        if not isinstance(text, str):
            raise InvalidArgumentError(f"runtimes has {text!r}; write a name, or 'eager/python'")
        name, host = split_runtime(text)
        spec = find_runtime(name)
        wanted = known if host is None else [check_host(host)]
        found = [side for side in wanted if side in spec.hosts]
        if not found:
            why = spec.find_obstacle(host=wanted[0])
            raise InvalidArgumentError(
                f"runtimes has {text!r}, which cannot be driven from {' or '.join(wanted)} "
                f"({why}); write {name}/{spec.hosts[0]}"
            )
        pairs.update(dict.fromkeys((spec.name, side) for side in found))
    return tuple(pairs)


def _find_zoo(model: Any) -> ModelSpec | None:
    """The entry of a zoo model; None for a folder. Raises InvalidArgumentError for neither."""
    if not isinstance(model, str):
        raise InvalidArgumentError(f"models has {model!r}; give names or paths of folders")
    if is_code(model):
        raise InvalidArgumentError(
            f"models has {model!r}, which is code: a sweep makes its models in the sizes that it "
            "asks for, from names of `ftax models` or Hugging Face folders. Measure code with "
            "`ftax tax` or `ftax bench`, a size at a time"
        )
    if "/" in model and all(spec.name != model for spec in list_models()):
        return None
    return find_spec(model)
