"""A baseline: the counts of one step as text that a person reads in a diff, one line a fact.

# What one call of my_package.model:make does; `ftax check --update` writes this file.
torch 2.13.0
device cpu

operators 3
  2 aten::linear in layers.* at model.py in Model.forward: x = self.layers(x)
  1 aten::relu in act at model.py in Model.forward: x = self.act(x)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ftax.budgets.counts import KINDS, Counts
from ftax.errors import InvalidArgumentError, ResultsError
from ftax.records.whole_file import write_whole

_NAME = re.compile(r"[\w.\[\]-]+")  # of a step, and so of a file
_LINE = re.compile(r"(?P<fact>  )?(?P<count>\d+) (?P<key>\S.*)")
_TOTAL = re.compile(r"(?P<kind>\w+) (?P<count>\d+)")
_SETTING = re.compile(r"(?P<name>\w+) (?P<value>\S.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Counts that others are held to: of each kind the number of each fact, by its key; ``source``
    says whose they are, "baseline" or a git revision."""

    facts: Mapping[str, Mapping[str, int]]
    setting: Mapping[str, str]
    source: str = "baseline"

    def total(self, kind: str) -> int | None:
        """The count of a kind; None if there is none."""
        return sum(self.facts[kind].values()) if kind in self.facts else None


def make_baseline(counts: Counts, source: str = "baseline") -> Baseline:
    """What these counts are as a baseline: those that are exact."""
    return Baseline(
        facts={
            name: {fact.key: fact.count for fact in tally.facts}
            for name, tally in counts.tallies.items()
            if not tally.problem and KINDS[name].has_baseline
        },
        setting=dict(counts.setting),
        source=source,
    )


def find_path(folder: Path, name: str) -> Path:
    """Where the baseline of a step is kept. Raises InvalidArgumentError for a name that is no name
    of a file."""
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise InvalidArgumentError(
            f"a step is called {name!r}: give letters, digits, '_', '-' and '.', since its "
            "baseline is a file of that name"
        )
    return folder / f"{name}.txt"


def write_baseline(path: Path, baseline: Baseline, model: str) -> None:
    """Raises InvalidArgumentError if it cannot be written."""
    lines = [f"# What one call of {model} does; written anew by --update, never by hand."]
    lines += [f"{name} {value}" for name, value in baseline.setting.items()]
    for kind in KINDS:
        if kind in baseline.facts:
            facts = baseline.facts[kind]
            lines += ["", f"{kind} {sum(facts.values())}"]
            lines += [f"  {facts[key]} {key}" for key in sorted(facts)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, ("\n".join(lines) + "\n").encode())
    except OSError as error:
        raise InvalidArgumentError(
            f"{path}: {error.strerror or error}; choose a folder that can be written"
        ) from error


def read_baseline(path: Path) -> Baseline | None:
    """None if there is none. Raises ResultsError for a file that is no baseline."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path} cannot be read: {error}") from error
    setting: dict[str, str] = {}
    facts: dict[str, dict[str, int]] = {}
    totals: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line or line.startswith("#"):
            continue
        fact, total = _LINE.fullmatch(line), _TOTAL.fullmatch(line)
        if fact and fact["fact"] and facts:
            facts[[*facts][-1]][fact["key"]] = int(fact["count"])
        elif total and total["kind"] in KINDS and total["kind"] not in facts:
            facts[total["kind"]], totals[total["kind"]] = {}, int(total["count"])
        elif (found := _SETTING.fullmatch(line)) and not facts:
            setting[found["name"]] = found["value"]
        else:
            raise _refuse(path, f"line {number} is {line!r}")
    for kind, sum_of in totals.items():
        if sum_of != sum(facts[kind].values()):
            raise _refuse(path, f"{kind} is {sum_of}, and its lines sum to another number")
    return Baseline(facts=facts, setting=setting)


def _refuse(path: Path, problem: str) -> ResultsError:
    return ResultsError(f"{path} is no baseline: {problem}; write it anew with --update")
