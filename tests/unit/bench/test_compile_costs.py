"""Calls of generated Python are noted, also where a GPU keeps them in pieces; what agrees does."""

import compile_costs
import pytest
import torch
from torch import nn

from ftax.runtimes.compilers.taken_apart import take_apart
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import use_threads
from ftax.steps.load import load_model
from support.small_models import normal


@pytest.mark.slow
@pytest.mark.parametrize("in_pieces", [False, True])
def test_calls_of_generated_python_are_noted_and_made(in_pieces, monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))
    if in_pieces:  # as for kernels of a GPU
        scheduler = torch._inductor.scheduler.Scheduler
        monkeypatch.setattr(scheduler, "should_partition", lambda *_: None)
    torch._dynamo.reset()
    width = 24 if in_pieces else 32  # each its own, or the cache has it
    model = nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, 8)).eval()
    with use_threads(1):
        workspace = Workspace(load_model(model, inputs=normal(3, 16)))
        parts = take_apart(workspace)
        before = dict(parts.generated.__func__.__globals__)
        with torch.inference_mode():
            noted = compile_costs.note_calls(parts)
        whole_ns, times = compile_costs.time_calls(parts, "cpu")
    assert hasattr(parts.generated.__self__, "partitions")
    assert bool(parts.generated.__self__.partitions) == in_pieces
    assert parts.generated.__func__.__globals__ == before
    kinds = [compile_costs.name_kind(call.name) for call in noted]
    assert kinds.count("matrix products") == 2
    assert kinds.count("kernels in C++") == 1
    assert {kind for kind, ns in times.items() if ns > 0} >= {"matrix products", "kernels in C++"}
    assert sum(times.values()) < 3 * whole_ns
    # The last product, made once more where it was made: its result is the model's.
    last = [call for call in noted if compile_costs.name_kind(call.name) == "matrix products"][-1]
    with torch.inference_mode():
        last.function(*last.args, **last.kwargs)
    assert torch.allclose(last.kwargs["out"], model(*workspace.loaded.args), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("triton_poi_fused_add_0.run", "Triton kernels"),
        ("extern_kernels.addmm", "matrix products"),
        ("torch.ops.aten._scaled_dot_product_flash_attention.default", "attention"),
        ("extern_kernels.convolution", "convolutions"),
        ("empty_strided_cuda", "memory"),
        ("assert_size_stride", "tests"),
        ("torch.cuda.set_device", "the rest"),
    ],
)
def test_kinds_of_calls(name, kind):
    assert compile_costs.name_kind(name) == kind


@pytest.mark.parametrize(
    ("guards", "left_ns", "known", "agrees"),
    [
        ((100.0, (90.0, 110.0)), 5.0, True, True),
        ((100.0, (80.0, 120.0)), 18.0, True, True),  # beyond 10 %, within its interval
        ((100.0, (90.0, 110.0)), -20.0, True, False),
        ((100.0, (40.0, 160.0)), 50.0, False, True),  # 12 % of the call: it would always agree
        ((100.0, None), 5.0, False, True),
    ],
)
def test_a_line_is_held_against_another_measure_where_it_is_known(guards, left_ns, known, agrees):
    cell = {
        "lines": {"guards": guards}, "latency_ns": 1000.0, "left_ns": (left_ns, None),
        "sum_error": 0.0, "alone_ns": {}, "calls_ns": {"memory": 1.0}, "issue_ns": 1.0,
    }  # fmt: skip
    assert compile_costs.is_known(cell, "guards") is known
    assert compile_costs.agrees(cell, "guards") is agrees
    figures = {item.name: item.values for item in compile_costs.list_figures({"cell": cell})}
    expected = (float(agrees),) if known else None
    assert figures.get("lines that agree with another measure") == expected
