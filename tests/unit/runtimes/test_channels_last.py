"""Eager in channels-last: the format really changes, and only for the copy."""

import pytest
import torch
from torch import nn

from ftax.errors import UnsupportedError
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from support.small_models import normal

RUNTIME = "eager-channels-last"


@pytest.fixture
def convolution() -> LoadedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    return load_model(module, inputs=normal(2, 3, 8, 8))


@pytest.mark.parametrize("host", ["python", "cpp"])
def test_outputs_are_eagers_in_another_format(host: str, convolution: LoadedModel) -> None:
    prepared = find_runtime(RUNTIME).prepare(Workspace(convolution), host)
    (output,) = prepared.run()
    torch.testing.assert_close(output, convolution.call())
    assert output.is_contiguous(memory_format=torch.channels_last)
    assert prepared.checks.outputs.within_tolerance
    assert (prepared.runtime, prepared.host, prepared.runner.host) == (RUNTIME, host, host)
    assert prepared.preparation.made_seconds > 0
    prepared.runner.run_once()


def test_model_and_inputs_keep_their_format(convolution: LoadedModel) -> None:
    find_runtime(RUNTIME).prepare(Workspace(convolution), "python")
    assert convolution.module[0].weight.is_contiguous()
    assert convolution.args[0].is_contiguous()
    assert convolution.call().is_contiguous()


def test_hosts_share_one_copy(convolution: LoadedModel) -> None:
    workspace = Workspace(convolution)
    first = find_runtime(RUNTIME).prepare(workspace, "python")
    second = find_runtime(RUNTIME).prepare(workspace, "cpp")
    assert first.preparation.made_seconds == second.preparation.made_seconds


def test_wrong_outputs_are_found_by_the_check(convolution: LoadedModel) -> None:
    workspace = Workspace(convolution)
    find_runtime(RUNTIME).prepare(workspace, "python")
    copied = workspace.variant(RUNTIME, lambda loaded: loaded)[0].loaded.module
    nn.init.zeros_(copied[0].weight)
    again = find_runtime(RUNTIME).prepare(workspace, "python")
    assert not again.checks.outputs.within_tolerance


def test_model_without_convolutions_is_refused(mlp: LoadedModel) -> None:
    with pytest.raises(UnsupportedError, match="has no Conv2d or ConvTranspose2d"):
        find_runtime(RUNTIME).prepare(Workspace(mlp), "python")


def test_model_that_cannot_be_copied_is_refused(convolution: LoadedModel) -> None:
    convolution.module.generator = (x for x in ())
    with pytest.raises(UnsupportedError, match=r"copy\.deepcopy cannot copy"):
        find_runtime(RUNTIME).prepare(Workspace(convolution), "python")
