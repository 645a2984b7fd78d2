"""Budgets of a program's steady state: the most that one of its iterations may do on the device.

In the file of `ftax check`, whose table ``run`` is ours:

    [run]
    budget = {launches = 600, synchronisations = 0}
    allow = ["logging.py"]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ftax_run.account import Account
from ftax_run.errors import RunError
from ftax_run.findings import Findings, Synchronisation, find
from ftax_run.frames import name_place

KINDS = ("launches", "kernels", "graphs", "copies", "fills", "synchronisations")
OVER, UNSURE = 1, 5  # exit codes, as those of `ftax check`
_SLACK = 0.05  # a mean: what is done once in 20 iterations is not done in each
_MOST_PLACES = 10


@dataclass(frozen=True, slots=True)
class Budget:
    """``most`` of each kind in one iteration; synchronisations at places with one of the texts of
    ``allow`` in them do not count."""

    most: Mapping[str, int]
    allow: tuple[str, ...] = ()


def read_budget(path: Path) -> Budget:
    """Raises RunError for a file that there is not, or that says something else."""
    example = "[run], and below it budget = {launches = 600, synchronisations = 0}"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("run")
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}; write {example}") from None
    except ValueError as error:
        raise RunError(f"{path} is not TOML: {error}") from None
    if not isinstance(table, dict) or not isinstance(table.get("budget"), dict):
        raise RunError(f"{path} has no budget of a program; write {example}")
    allow = table.get("allow", [])
    if not isinstance(allow, list) or not all(isinstance(text, str) and text for text in allow):
        raise RunError(f"{path}: allow is a list of texts that are in a place, such as logging.py")
    for kind, number in table["budget"].items():
        if kind not in KINDS:
            raise RunError(f"{path}: {kind!r} is not counted: {', '.join(KINDS)} are")
        if type(number) is not int or number < 0:
            raise RunError(f"{path}: {kind} is {number!r}; give a whole number of at least 0")
    return Budget(table["budget"], tuple(allow))


def hold(account: Account, budget: Budget) -> tuple[list[str], int]:
    """What to print, and the exit code: 0 if no iteration does more than it may."""
    process = account.find_main()
    found = None if process is None else find(process)
    if found is None or found.busy is None or not found.iterations:
        return ["Budget: cannot tell, since no iteration with work on a GPU was seen"], UNSURE
    lines, code = ["Budget of an iteration"], 0
    for kind, most in budget.most.items():
        counted = _list_counted(found, budget)
        measured = sum(item.count for item in counted) if kind == KINDS[-1] else found.work[kind]
        is_over = measured > most + _SLACK
        lines.append(f"  {kind}: {measured:,.1f} of {most:,}{', over' if is_over else ''}")
        if is_over:
            code = OVER
            lines += _list_places(counted) if kind == KINDS[-1] else []
    return lines, code


def _list_counted(found: Findings, budget: Budget) -> list[Synchronisation]:
    return [
        item
        for item in found.syncs
        if not any(text in name_place(item.place) for text in budget.allow)
    ]


def _list_places(counted: list[Synchronisation]) -> list[str]:
    return [
        f"    {item.count:.1f} {'near' if item.is_near else 'at'} {name_place(item.place)}"
        for item in counted[:_MOST_PLACES]
    ]
