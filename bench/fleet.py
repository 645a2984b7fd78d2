"""A sweep over a Ray cluster beside the same sweep without one: nothing lost, nothing twice.

200 cells on the CPU, three times: here, on three nodes of which one is killed and one more is added
on the way, and here again; the latencies have to be the same. The reference is not the first sweep
but the two that had no Ray; what they disagree in is this machine's, and the cluster may have as
much of it.

``--two-gpus`` asks something else: how many times as fast 200 cells are on two GPUs of a node as on
one.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ftax.records.store import read_records
from ftax.steps.setting import Setting
from ftax.sweeps.grid import Grid
from ftax.sweeps.results import CELLS_FILE, SweepResults, read_times
from ftax.sweeps.sweep import sweep
from ftax.sweeps.sweep_records import SweepCell
from record import Figure, figure, finish, make_parser, progress, show

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from support.ray_cluster import RayCluster, start_cluster

_MODELS = ("bert-base", "distilbert", "albert", "gpt2", "resnet-18")
_CPU = ("eager/python", "flat/python", "eager/cpp", "torchscript/cpp")
_GPU = ("eager/python", "eager/cpp", "cuda-graph/cpp", "launch-replay/cpp")
_KILLED_AT, _ADDED_AT = 0.2, 0.5  # of the cells


def make_grid(device: str, quick: bool) -> Grid:
    """200 cells: models, batches and runtimes that need no file; 16 for a quick look."""
    return Grid(
        models=_MODELS[: 2 if quick else None],
        batches=tuple(range(1, 3 if quick else 11)),
        runtimes=_CPU if device == "cpu" else _GPU,
        devices=(device,),
        setting=Setting(tiny=True),
    )


def time_sweep(name: str, grid: Grid, folder: Path, **options: Any) -> tuple[SweepResults, float]:
    """The results, and the seconds that they took."""
    progress(f"fleet: {len(grid.cells())} cells, {name}")
    start = time.perf_counter()
    found = sweep(grid, folder, **options)
    return found, time.perf_counter() - start


def read_timed(folder: Path) -> Counter[str]:
    """How many times each cell was timed, but for what is timed again on purpose."""
    path = folder / CELLS_FILE
    records = read_records(path, skip_bad=True).records if path.exists() else ()
    cells = [item for item in records if isinstance(item, SweepCell) and item.values_ns]
    return Counter(cell.cell.key() for cell in cells if "timed_again" not in cell.facts)


def disturb(cluster: RayCluster, node: str, folder: Path, cells: int, done: list[str]) -> None:
    """Kill a node and add another, once so many cells are there."""
    for share, act in ((_KILLED_AT, lambda: cluster.kill(node)), (_ADDED_AT, cluster.add)):
        while len(read_timed(folder)) < share * cells:
            time.sleep(0.2)
        act()
        done.append(f"after {len(read_timed(folder))} cells")


def compare(one: SweepResults, other: SweepResults) -> tuple[list[float], int]:
    """Ratios of the latencies of cells, and how many have intervals that do not meet."""
    cells = {cell.cell.key(): cell for cell in other.cells if cell.values_ns}
    ratios, apart = [], 0
    for cell in one.cells:
        twin = cells.get(cell.cell.key())
        if twin is None or not cell.values_ns or not cell.interval_ns or not twin.interval_ns:
            continue
        ratios.append(cell.latency_ns / twin.latency_ns)
        (low, high), (least, most) = cell.interval_ns, twin.interval_ns
        apart += low > most or least > high
    return ratios, apart


def measure_cluster(quick: bool, folder: Path) -> tuple[list[Figure], dict[str, Any]]:
    """Three sweeps of the same cells."""
    grid, options = make_grid("cpu", quick), {"threads": 1, "quick": quick}
    cells = len(grid.cells())
    first, first_s = time_sweep("without Ray", grid, folder / "first", **options)
    with start_cluster() as cluster:
        nodes = [cluster.add() for _ in range(3)]
        acts: list[str] = []
        arguments = (cluster, nodes[0], folder / "ray", cells, acts)
        threading.Thread(target=disturb, args=arguments, daemon=True).start()
        found, ray_s = time_sweep(
            "on three nodes", grid, folder / "ray", on=f"ray={cluster.address}", **options
        )
    second, second_s = time_sweep("without Ray again", grid, folder / "second", **options)
    timed = read_timed(folder / "ray")
    pairs = {
        "Ray against the first": compare(found, first),
        "Ray against the second": compare(found, second),
        "the second against the first": compare(second, first),
    }
    rows = [
        (name, f"{statistics.median(ratios):.3f}", f"{apart} of {len(ratios)}")
        for name, (ratios, apart) in pairs.items()
    ]
    show("the same cells", ("sweeps", "median ratio", "intervals that do not meet"), rows)
    ratios = [*pairs["Ray against the first"][0], *pairs["Ray against the second"][0]]
    apart = (pairs["Ray against the first"][1] + pairs["Ray against the second"][1]) / 2
    off_pct = 100 * abs(statistics.median(ratios) - 1)
    own = pairs["the second against the first"][1]
    figures = [
        figure("cells lost", cells - len(timed), at_most=0),
        figure("cells timed twice", sum(n > 1 for n in timed.values()), at_most=0),
        figure("nodes killed and added", len(acts), at_least=2),
        figure("median ratio off by", off_pct, "%", at_most=3),
        figure("intervals that do not meet, Ray", apart, at_most=own),
        figure("intervals that do not meet, without", own),
        figure("seconds, Ray", ray_s, "s"),
        figure("seconds, without", (first_s, second_s), "s"),
    ]  # fmt: skip
    raw = {
        "cells": cells,
        "acts": acts,
        "notes": len(found.problems),  # which name hosts
        "pairs": {name: {"ratios": ratios, "apart": n} for name, (ratios, n) in pairs.items()},
    }
    return figures, raw


def measure_gpus(quick: bool, folder: Path) -> tuple[list[Figure], dict[str, Any]]:
    """The same cells on one GPU of a node, and on two."""
    grid, seconds, details = make_grid("cuda", quick), {}, {}
    with start_cluster() as cluster:  # or the first sweep alone would read libraries from a disk
        cluster.add(gpus=2)
        few = make_grid("cuda", quick=True)
        time_sweep("to warm up", few, folder / "few", on=f"ray={cluster.address}", trace=False)
    for gpus in (1, 2):
        with start_cluster() as cluster:
            cluster.add(gpus=gpus)
            found, seconds[gpus] = time_sweep(
                f"{gpus} GPUs", grid, folder / str(gpus), on=f"ray={cluster.address}", quick=quick,
                trace=False,
            )  # fmt: skip
        details[gpus] = {
            "steps_s": read_times(folder / str(gpus)),  # of all devices, each's own
            "cells": Counter(str(cell.facts.get("gpu")) for cell in found.cells),
            "cell_s": statistics.median(cell.seconds for cell in found.cells),
        }
        progress(f"{gpus} GPUs: {seconds[gpus]:.0f} s, {details[gpus]}")
    ratio = seconds[1] / seconds[2]
    faster = figure("as fast on two GPUs", ratio, "times", at_least=1.8)
    return [faster], {"cells": len(grid.cells()), "seconds": seconds, "details": details}


def main() -> None:
    """Sweep, print the figures, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--two-gpus", action="store_true", help="on one GPU and on two")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ftax-fleet-") as folder:
        measure = measure_gpus if options.two_gpus else measure_cluster
        figures, raw = measure(options.quick, Path(folder))
    finish(__file__, options, figures, raw=raw)


if __name__ == "__main__":
    main()
