"""How far runs and machines differ, as a table: a row a kind of machine."""

from __future__ import annotations

from ftax.reports.table import Cell, Rows
from ftax.sweeps.results import SweepResults
from ftax.sweeps.side_by_side import name_kind
from ftax.sweeps.variance import KindVariance, find_variances

_LONG = 99.5  # what two digits would write as 1e+02


def make_variance_table(results: SweepResults) -> Rows:
    """What differs between runs of one machine, and beyond that between machines of a kind."""

    def name(kind: KindVariance) -> str:
        known = [results.machines[id] for id in kind.machines if id in results.machines]
        return name_kind(known, results.machines.values()) or f"machine {kind.machines[0]}"

    columns: dict[str, Cell] = {
        "kind of machine": name,
        "machines": lambda kind: len(kind.machines),
        "cells": "cells",
        "runs": "runs",
        "between runs": ("components.within", _format),
        "between machines": ("components.between", _format),
        "95 % interval": (
            "components.interval",
            lambda ends: f"{_format(ends[0]).removesuffix(' %')} to {_format(ends[1])}",
        ),
        "why not": lambda kind: f"cannot tell: {kind.problem}" if kind.problem else "",
    }
    kinds = find_variances(results)
    if not any(kind.problem for kind in kinds):
        del columns["why not"]
    return Rows.of(
        "How far latencies differ between runs on one machine, and beyond that between machines "
        "of one kind (standard deviations)",
        kinds,
        columns,
        text=("kind of machine", "why not"),
        legend="why not" if "why not" in columns else "",
    )


def _format(ratio: float) -> str:
    percent = 100 * ratio
    return f"{percent:.2g} %" if percent < _LONG else f"{percent:.0f} %"
