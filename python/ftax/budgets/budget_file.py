"""``ftax.toml``: steps, and the budgets that they are held to.

    [steps.forward]
    step = "my_package.model:make"
    budget = {host_reads = 0, operators = 412, python_calls = "any", latency = "5 %"}
    allow = ["stopping.py"]

All else in a table is a field of `ftax.Setting`, such as ``device = "cuda"``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftax.budgets.baselines import find_path
from ftax.budgets.counts import KINDS, check_kind
from ftax.errors import FtaxError, InvalidArgumentError, check_count, describe_value, suggest
from ftax.records.fields import FrozenMap
from ftax.steps.setting import Setting, read_setting
from ftax.timing.comparison import NEGLIGIBLE

FILE = "ftax.toml"
FOLDER = "ftax_baselines"  # beside the file
_RUN = "run"  # a table of `ftax run --budget`
ANY = "any"  # in the place of a number: as many as there are
LATENCY = "latency"  # no count: held to a revision alone, by turns
_SHARE = re.compile(r"(\d{1,4}(?:\.\d{1,4})?) ?%")
_EXAMPLE = '[steps.forward], and below it step = "my_package.model:make"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a step may do.

    Attributes:
        most: by kind of count, the most there may be; None for as many as there are.
        more: by kind of count, or `LATENCY`, how much more than the baseline there may be, as a
            ratio: 0.05 is 5 %. All other counts are held to exactly those of the baseline.
        allow: host reads, copies and synchronisations at places that have one of these texts in
            them do not count.
    """

    most: Mapping[str, int | None] = field(default_factory=lambda: FrozenMap({}))
    more: Mapping[str, float] = field(default_factory=lambda: FrozenMap({}))
    allow: tuple[str, ...] = ()

    def asks_for(self, kind: str) -> bool:
        """Whether there is a limit of a kind, which may be counted on request alone."""
        return kind in self.more or self.most.get(kind) is not None

    def __post_init__(self) -> None:
        for kind, number in self.most.items():
            check_kind(kind)
            if number is not None:
                check_count(kind, number, least=0, most=2**63)
        for kind, more in self.more.items():
            _check_more(kind, more)
        for text in self.allow:
            if not isinstance(text, str) or not text:
                raise InvalidArgumentError(
                    f"allow has {describe_value(text)}: give texts that are in a place, such as "
                    '"stopping.py"'
                )


def _check_more(kind: str, more: float) -> None:
    if kind == LATENCY:
        if more < NEGLIGIBLE:
            raise InvalidArgumentError(
                f'latency is "{100 * more:g} %": a smaller difference than {NEGLIGIBLE:.0%} cannot '
                'be told; give "1 %" or more'
            )
        return
    check_kind(kind)
    if not KINDS[kind].has_baseline:
        raise InvalidArgumentError(
            f'{kind} is "{100 * more:g} %", and is in no baseline: give a number'
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


def make_budget(given: Mapping[str, Any], allow: Sequence[str]) -> Budget:
    """Of numbers, of shares of the baseline such as "5 %", and "any" where there is no limit."""
    most: dict[str, Any] = {}
    more: dict[str, float] = {}
    for kind, limit in given.items():
        if isinstance(limit, str) and (share := _SHARE.fullmatch(limit)):
            more[kind] = float(share[1]) / 100
        elif kind != LATENCY:
            most[kind] = None if limit == ANY else limit
        elif limit != ANY:
            raise InvalidArgumentError(
                f"latency is {describe_value(limit)}: give how much slower than the revision of "
                '--base it may be, such as "5 %"'
            )
    return Budget(most=FrozenMap(most), more=FrozenMap(more), allow=tuple(allow))
