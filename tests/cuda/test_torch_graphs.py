"""torch's own compilers on a GPU: what compiled code computes there."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch
from torch import nn

from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Candidate
from support.small_models import normal

pytestmark = pytest.mark.needs_cuda

COMPILED = [("compile", "python"), ("compile-reduce-overhead", "python")]
PACKAGES = [("aoti", "python"), ("aoti", "cpp")]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(autouse=True)
def _shared_cache(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTAX_CACHE", cache)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32), nn.Softmax(-1))
    return load_model(layers.cuda(), inputs=normal(8, 64).cuda())


def prepare(loaded: LoadedModel, runtime: str, host: Any) -> Candidate:
    return find_runtime(runtime).prepare(Workspace(loaded), host)


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "host"), [*COMPILED, *PACKAGES])
def test_outputs_are_eagers(runtime: str, host: str, loaded: LoadedModel) -> None:
    prepared = prepare(loaded, runtime, host)
    assert prepared.checks.outputs.within_tolerance, prepared.checks
    if runtime not in ("compile", "compile-reduce-overhead"):
        assert prepared.checks.second_input.within_tolerance, prepared.checks
    for _ in range(5):
        prepared.runner.run_once()
    assert list(prepared.judge()) == []
    assert prepared.warnings == ()
    with torch.inference_mode():
        assert torch.allclose(prepared.run()[0], loaded.call(), atol=1e-5)


@pytest.mark.slow
def test_reduce_overhead_records_a_cuda_graph(loaded: LoadedModel) -> None:
    prepared = prepare(loaded, "compile-reduce-overhead", "python")
    assert prepared.preparation.details["cuda_graphs_skipped"] == 0
    outputs = prepared.run()
    before = outputs[0].clone()
    prepared.runner.run_once()  # writes over the graph's own outputs, not over ours
    assert torch.equal(outputs[0], before)


@pytest.mark.slow
def test_compiled_runners_stay_valid_while_others_are_prepared(loaded: LoadedModel) -> None:
    first = prepare(loaded, "compile", "python")
    prepare(loaded, "compile-reduce-overhead", "python")
    first.runner.run_once()
    assert list(first.judge()) == []


@pytest.mark.slow
def test_a_graph_survives_a_compiler_that_captures_its_own() -> None:
    """In a process of its own: a fault on a GPU would fail all tests that come after it."""
    script = """
        import torch
        from ftax.steps.load import load_model
        from ftax.runtimes.workspace import Workspace
        from ftax.runtimes.catalogue import find_runtime

        workspace = Workspace(load_model("bert-base", device="cuda", dtype="fp16"))
        places = [("cuda-graph", "cpp"), ("compile-reduce-overhead", "python")]
        prepared = [find_runtime(name).prepare(workspace, host) for name, host in places]
        torch.cuda.empty_cache()
        for _ in range(3):
            for item in prepared:
                item.runner.run_once()
        torch.cuda.synchronize()
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
