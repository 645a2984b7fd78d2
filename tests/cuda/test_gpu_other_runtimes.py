"""On a GPU: nested tensors and channels-last, each against eager there."""

from typing import Any

import pytest

from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model

pytestmark = pytest.mark.needs_cuda


def load(name: str, **options: Any) -> Workspace:
    return Workspace(load_model(name, tiny=True, device="cuda", **options))


@pytest.mark.parametrize("host", ["python", "cpp"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("batch", [1, 8])
def test_nested_gives_the_outputs_of_padded(batch: int, dtype: str, host: str) -> None:
    workspace = load("bert-base", sequence=64, batch=batch, dtype=dtype)
    for runtime in ("padded", "nested"):
        prepared = find_runtime(runtime).prepare(workspace, host)
        assert prepared.checks.outputs.within_tolerance, prepared.checks.outputs
        prepared.runner.run_once()


@pytest.mark.parametrize("host", ["python", "cpp"])
def test_channels_last_gives_eagers_outputs(host: str) -> None:
    prepared = find_runtime("eager-channels-last").prepare(load("resnet-50", dtype="fp16"), host)
    assert prepared.checks.outputs.within_tolerance
    prepared.runner.run_once()
