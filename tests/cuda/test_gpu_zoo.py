"""On a GPU: the text and speech models of the zoo run in half precision, and their tapes are they.

The tape of GPT-2's generation is also captured into one graph, because that is what generating with
a fixed number of tokens is for.
"""

import pytest
import torch

from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.outputs import flatten_outputs
from ftax.steps.zoo.registry import list_models
from ftax.tape.tape import make_tape

pytestmark = pytest.mark.needs_cuda

SPECS = [spec for spec in list_models() if spec.family in ("text", "speech")]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_tape_is_the_model_on_the_gpu(spec) -> None:
    dtype = "fp16" if "fp16" in spec.dtypes else "fp32"
    model = load_model(spec.name, tiny=True, device="cuda", dtype=dtype, batch=2)
    with torch.inference_mode():
        outputs = flatten_outputs(model.call())
    assert all(bool(output.isfinite().all()) for output in outputs)
    assert make_tape(model).checks.second_input.within_tolerance


def test_a_whole_generation_is_one_graph() -> None:
    workspace = Workspace(load_model("gpt2-generate", tiny=True, device="cuda", dtype="fp16"))
    prepared = find_runtime("cuda-graph").prepare(workspace, "cpp")
    assert prepared.checks.outputs.within_tolerance
    prepared.runner.run_once()
    (tokens,) = prepared.run()
    assert tokens.shape == (1, 16)
