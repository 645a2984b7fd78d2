"""A sweep on a GPU: traced after the rounds, each model in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
import torch

from ftax.steps.setting import Setting
from ftax.sweeps.grid import Grid
from ftax.sweeps.sweep import run_sweep

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
    """In a process of its own, which no GPU has seen; this one may be on them from other tests."""
    script = """
        import json
        import sys
        from ftax.steps.setting import Setting
        from ftax.sweeps.grid import Grid
        from ftax.sweeps.sweep import run_sweep

        grid = Grid(models=("bert-base", "resnet-50", "gpt2", "distilbert"), dtypes=("fp16",),
                    devices=("cuda",), setting=Setting(tiny=True))
        found = run_sweep([grid], sys.argv[1], quick=True, gpus=("cuda:0", "cuda:1"))
        print(json.dumps([[cell.facts["gpu"], *cell.warnings] for cell in found.cells]))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "sweep")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    cells = json.loads(ended.stdout)
    assert {gpu for gpu, *_ in cells} == {"cuda:0", "cuda:1"}
    for gpu, *warnings in cells:
        others = int(torch._C._cuda_hasPrimaryContext(int(gpu[-1])))  # this process
        seen = [text.split()[0] for text in warnings if "other process(es)" in text]
        assert seen == [str(others)] * others, (gpu, warnings)
