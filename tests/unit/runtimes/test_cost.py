"""What making an artefact cost: its time and the memory it took, whoever allocated it."""

import time

import torch

from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.cost import measure_cost
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel

MIB = 1 << 20


def test_time_and_memory_of_a_block() -> None:
    with measure_cost("cpu") as cost:
        memory = torch.ones(64 * MIB, dtype=torch.uint8)
        del memory  # a peak outlives what made it
        time.sleep(0.02)
    assert 0.02 <= cost.seconds < 5
    assert cost.peak_host_bytes is not None
    assert 60 * MIB < cost.peak_host_bytes < 200 * MIB
    assert cost.peak_device_bytes is None


def test_memory_that_was_in_use_before_is_not_charged() -> None:
    memory = torch.ones(256 * MIB, dtype=torch.uint8)
    with measure_cost("cpu") as cost:
        pass
    assert cost.peak_host_bytes is not None
    assert cost.peak_host_bytes < memory.nbytes / 4


def test_an_artefact_tells_its_cost_and_the_runtime_how_long_it_took(mlp: LoadedModel) -> None:
    workspace = Workspace(mlp)
    first = find_runtime("torchscript").prepare(workspace, "cpp")
    again = find_runtime("torchscript").prepare(workspace, "cpp")
    keys = {"seconds", "peak_host_bytes", "peak_device_bytes", "from_cache", "ready_seconds"}
    assert keys <= set(first.preparation.to_dict())
    assert first.preparation.ready_seconds >= first.preparation.made_seconds > 0
    # What it cost when it was made.
    assert again.preparation.made_seconds == first.preparation.made_seconds
