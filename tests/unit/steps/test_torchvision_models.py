"""What is taken from torchvision, what is said without it, and what must equal it.

Most of this runs only where torchvision is installed, which it need not be. The published sizes in
test_vision.py hold the networks in plain torch without it.
"""

import sys
from typing import Any

import pytest
import torch
from torch import nn

from ftax.errors import UnavailableError
from ftax.steps.load import load_model
from ftax.steps.spec import ModelSpec, Variant
from ftax.steps.zoo.registry import find_spec
from ftax.steps.zoo.vision import VISION_MODELS


@pytest.mark.parametrize("spec", [s for s in VISION_MODELS if s.source.startswith("torchvision")])
def test_missing_torchvision_names_the_remedy(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(UnavailableError, match=r"needs the torchvision package.*pip install"):
        load_model(spec.name, tiny=True)


def test_torchvision_of_another_torch_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("ftax.steps.zoo.convnets.importlib.import_module", refuse)
    with pytest.raises(UnavailableError, match=r"nms does not exist.*belongs to your torch"):
        load_model("googlenet", tiny=True)


TORCHVISION_TWINS = {
    "alexnet": "alexnet",
    "vgg16": "vgg16",
    "squeezenet": "squeezenet1_0",
    "mnasnet": "mnasnet1_0",
    "shufflenet-v2": "shufflenet_v2_x1_0",
    "resnet-50": "resnet50",
    "wide-resnet-50-2": "wide_resnet50_2",
    "resnext-50-32x4d": "resnext50_32x4d",
    "mobilenet-v2": "mobilenet_v2",
}


@pytest.mark.parametrize(("name", "twin"), TORCHVISION_TWINS.items())
def test_network_has_the_convolutions_of_torchvision(name: str, twin: str) -> None:
    models = pytest.importorskip("torchvision.models")
    with torch.device("meta"):
        ours = find_spec(name).build(Variant())
        theirs = getattr(models, twin)(weights=None)
    assert shapes_of_layers(ours) == shapes_of_layers(theirs)


def shapes_of_layers(module: nn.Module) -> list[tuple[Any, ...]]:
    """Kind, weight and stride of each convolution and linear layer, in no particular order."""
    return sorted(
        (type(part).__name__, tuple(part.weight.shape), str(getattr(part, "stride", "")))
        for part in module.modules()
        if isinstance(part, nn.Conv2d | nn.Linear)
    )
