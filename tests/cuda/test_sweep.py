"""A sweep on a GPU: traced after the rounds, each model in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch

from ftax.steps.setting import Setting
from ftax.sweeps.grid import Grid
from ftax.sweeps.run import run_sweep

pytestmark = pytest.mark.needs_cuda


def test_cells_have_rounds_and_then_a_trace(tmp_path):
    grid = Grid(
        models=("bert-base", "resnet-50"),
        runtimes=("eager/python", "cuda-graph/python"),
        dtypes=("fp16", "fp32"),
        batches=(1, 2),
        devices=("cuda",),
        setting=Setting(tiny=True),
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


@pytest.mark.two_gpus
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_share_a_sweep_and_no_worker_touches_the_others(tmp_path):
    """In a process of its own, since this one has been on the first GPU."""
    script = """
        import sys
        from ftax.steps.setting import Setting
        from ftax.sweeps.grid import Grid
        from ftax.sweeps.run import run_sweep

        grid = Grid(models=("bert-base", "resnet-50", "gpt2", "distilbert"), dtypes=("fp16",),
                    devices=("cuda",), setting=Setting(tiny=True))
        found = run_sweep([grid], sys.argv[1], quick=True, gpus=("cuda:0", "cuda:1"))
        print({cell.facts["gpu"] for cell in found.cells} == {"cuda:0", "cuda:1"},
              [text for cell in found.cells for text in cell.warnings if "other process" in text])
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "sweep")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("True []\n", 0), ended.stderr
