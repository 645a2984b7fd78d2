"""A sweep on a GPU: traced after the rounds, each model in a process of its own."""

from __future__ import annotations

import pytest

from ftax.sweep.grid import Grid
from ftax.sweep.run import run_sweep

pytestmark = pytest.mark.needs_cuda


def test_cells_have_rounds_and_then_a_trace(tmp_path):
    grid = Grid(
        models=("bert-base", "resnet-50"),
        runtimes=("eager/python", "cuda-graph/python"),
        dtypes=("fp16", "fp32"),
        batches=(1, 2),
        devices=("cuda",),
        tiny=True,
    )
    results = run_sweep([grid], tmp_path, quick=True)
    assert {cell.cell for cell in results.cells} == set(grid.cells())
    assert {cell.status for cell in results.cells} == {"measured"}
    for cell in results.cells:
        assert cell.facts["trace"] == "found", cell.cell.label()
        assert cell.busy_ns > 0 and cell.kernels > 0 and cell.peak_device_bytes is not None
        assert cell.facts["gpu"] == "cuda:0"
    for fields in ({"batch": 1, "dtype": "fp16", "model": "bert-base"},):
        eager = results.find(runtime="eager", **fields)
        graph = results.find(runtime="cuda-graph", **fields)
        assert eager.kernels == graph.kernels  # the graph is those kernels
        assert eager.overhead_share > graph.overhead_share
    again = run_sweep([grid], tmp_path, resume=True)
    assert again.cells == results.cells
