"""The fixture `ftax_budget`: a test holds a step to numbers, or to the baseline beside the test.

Tests get it by `pytest_plugins = ["ftax_pytest"]` in their conftest.py. It is no entry point, for
which pytest would rewrite each file of ftax, and imports neither torch nor ftax until a test asks.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ftax.budgets.held import Held

_FOLDER = "ftax_baselines"  # beside the test


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--ftax-update`` writes baselines."""
    group = parser.getgroup("ftax")
    group.addoption(
        "--ftax-update",
        action="store_true",
        help="ftax_budget(..., snapshot=True): write what is counted as the baseline",
    )


@pytest.fixture
def ftax_budget(request: pytest.FixtureRequest) -> BudgetCheck:
    """Hold a step to a budget: ``ftax_budget(step, inputs, host_reads=0, operators=412)``."""
    return BudgetCheck(
        root=request.config.rootpath,
        folder=request.path.parent / _FOLDER,
        name=".".join((request.path.stem, *request.node.nodeid.split("::")[1:])),
        is_updating=bool(request.config.getoption("--ftax-update")),
    )


class BudgetCheck:
    """What the fixture gives: counts a step, and fails the test where there is more than there may
    be."""

    def __init__(self, *, root: Path, folder: Path, name: str, is_updating: bool) -> None:
        self._root, self._folder, self._name = root, folder, name
        self._is_updating = is_updating
        self._snapshots = 0

    def __call__(
        self,
        step: Any,
        inputs: Any = None,
        *,
        snapshot: bool = False,
        allow: Sequence[str] = (),
        **budget: int | str,
    ) -> dict[str, int]:
        """Count one call of ``step``, and return the counts by name.

        Args:
            step, inputs: as for `ftax.tax`. The step is afterwards as it was found.
            snapshot: hold all counts to the baseline in ``ftax_baselines`` beside the test, which
                ``pytest --ftax-update`` writes.
            allow: host reads, copies and synchronisations at places with one of these texts in
                them do not count.
            budget: the most there may be of a count, such as ``host_reads=0``; "5 %" for so much
                more than the baseline, "any" for no limit.

        Raises:
            AssertionError: there is more; it says what is new, and where.
            UnsupportedError: the work of the step changes from call to call.
        """
        __tracebackhide__ = True
        from ftax.budgets.baselines import find_path, make_baseline, read_baseline, write_baseline
        from ftax.budgets.budget_file import LATENCY, make_budget
        from ftax.budgets.count_step import count
        from ftax.budgets.held import hold
        from ftax.errors import InvalidArgumentError
        from ftax.steps.setting import Setting

        if not budget and not snapshot:
            raise InvalidArgumentError(
                "ftax_budget is given no budget: give numbers, such as host_reads=0, or "
                "snapshot=True"
            )
        limits = make_budget(budget, allow)
        if LATENCY in limits.more or limits.asks_for("callgrind"):
            raise InvalidArgumentError(
                "ftax_budget counts in the process of the test: hold latency and callgrind by "
                "`ftax check`"
            )
        if limits.more and not snapshot:
            raise InvalidArgumentError(
                "ftax_budget is given a share, and nothing to take it of: give snapshot=True"
            )
        found = count(
            step, inputs, Setting(), self._root, with_instructions=limits.asks_for("instructions")
        )
        baseline = None
        if snapshot:
            path = find_path(self._folder, self._choose_name())
            if self._is_updating:
                write_baseline(path, make_baseline(found), self._name)
            baseline = read_baseline(path)
            if baseline is None:
                raise AssertionError(
                    f"there is no baseline {path.name} yet: `pytest --ftax-update` writes it"
                )
        held = hold(self._name, found, limits, baseline)
        asked = [item for item in held if snapshot or item.kind in limits.most]
        if message := _describe_failures(asked):
            raise AssertionError(message)
        return {kind: tally.total for kind, tally in found.tallies.items()}

    def _choose_name(self) -> str:
        """Of the baseline: that of the test as a file can have it, with a number from the second
        one on."""
        self._snapshots += 1
        name = re.sub(r"[^\w.\[\]-]", "_", self._name)
        if name != self._name:  # others may look like it
            name += f"-{zlib.crc32(self._name.encode()):08x}"
        return name if self._snapshots == 1 else f"{name}.{self._snapshots}"


def _describe_failures(held: Sequence[Held]) -> str:
    """Expected, got, where; "" if there is nothing to say."""
    lines: list[str] = []
    for item in held:
        if item.verdict in ("breach", "cannot tell"):
            lines += [item.describe(), *(f"  {place}" for place in item.list_places())]
    return "\n".join(lines)
