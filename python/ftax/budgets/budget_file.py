"""``ftax.toml``: steps, and the budgets that they are held to.

    [steps.forward]
    step = "my_package.model:make"
    budget = {host_reads = 0, operators = 412, python_calls = "any"}
    allow = ["stopping.py"]

All else in a table is a field of `ftax.Setting`, such as ``device = "cuda"``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftax.budgets.baselines import find_path
from ftax.budgets.counts import check_kind
from ftax.errors import FtaxError, InvalidArgumentError, check_count, describe_value, suggest
from ftax.records.fields import FrozenMap
from ftax.steps.setting import Setting, read_setting

FILE = "ftax.toml"
FOLDER = "ftax_baselines"  # beside the file
_RUN = "run"  # a table of `ftax run --budget`
ANY = "any"  # in the place of a number: as many as there are
_EXAMPLE = '[steps.forward], and below it step = "my_package.model:make"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a step may do.

    Attributes:
        most: by kind of count, the most there may be; None for as many as there are. All other
            counts are held to those of the baseline.
        allow: host reads, copies and synchronisations at places that have one of these texts in
            them do not count.
    """

    most: Mapping[str, int | None] = field(default_factory=lambda: FrozenMap({}))
    allow: tuple[str, ...] = ()

    @property
    def needs_instructions(self) -> bool:
        """Whether instructions, which are not counted unasked, have a limit."""
        return self.most.get("instructions") is not None

    def __post_init__(self) -> None:
        for kind, number in self.most.items():
            check_kind(kind)
            if number is not None:
                check_count(kind, number, least=0, most=2**63)
        for text in self.allow:
            if not isinstance(text, str) or not text:
                raise InvalidArgumentError(
                    f"allow has {describe_value(text)}: give texts that are in a place, such as "
                    '"stopping.py"'
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedStep:
    """One table of the file."""

    name: str
    step: str
    setting: Setting
    budget: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFile:
    """The steps of a file, by name, and its folder, from which their code is found."""

    folder: Path
    steps: Mapping[str, BudgetedStep]

    def choose(self, names: Sequence[str]) -> list[BudgetedStep]:
        """Those of these names, or all. Raises InvalidArgumentError for one that there is not."""
        for name in names:
            if name not in self.steps:
                raise InvalidArgumentError(
                    f"there is no step {name!r} in {FILE}; {suggest(name, self.steps)}there are "
                    f"{', '.join(self.steps)}"
                )
        return [step for name, step in self.steps.items() if not names or name in names]

    def find_baseline(self, step: BudgetedStep) -> Path:
        """Where that of a step is kept."""
        return find_path(self.folder / FOLDER, step.name)


def read_budget_file(path: Path) -> BudgetFile:
    """Raises InvalidArgumentError for a file that there is not, or that says something else."""
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except FileNotFoundError:
        raise InvalidArgumentError(
            f"there is no {path}: write one that names what to count: {_EXAMPLE}"
        ) from None
    except OSError as error:
        raise InvalidArgumentError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{path} is not TOML: {error}") from error
    try:
        return _read(path, values)
    except FtaxError as error:
        raise InvalidArgumentError(f"{path}: {error}") from error


def _read(path: Path, values: Mapping[str, Any]) -> BudgetFile:
    tables = values.get("steps")
    if unknown := [name for name in values if name not in ("steps", _RUN)]:
        raise InvalidArgumentError(f"unknown table {unknown[0]!r}; write {_EXAMPLE}")
    if not isinstance(tables, Mapping) or not tables:
        raise InvalidArgumentError(f"it has no steps; write {_EXAMPLE}")
    folder = path.resolve().parent
    found = BudgetFile(
        folder=folder, steps={name: _read_step(name, table) for name, table in tables.items()}
    )
    for step in found.steps.values():
        found.find_baseline(step)
    return found


def _read_step(name: str, table: Any) -> BudgetedStep:
    if not isinstance(table, Mapping) or not isinstance(table.get("step"), str):
        raise InvalidArgumentError(
            f'steps.{name} names no step; write step = "my_package.model:make"'
        )
    options = dict(table)
    step, most, allow = options.pop("step"), options.pop("budget", {}), options.pop("allow", [])
    if not isinstance(most, Mapping) or not isinstance(allow, list):
        raise InvalidArgumentError(
            f"steps.{name}: budget is a table, such as {{host_reads = 0}}, and allow is a list"
        )
    try:
        return BudgetedStep(
            name=name, step=step, setting=read_setting(options),
            budget=make_budget(most, allow),
        )  # fmt: skip
    except FtaxError as error:
        raise InvalidArgumentError(f"steps.{name}: {error}") from error


def make_budget(most: Mapping[str, Any], allow: Sequence[str]) -> Budget:
    """Of numbers, and "any" where there is no limit."""
    numbers = {kind: None if number == ANY else number for kind, number in most.items()}
    return Budget(most=FrozenMap(numbers), allow=tuple(allow))
