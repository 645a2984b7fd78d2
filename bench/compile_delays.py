"""What is put into a compiled call on purpose appears on the right line of its receipt.

A wait in each layer that Python drives, against a longer one, all rungs of both in the same rounds;
and more and more guards, which may lengthen the line *guards* alone, in proportion. All numbers of
guards are measured in the same rounds, where they push each other out of the caches. One after the
other they would meet another host, which is not the same for long.
"""

from __future__ import annotations

import argparse
import functools
import statistics
from typing import Any

import torch
from line_changes import find_changes, show_changes
from torch import nn

import ftax
from delays import DELAYED_LAYERS, prepare_with_delayed_layer
from ftax.ladders.ladder import COMPILE
from ftax.ladders.lines import compute_lines
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import use_threads
from ftax.steps.load import load_model
from ftax.timing.session import measure, measure_together, require
from record import Figure, add_part_options, figure, make_parser, run_parts, show

_DELAY_NS = 1_000_000
_COLD_NS = 5_000_000  # so long a wait leaves the caches as cold as a longer one does
_COUNTS = (200, 500, 1000, 2000)
_LEAST_FIT = 0.99  # R squared of the line over the number of guards
_MOST_BESIDE = 0.1  # of what the line grows by, that the one below it may move


class Adds(nn.Module):
    """One kernel, and as many guards as asked for: TorchDynamo guards each number of the list."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.numbers = [1] * count  # all alike, so that each guard costs the same

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One product."""
        return x * (1 + sum(self.numbers))


def make_input(device: str, seed: int, width: int) -> torch.Tensor:
    """The same numbers on every device."""
    return torch.randn(4, width, generator=torch.Generator().manual_seed(seed)).to(device)


def take_delay(layer: str, options: argparse.Namespace) -> dict[str, Any]:
    """How each line changes where a layer waits longer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 8))
    model = model.eval().to(options.device)
    workspace = Workspace(load_model(model, inputs=make_input(options.device, 0, 64)))
    shorter, longer = (
        prepare_with_delayed_layer(workspace, layer, _COLD_NS + more) for more in (0, _DELAY_NS)
    )
    plan = ftax.Plan(round_ms=10.0, duration_s=options.duration, patience_s=options.duration / 2)
    found = require(measure(workspace.loaded, [*shorter, *longer], plan))
    names = [line.name for line in compute_lines(found[: len(shorter)], ladder=COMPILE)]
    expected = [float(_DELAY_NS * (name == layer)) for name in names]
    columns = [item.values_ns for item in found]
    return {"lines": find_changes(names, columns, expected, injected_ns=float(_DELAY_NS))}


def take_guards(options: argparse.Namespace) -> dict[str, Any]:
    """ns of guards and of the line below them, by how many guards there are."""
    parts = []
    for count in _COUNTS:
        inputs = (make_input(options.device, seed, 4) for seed in (0, 1))
        given = dict(zip(("inputs", "check_inputs"), inputs, strict=True))
        workspace = Workspace(load_model(Adds(count), **given))
        rungs = COMPILE.list_places(options.device)[:3]
        prepared = [find_runtime(runtime).prepare(workspace, host) for runtime, host in rungs]
        parts.append((workspace.loaded, prepared))
    plan = ftax.Plan(round_ms=4.0, duration_s=options.duration, patience_s=options.duration / 2)
    sessions = [require(session) for session in measure_together(parts, plan)]
    times = [[statistics.median(rung.values_ns) for rung in session] for session in sessions]
    guards, below = ([rung[k] - rung[k + 1] for rung in times] for k in (0, 1))
    return {"counts": _COUNTS, "guards_ns": guards, "below_ns": below}


def list_figures(cells: dict[str, dict[str, Any]]) -> list[Figure]:
    """Over the parts that ran, which are also shown."""
    figures = []
    added = cells.get("added guards")
    if added is not None:
        counts, guards, below = (added[key] for key in ("counts", "guards_ns", "below_ns"))
        rows = [
            (str(count), f"{line / 1e3:.1f}", f"{next_line / 1e3:.1f}")
            for count, line, next_line in zip(counts, guards, below, strict=True)
        ]
        each_ns = statistics.linear_regression(counts, guards).slope
        fit = statistics.correlation(counts, guards) ** 2
        moved = abs(below[-1] - below[0]) / abs(guards[-1] - guards[0])
        show("us of a call, by how many guards it has", ("guards", "line", "line below"), rows)
        figures += [
            figure("guards: each", each_ns, "ns", at_least=1.0),
            figure("guards: R squared", fit, at_least=_LEAST_FIT),
            figure("guards: line below, of what is added", moved, at_most=_MOST_BESIDE),
        ]  # fmt: skip
    if delays := {name: cell["lines"] for name, cell in cells.items() if "lines" in cell}:
        figures += show_changes([delays])
    return figures


def main() -> None:
    """All parts, or those that are asked for."""
    parser = make_parser(__doc__)
    add_part_options(parser, duration_s=8.0)
    options = parser.parse_args()
    parts = {
        f"in {layer}": functools.partial(take_delay, layer, options) for layer in DELAYED_LAYERS
    }
    parts["added guards"] = functools.partial(take_guards, options)
    with use_threads(1):  # all of it: TorchDynamo compiles again for another number
        run_parts(__file__, parts, options, list_figures)


if __name__ == "__main__":
    main()
