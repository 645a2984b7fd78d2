"""What a call asks: of names that may come, kinds, sizes and the system. See `table.py`."""

from __future__ import annotations

import logging
import os
import random
import sys
import types
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hostile.captures.hidden_names import changed
from hostile.captures.table import CHANGES, Scene, frozen, one, refused, right
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from support.small_models import normal


class Options:
    pass


class Scaled(nn.Module):
    """TorchScript reads no annotations that are texts."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0

    def forward(self, x):
        return x * self.scale


@right()
def attribute_whose_lack_is_caught() -> Scene:
    options = Options()

    def work(x: Tensor) -> Tensor:
        try:
            return x * options.gain
        except AttributeError:
            return x

    return changed(work, lambda value: setattr(options, "gain", value))


@right()
def attribute_of_a_module_whose_lack_is_suppressed() -> Scene:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with suppress(AttributeError):
                return x * self.gain
            return x

    net = Net()
    return changed(net, lambda value: setattr(net, "gain", value))


@right()
def attribute_of_a_class_whose_lack_is_caught() -> Scene:
    class Settings:
        pass

    def work(x: Tensor) -> Tensor:
        try:
            return x * Settings.gain
        except Exception:
            return x

    return changed(work, lambda value: setattr(Settings, "gain", value))


@right()
def import_that_fails_at_first() -> Scene:
    def work(x: Tensor) -> Tensor:
        try:
            import plugin_that_comes_later as plugin
        except ImportError:
            return x
        return x * plugin.gain

    def put(value: float) -> None:
        plugin = types.ModuleType("plugin_that_comes_later")
        plugin.gain = value
        sys.modules[plugin.__name__] = plugin

    scene = changed(work, put)
    scene.undo = lambda: sys.modules.pop("plugin_that_comes_later", None)
    return scene


@right()
def getattr_by_another_name() -> Scene:
    options, ask = Options(), getattr
    name = "-gain".strip("-")
    options.gain = 1.0
    return changed(lambda x: x * ask(options, name), lambda value: setattr(options, "gain", value))


@right()
def attribute_in_a_format() -> Scene:
    options = Options()
    options.gain = 1.0
    return changed(
        lambda x: x * float("{0.gain}".format(options)),  # noqa: UP030, UP032  # the point of it
        lambda value: setattr(options, "gain", value),
    )


@right()
def bases_of_a_class() -> Scene:
    class First:
        def scale(self, x: Tensor) -> Tensor:
            return x * 2

    class Second:
        def scale(self, x: Tensor) -> Tensor:
            return x * 3

    class Derived(First):
        pass

    made = Derived()

    def put(place: int) -> None:
        Derived.__bases__ = ((Second,), (First,))[place]

    return Scene(lambda x: made.scale(x), disturb=put)


@right()
def python_module_with_a_name_of_pythons_own() -> Scene:
    module = types.ModuleType("statistics")  # as a file of that name beside the script is
    module.__file__ = "statistics.py"
    module.gain = 1.0
    before = sys.modules.get("statistics")
    sys.modules["statistics"] = module
    scene = changed(lambda x: x * module.gain, lambda value: setattr(module, "gain", value))

    def undo() -> None:
        if before is None:
            del sys.modules["statistics"]
        else:
            sys.modules["statistics"] = before

    scene.undo = undo
    return scene


@right()
def graph_of_fx_that_is_edited() -> Scene:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x) + 1

    made = torch.fx.symbolic_trace(Net())

    def put(place: int) -> None:
        node = next(node for node in made.graph.nodes if node.op == "call_function")
        node.target = (torch.tanh, torch.relu)[place]
        made.recompile()

    return Scene(made, disturb=put)


@frozen("attributes, modes and weights of")
def attribute_of_a_script_module() -> Scene:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made = torch.jit.script(Scaled())
    return changed(made, lambda value: setattr(made, "scale", value))


@refused("how often a tensor was written")
def cache_by_the_version_of_a_weight() -> Scene:
    weight = nn.Parameter(torch.eye(4))
    kept: dict[int, Tensor] = {}

    def work(x: Tensor) -> Tensor:
        if weight._version not in kept:
            kept.clear()
            kept[weight._version] = weight.detach() * 2
        return x @ kept[weight._version]

    def put(_: int) -> None:
        with torch.no_grad():
            weight.add_(1)

    return Scene(work, disturb=put)


def call_with_either(seed: int) -> Any:
    return (nn.Parameter(normal(3, 4, seed=seed)) if seed % 2 else normal(3, 4, seed=seed),)


@right()
def kind_of_a_tensor() -> Scene:
    def work(x: Tensor) -> Tensor:
        return x * (2 if isinstance(x, nn.Parameter) else 3)

    return Scene(work, inputs=call_with_either)


@frozen("storage_offset")
def place_of_a_tensor_in_its_memory() -> Scene:
    def give(seed: int) -> Any:
        return (normal(4, 4, seed=seed)[seed % 2 :][:3],)

    return Scene(lambda x: x * (1 + x.storage_offset()), inputs=give)


@refused("a size that depends on values")
def size_by_counts_that_are_state() -> Scene:
    counts = torch.tensor([1, 2, 1])

    def work(x: Tensor) -> Tensor:
        made = torch.repeat_interleave(x, counts, dim=0)
        return made.sum() / made.shape[0]

    def put(place: int) -> None:
        counts[0] = 3 + place

    return Scene(work, disturb=put)


@refused("a size that depends on values")
def lengths_of_packed_sequences() -> Scene:
    layer = nn.LSTM(4, 3, batch_first=True)

    def work(x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        made, _ = pad_packed_sequence(layer(packed)[0], batch_first=True)
        return made.sum(1) / made.shape[1]

    def give(seed: int) -> Any:
        return normal(3, 5, 4, seed=seed), torch.tensor([2 + seed % 3, 2, 1])

    return Scene(work, inputs=give)


@right(on_host_read="check", replayed=0)
def number_that_becomes_minus_zero() -> Scene:
    def give(seed: int) -> Any:
        return normal(3, 4, seed=seed), torch.tensor((0.0, -0.0)[seed % 2])

    return Scene(lambda x, zero: 1 / (x.abs() * zero.item()), inputs=give)


@right()
def gradient_that_is_assigned_without_autograd() -> Scene:
    weight = nn.Parameter(torch.ones(4))

    def work(x: Tensor) -> Tensor:
        weight.grad = x.mean(0)
        return x.sum()

    return Scene(work, watch=lambda: weight.grad)


@right()
def gradient_that_is_dropped_without_autograd() -> Scene:
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def work(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        return x * 2

    def put(_: int) -> None:
        weight.grad = torch.ones(4)

    return Scene(work, disturb=put, watch=lambda: weight.grad)


@refused("lazy (LazyLinear)")
def weights_that_the_first_call_makes() -> Scene:
    torch.manual_seed(0)
    layer = nn.LazyLinear(4)
    return Scene(layer, watch=lambda: type(layer))


@frozen("posix.stat")
def file_that_may_be_there() -> Scene:
    path = Path("a-file-that-comes-later")

    def put(place: int) -> None:
        path.touch() if place == 0 else path.unlink()

    return Scene(lambda x: x * 2 if os.path.exists(path) else x, disturb=put)


@frozen("argv")
def argument_of_the_command_line() -> Scene:
    def put(place: int) -> None:
        sys.argv.append("--fast") if place == 0 else sys.argv.remove("--fast")

    return Scene(lambda x: x * 2 if "--fast" in sys.argv else x, disturb=put)


@right()
def random_numbers_of_the_system_that_decide_nothing() -> Scene:
    source = random.SystemRandom()
    return Scene(lambda x: x * 2 if source.random() < 0 else x, inputs=one)


@refused("draws random numbers of numpy")
def random_numbers_of_a_source_that_is_made_anew() -> Scene:
    source = np.random.RandomState(0)
    return Scene(lambda x: x * float(source.rand()))


@refused("draws random numbers of Python")
def random_numbers_by_a_method_alone() -> Scene:
    draw = random.Random(0).random
    return Scene(lambda x: x * draw(), watch=lambda: None)


@refused(CHANGES)
def private_slot_that_counts() -> Scene:
    class Counter:
        __slots__ = ("__count",)

        def __init__(self) -> None:
            self.__count = 0

        def step(self) -> int:
            self.__count += 1
            return self.__count

    counter = Counter()

    def work(x: Tensor) -> Tensor:
        counter.step()
        return x * 2

    return Scene(work, watch=lambda: counter._Counter__count)  # type: ignore[attr-defined]


@refused(CHANGES)
def number_in_a_python_module_that_counts() -> Scene:
    module = types.ModuleType("counts_that_change")
    module.count = 0

    def work(x: Tensor) -> Tensor:
        module.count += 1
        return x * 2

    return Scene(work, watch=lambda: module.count)


@refused(CHANGES)
def attribute_of_a_weight_that_counts() -> Scene:
    weight = nn.Parameter(torch.ones(4))

    def work(x: Tensor) -> Tensor:
        weight.calls = getattr(weight, "calls", 0) + 1  # type: ignore[attr-defined]
        return x * weight

    return Scene(work, watch=lambda: getattr(weight, "calls", 0))


@right()
def level_of_a_logger() -> Scene:
    logger = logging.getLogger("a-logger-of-a-model")
    logger.setLevel("INFO")

    def work(x: Tensor) -> Tensor:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("called")
        return x * 2

    return Scene(work)
