"""Equal modules are one group; a stack's functions tell the group, and no more than that."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ftax.steps.equal_modules import EqualModules, Function, join_paths


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.key, self.value, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(self.key(x) + self.value(x))
        return result


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.attention(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(12))
        self.last = Layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        result: torch.Tensor = self.last(x)
        return result


NET = Net()
CALLS = {"": 1, **{f"layers.{number}": 1 for number in range(12)}}


def get(*classes: type[nn.Module]) -> list[Function]:
    """The functions of a stack in which these are called within each other, and others between."""
    found = [(kind.forward.__code__.co_filename, kind.forward.__qualname__) for kind in classes]
    return [item for function in found for item in (("module.py", "Module._call_impl"), function)]


def find(*classes: type[nn.Module], root: nn.Module = NET, calls_root: bool = True) -> str:
    equal = EqualModules(root, CALLS, calls_root=calls_root)
    group = equal.groups[equal.find(get(*classes))]
    return f"{group.name} {group.kind}"


def test_twelve_equal_layers_are_one_group() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(12))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    (group,) = (item for item in EqualModules(Plain(), CALLS, calls_root=True).groups
                if item.kind == "Layer")  # fmt: skip
    assert (group.name, group.calls, len(group.paths)) == ("layers.*", 12, 12)


def test_what_a_stack_does_not_tell_apart_is_one_group() -> None:
    names = [group.name for group in EqualModules(NET, CALLS, calls_root=True).groups]
    assert names == [
        "",
        "{layers.*,last}",
        "{layers.*.attention,last.attention}",
        "{layers.*.attention.key,layers.*.attention.value,last.attention.key,last.attention.value}",
        "{layers.*.attention.norm,last.attention.norm}",
    ]


def test_the_innermost_module_counts() -> None:
    assert find(Net) == " Net"
    assert find(Net, Layer, Attention) == "{layers.*.attention,last.attention} Attention"
    assert find(Net, Layer, Attention, nn.LayerNorm).endswith(" LayerNorm")


def test_outside_of_all_modules_is_the_function_that_is_called() -> None:
    equal = EqualModules(NET, CALLS, calls_root=False)
    group = equal.groups[equal.find([("step.py", "step")])]
    assert (group.name, group.kind, group.calls) == ("", "", 1)
    assert find(Layer, Attention, calls_root=False).endswith("Attention")


def test_a_module_that_something_else_calls_is_found_by_what_is_in_it() -> None:
    assert find(Attention, nn.LayerNorm).endswith(".norm} LayerNorm")


def test_functions_that_lead_to_no_module_of_the_model_have_a_class_alone() -> None:
    assert find(Net, nn.LayerNorm, Layer) == "? Layer"


def test_a_forward_behind_a_decorator_is_found() -> None:
    import functools

    class Wrapped(nn.Module):
        @functools.wraps(Attention.forward)
        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return inputs[0]

    assert find(Attention, root=Wrapped()) == " Wrapped"


def test_a_scripted_module_is_a_group() -> None:
    with pytest.warns(DeprecationWarning, match="deprecated"):
        scripted = torch.jit.trace(nn.Linear(4, 4), torch.ones(1, 4))
    groups = EqualModules(nn.Sequential(scripted, nn.ReLU()), {}, calls_root=True).groups
    assert {"0", ""} <= {path for group in groups for path in group.paths}


@pytest.mark.parametrize(
    ("paths", "joined"),
    [
        (["layer.0.key", "layer.1.key"], "layer.*.key"),
        (["layer.0.key", "layer.0.value", "layer.1.key"], "layer.*.{key,value}"),
        (["a", "a.b"], "{a,a.b}"),
        (["a.b.c", "a.d"], "a.{b.c,d}"),
        (["conv1", "conv2"], "{conv1,conv2}"),
        (["0", "12"], "*"),
    ],
)
def test_paths_in_one(paths: list[str], joined: str) -> None:
    assert join_paths(paths) == joined
