"""The odd modules: each with what has to become of it, so that nothing false looks true.

They are grouped by what is odd about them. A module that ftax cannot follow is as good as one that
it can, if it says so.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import math
import os
import random
import threading
import time
import warnings
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hostile.table import Inner, marked, refused, right
from torch import Tensor, library, nn
from torch.utils.checkpoint import checkpoint

from support.small_models import normal

PATH = "control flow depends on the data"
OTHER = "gives other outputs than eager"
READS = "on the host"
CHANGES = "not the same work"
DEPRECATED = pytest.mark.filterwarnings("ignore::DeprecationWarning")
PROTOTYPE = pytest.mark.filterwarnings("ignore::UserWarning")


# Branches on values


@refused(PATH, check=True)
def branch_on_sum(x: Tensor) -> Tensor:
    return x.exp() if x.sum() > 0 else x.neg()


@refused("in gate", check=True)
def branch_in_a_part(x: Tensor) -> Tensor:
    return x.exp() if bool((x > 0).any()) else x.neg()


@refused(PATH, check=True)
def branch_on_item(x: Tensor) -> Tensor:
    return x.exp() if x[0, 0].item() > 0 else x.neg()


@refused(PATH, check=True)
def branch_on_tolist(x: Tensor) -> Tensor:
    return x.exp() if x.tolist()[0][0] > 0 else x.neg()


@refused(PATH, check=True)
def branch_on_numpy(x: Tensor) -> Tensor:
    return x.exp() if np.asarray(x).sum() > 0 else x.neg()


@refused(PATH, check=True)
def branch_on_int(x: Tensor) -> Tensor:
    return x.exp() if int(x.sign().sum()) > 0 else x.neg()


@refused(PATH, check=True)
def branch_by_an_error(x: Tensor) -> Tensor:
    try:
        return torch.linalg.cholesky(x[:, :3] @ x[:, :3].T * x[0, 0].sign())
    except RuntimeError:
        return x.neg()


@refused("on a second input", check=True)
def branch_to_the_same_operators(x: Tensor) -> Tensor:
    return x * (2 if x.sum() > 0 else 3)


@marked(READS)
def branch_that_is_seldom_taken(x: Tensor) -> Tensor:
    return x.exp() if x.sum() < 1e6 else x.neg()


@marked("Tensor.numpy in gate")
def branch_on_numpy_that_is_seldom_taken(x: Tensor) -> Tensor:
    return x.exp() if x.numpy().sum() < 1e6 else x.neg()


@marked("aten::equal in gate")
def branch_on_equal(x: Tensor) -> Tensor:
    return x.exp() if not torch.equal(x, torch.zeros(3, 4)) else x.neg()


@marked("Tensor.__dlpack__")
def branch_by_dlpack(x: Tensor) -> Tensor:
    return x.exp() if np.from_dlpack(x).sum() < 1e6 else x.neg()


@marked("aten::item in gate")
def branch_by_storage(x: Tensor) -> Tensor:
    return x.exp() if x.untyped_storage()[0] >= 0 else x.neg()


@right()
def branch_on_shape(x: Tensor) -> Tensor:
    return x.exp() if x.shape[0] == 3 else x.neg()


@refused(PATH, check=True)
def loop_over_a_value(x: Tensor) -> Tensor:
    for _ in range(1 + int(x.sum() > 0)):
        x = x + 1
    return x


@refused(PATH, check=True)
def early_exit(x: Tensor) -> Tensor:
    y = x.neg()
    return y if y.sum() < 0 else y.exp()


@refused(
    OTHER, inputs=lambda seed: (torch.randperm(6, generator=torch.Generator().manual_seed(seed)),)
)
def tensor_as_an_index(x: Tensor) -> Tensor:
    return x + list(range(6))[x[0]]


@refused(OTHER, inputs=lambda seed: (torch.tensor(10.0**seed),), check=True)
def format_of_a_value(x: Tensor) -> Tensor:
    return x + len(f"{float(x) * 9}")


@marked(READS)
def assertion_on_values(x: Tensor) -> Tensor:
    assert bool((x == x).all())
    return x.exp()


@refused(OTHER)
def sorted_in_python(x: Tensor) -> Tensor:
    return x + torch.tensor(sorted(x.flatten().tolist())).view(3, 4)


# Shapes that values make


def masked(seed: int) -> tuple[Tensor, ...]:
    return (normal(3, 4, seed=seed).abs() * (torch.arange(12).view(3, 4) > seed),)


@marked("values make the shape", inputs=masked)
def nonzero(x: Tensor) -> Tensor:
    return x.nonzero().sum(0)


@marked("values make the shape", inputs=masked)
def masked_select(x: Tensor) -> Tensor:
    return x[x > 0.1] * 2


@refused(OTHER, inputs=lambda seed: (torch.arange(8) // (seed + 1),), check=True)
def unique_values_counted(x: Tensor) -> Tensor:
    return x * len(torch.unique(x))


@marked("values make the shape", inputs=lambda seed: (torch.arange(8) % 4 > seed,))
def mask_counted(x: Tensor) -> Tensor:
    return torch.ones(8)[x].shape[0] * torch.ones(2) + x.sum() * 0


@right()
def index_by_numbers(x: Tensor) -> Tensor:
    return x[torch.tensor([2, 0])]


# Random numbers


@right("training mode")
class Dropout(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 4), nn.Dropout(0.5))


@right()
def dropout_that_is_always_on(x: Tensor) -> Tensor:
    return F.dropout(x, 0.5, training=True)


@right()
def random_numbers(x: Tensor) -> Tensor:
    return x + torch.rand_like(x) + torch.bernoulli(torch.full_like(x, 0.5))


@right()
class OwnGenerator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand(x.shape, generator=self.generator)


@refused(OTHER)
def own_generator_made_anew(x: Tensor) -> Tensor:
    return x + torch.rand(x.shape, generator=torch.Generator().manual_seed(int(x.sum() * 1e3)))


@refused(OTHER)
def seed_set_inside(x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return x + torch.rand_like(x)


@refused(OTHER)
def random_numbers_of_python(x: Tensor) -> Tensor:
    return x * random.random()


@refused(OTHER)
def random_numbers_of_numpy(x: Tensor) -> Tensor:
    return x * float(np.random.rand())


@marked(CHANGES)
def random_branch(x: Tensor) -> Tensor:
    return x.exp() if torch.rand(()).item() > 0.5 else x.neg()


# State in Python


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.compute(x, self.calls)

    def compute(self, x: Tensor, calls: int) -> Tensor:
        return x + 1


@right()
class CounterThatNobodyReads(Counts):
    pass


@refused(OTHER)
class CounterInTheOutput(Counts):
    def compute(self, x: Tensor, calls: int) -> Tensor:
        return x * calls


@marked(CHANGES)
class EveryHundredthCallDoesMore(Counts):
    def compute(self, x: Tensor, calls: int) -> Tensor:
        return x.exp().neg() if calls % 100 == 0 else x.exp()


@marked(CHANGES)
class MoreLayersAfterThirtyCalls(Counts):
    def compute(self, x: Tensor, calls: int) -> Tensor:
        return x.exp().neg() if calls > 30 else x.exp()


@marked("of a later call is aten::mul.Tensor on (3, 4), 2 where the first made")
class OtherValuesAfterThirtyCalls(Counts):
    def compute(self, x: Tensor, calls: int) -> Tensor:
        return x * (2 if calls > 30 else 3)


@refused("cannot tape this model")
class TogglesAtEachCall(Counts):
    def compute(self, x: Tensor, calls: int) -> Tensor:
        return x.exp() if calls % 2 else x.neg()


@marked(CHANGES)
class ShapeThatChangesLater(Counts):
    def compute(self, x: Tensor, calls: int) -> Tensor:
        return x[: 2 if calls > 30 else 3] + 1


@refused("cannot tape this model")
class ListThatGrows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        return torch.stack(self.seen).sum(0)


@refused("cannot tape this model")
class KeyCache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.keys = torch.zeros(0, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.keys = torch.cat([self.keys, x])
        return x @ self.keys.t()


@marked("writes into the model.keys")
class KeyCacheOfFixedSize(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(8, 4), persistent=False)
        self.place = [0]

    def forward(self, x: Tensor) -> Tensor:
        self.keys[:3] = x
        return x @ self.keys.t()


@refused("cannot tape this model")
class DictByStep(Counts):
    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[int, Tensor] = {}

    def compute(self, x: Tensor, calls: int) -> Tensor:
        self.steps[calls] = x
        return sum(self.steps.values(), x)


@right()
class MaskThatIsKept(nn.Module):
    mask = None

    def forward(self, x: Tensor) -> Tensor:
        if self.mask is None:
            self.mask = torch.ones(4, 4).triu()
        return x @ self.mask


@marked("writes into the model.tables.table")
class WriteIntoASlottedObject(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = Slotted()
        self.tables.table = torch.ones(4)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.tables.table.add_(1)


@right()
class TablesInASlottedObject(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = Slotted()

    def forward(self, x: Tensor) -> Tensor:
        if self.tables.table is None:
            self.tables.table = torch.ones(4) * 3
        return x * self.tables.table


class Slotted:
    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table: Tensor | None = None


@functools.lru_cache
def _table(size: int) -> Tensor:
    return torch.arange(size) * 2.0


@right()
def cached_helper(x: Tensor) -> Tensor:
    return x * _table(4)


@refused("cannot tape this model")
class ResultKeptByIdentity(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if id(x) not in self.known:
            self.known[id(x)] = x.exp()
        return self.known[id(x)]


_calls = itertools.count()


@refused(OTHER)
def global_counter(x: Tensor) -> Tensor:
    return x * next(_calls)


@refused(OTHER)
class CycleOfThree(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scales = itertools.cycle([1, 2, 3])

    def forward(self, x: Tensor) -> Tensor:
        return x * next(self.scales)


class CountsInItsClass(nn.Module):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        type(self).calls += 1
        return x * type(self).calls


refused(OTHER)(CountsInItsClass)


@refused(OTHER)
def time_of_day(x: Tensor) -> Tensor:
    return x * (time.time_ns() % 1_000_003)


# Writes


@marked("writes into input 0")
def write_into_the_input(x: Tensor) -> Tensor:
    return x.add_(1) * 2


@marked("writes into input 0")
def write_into_a_row_of_the_input(x: Tensor) -> Tensor:
    x[0].add_(1)
    return x * 2


@marked("writes into input 0")
def write_by_numpy(x: Tensor) -> Tensor:
    x.numpy()[0] = 5.0
    return x * 2


@marked("writes into input 0")
def transposed_in_place(x: Tensor) -> Tensor:
    x.t_().add_(1)
    return x.t_() * 2


@refused("strides", inputs=lambda seed: (normal(4, 4, seed=seed),))
def transposed_in_place_and_left_so(x: Tensor) -> Tensor:
    return x.t_() @ torch.arange(16.0).view(4, 4)


@refused("record a new tape for other shapes")
def resized_input(x: Tensor) -> Tensor:
    return x.resize_(2, 2) + 1


@refused(".data")
def input_of_other_memory(x: Tensor) -> Tensor:
    x.data = x.data + 1
    return x * 2


@marked("writes into input 0")
def input_set_to_other_memory(x: Tensor) -> Tensor:
    x.set_(torch.ones(3, 4))
    return x * 2


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(3, 4))
        self.register_buffer("none", None)
        self.cache = torch.zeros(3, 4)
        self.deep = {"a": [(torch.zeros(4),)]}
        self.weight = nn.Parameter(torch.ones(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.write(x)
        return x + self.state + self.cache + self.deep["a"][0][0] + self.weight

    def write(self, x: Tensor) -> None:
        raise NotImplementedError


@marked("writes into the model.state")
class WriteIntoABuffer(Writes):
    def write(self, x: Tensor) -> None:
        self.state.view(-1).add_(1)


@marked("writes into the model.state")
class WriteByData(Writes):
    def write(self, x: Tensor) -> None:
        self.state.data.add_(1)


@marked("writes into the model.cache")
class WriteIntoAnAttribute(Writes):
    def write(self, x: Tensor) -> None:
        self.cache[1] = x[0]


@marked("writes into the model.deep")
class WriteDeepInside(Writes):
    def write(self, x: Tensor) -> None:
        self.deep["a"][0][0].add_(1)


@marked("writes into the model.weight")
class WriteIntoAParameter(Writes):
    def write(self, x: Tensor) -> None:
        self.weight.add_(1)


@marked("writes into the model.weight")
class WriteIntoAParameterByData(Writes):
    def write(self, x: Tensor) -> None:
        self.weight.data.mul_(2)


@refused("cannot tape this model")
class BufferIsReplaced(Writes):
    def write(self, x: Tensor) -> None:
        self.state = self.state + 1


_constant = torch.zeros(4)


@refused("cannot tape this model")
def write_into_a_constant(x: Tensor) -> Tensor:
    return x + _constant.add_(1)


@marked("writes into")
class BatchNormThatLearns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        norm = self.norm
        return F.batch_norm(x, norm.running_mean, norm.running_var, training=True)


@marked("writes into")
class TrainsItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        self.train()
        try:
            return self.norm(x)
        finally:
            self.eval()


@right("training mode")
class StaysInTrainingMode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.part(x)
        self.eval()
        return y


@right()
class TogglesItsMode(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        self.train(not self.training)
        return x + 1


@marked("writes into a list of its inputs", inputs=lambda seed: ([normal(3, 4, seed=seed)],))
class WritesIntoAListOfTheCaller(nn.Module):
    def forward(self, xs: list[Tensor]) -> Tensor:
        xs.append(xs[0])
        return sum(xs, xs[0])


# What comes out


@right()
def the_input_itself(x: Tensor) -> Any:
    return x, x + 1


@right()
def a_view_of_the_input(x: Tensor) -> Any:
    return x[1:], x.t()


@right()
class ABufferAndAWeight(Writes):
    def forward(self, x: Tensor) -> Any:
        return self.state, self.weight, self.state[0], x + 1


@right()
def one_output_twice(x: Tensor) -> Any:
    y = x + 1
    return y, y, y[0]


@dataclass
class Pair:
    left: Tensor
    right: Any


@right()
def nested_outputs(x: Tensor) -> Any:
    point = namedtuple("point", "a b")
    return {"a": Pair(x + 1, [None, point(x + 2, "text")]), "b": OrderedDict(c=x * 2), "n": 7}


@refused("it returns no tensor")
def no_outputs(x: Tensor) -> Any:
    x.exp()


@refused("it returns no tensor")
def a_number(x: Tensor) -> Any:
    return float(x.sum())


@refused("cannot be searched for tensors")
def an_array(x: Tensor) -> Any:
    return x.exp().numpy()


@refused("cannot be searched for tensors")
def a_set(x: Tensor) -> Any:
    return {x + 1}


@refused("cannot be searched for tensors")
def a_generator(x: Tensor) -> Any:
    return (row + 1 for row in x)


@refused(".numpy()")
def memory_of_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(np.exp(x.numpy()))


@refused("on a second input")
def detour_by_dlpack(x: Tensor) -> Tensor:
    return torch.from_dlpack(x * 2) + 1


@marked("NaN")
def not_a_number(x: Tensor) -> Tensor:
    return (x - x) / 0.0


@marked("NaN")
def not_a_number_anywhere_but_here(x: Tensor) -> Tensor:
    return torch.cat([x[:2] / 0.0 * 0.0, x[2:]])


@right()
def infinite(x: Tensor) -> Tensor:
    return x.sign() / 0.0


@refused(OTHER)
def wrong_beside_infinity(x: Tensor) -> Tensor:
    return torch.cat([x.new_full((1, 4), math.inf), x[1:] * float(x.sum())])


@refused(
    OTHER,
    inputs=lambda seed: (
        torch.randint(2**40, (4,), generator=torch.Generator().manual_seed(seed)),
    ),
)
def huge_integers(x: Tensor) -> Tensor:
    return x * 2**20 + int(x[0]) % 3000 + 1


@marked(READS)
def small_beside_large(x: Tensor) -> Any:
    return torch.cat([x.new_full((1, 4), 1e9), x[1:] * float(x.sum())])


@right()
def half_precision_and_complex(x: Tensor) -> Any:
    return x.half() * 2, x.bfloat16() + 1, x.double().exp(), torch.fft.fft(x)


@right()
def eight_bits(x: Tensor) -> Any:
    return x.to(torch.float8_e4m3fn), x.to(torch.float8_e5m2).float() * 2


@right()
def conjugate_and_negative_views(x: Tensor) -> Any:
    z = torch.complex(x, x + 1)
    return z.conj(), z.conj().imag, z.mT


@right()
def sparse_output(x: Tensor) -> Any:
    return x.to_sparse()


@right()
def expanded_output(x: Tensor) -> Any:
    return x.exp()[:1].expand(5, 4), x.exp().as_strided((2, 2), (1, 1))


@right()
def empty_output(x: Tensor) -> Any:
    return x[:0] + 1, x.sum()


# Gradients, compilers, functions of functions


@refused("inference mode")
def gradient_inside(x: Tensor) -> Tensor:
    with torch.inference_mode(False), torch.enable_grad():
        y = x.clone().requires_grad_()
        return torch.autograd.grad(y.exp().sum(), y)[0]


@right()
def gradients_switched_on(x: Tensor) -> Tensor:
    with torch.enable_grad():
        return x.exp()


@right()
def gradients_switched_off(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x.exp()


@right()
def checkpointed(x: Tensor) -> Tensor:
    return checkpoint(torch.exp, x, use_reentrant=False)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


@right()
def own_autograd_function(x: Tensor) -> Tensor:
    return Double.apply(x)


@library.custom_op("hostile::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy() * 2)


@right()
def own_operator(x: Tensor) -> Tensor:
    return twice(x) + 1


@library.custom_op("hostile::secretly", mutates_args=())
def secretly(x: Tensor) -> Tensor:
    x.numpy()[0] += 1
    return x.clone()


@marked("writes into")
def operator_that_writes_and_does_not_say(x: Tensor) -> Tensor:
    return secretly(x) + 1


@library.custom_op("hostile::counts", mutates_args=())
def counts(x: Tensor) -> Tensor:
    return x * next(_calls)


@refused(OTHER)
def operator_with_a_counter(x: Tensor) -> Tensor:
    return counts(x) + 1


@refused("was not made by an operator call")
def mapped_over_a_batch(x: Tensor) -> Tensor:
    return torch.func.vmap(lambda row: row.exp() * row.sum())(x)


@refused("grad mode")
def gradient_of_a_function(x: Tensor) -> Tensor:
    return torch.func.grad(lambda y: y.exp().sum())(x)


@refused("torch.compile made a part of it")
class CompiledPart(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = torch.compile(nn.Linear(4, 4), backend="eager")

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x) * 2


@right()
def GraphModule() -> nn.Module:
    return torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))


@refused("ScriptModule", marks=[DEPRECATED])
def traced_module() -> nn.Module:
    return torch.jit.script(nn.ReLU())


@refused("ScriptModule", marks=[DEPRECATED])
def traced_part() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), torch.jit.script(nn.ReLU()))


@right(marks=[DEPRECATED])
def fork_of_torch(x: Tensor) -> Tensor:
    return torch.jit.wait(torch.jit.fork(torch.exp, x)) + 1


# Hooks, parametrisations, shapes of modules


@right()
class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(4, 4)
        self.part.register_forward_pre_hook(lambda part, args: (args[0] + 1,))
        self.part.register_forward_hook(lambda part, args, output: output * 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x)


@right()
class HookThatRemovesItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.handle = self.register_forward_hook(self.look)

    def look(self, *_: Any) -> None:
        self.handle.remove()

    def forward(self, x: Tensor) -> Tensor:
        return x + 1


@refused("cannot tape this model")
class HooksThatGrow(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        self.register_forward_hook(lambda part, args, output: output + 1)
        return x * 2


@right()
def weight_norm() -> nn.Module:
    return nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))


@right()
def spectral_norm() -> nn.Module:
    return nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))


@right()
class TiedAndShared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.again = self.first
        self.parts = nn.ModuleDict({"items_": self.first, "a/b": self.second})
        self.scales = nn.ParameterList([torch.ones(4), torch.zeros(4)])

    def forward(self, x: Tensor) -> Tensor:
        y = self.parts["a/b"](self.again(self.first(x)))
        return y * self.scales[0] + self.scales[1]


@right()
class Recursive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(4, 4)

    def forward(self, x: Tensor, depth: int = 3) -> Tensor:
        return self(self.part(x), depth - 1) if depth else x


@right()
def DeepNest() -> nn.Module:
    module: nn.Module = nn.Linear(4, 4)
    for _ in range(100):
        module = nn.Sequential(module)
    return module


@right()
def generator_of_layers(x: Tensor) -> Tensor:
    def layers() -> Any:
        yield torch.exp
        yield torch.neg

    return functools.reduce(lambda y, layer: layer(y), layers(), x)


@right()
def event_loop(x: Tensor) -> Tensor:
    async def compute() -> Tensor:
        await asyncio.sleep(0)
        return x.exp()

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(compute())
    finally:
        loop.close()


@refused("another thread called operators")
def other_thread(x: Tensor) -> Tensor:
    found: list[Tensor] = []
    thread = threading.Thread(target=lambda: found.append(x.exp()))
    thread.start()
    thread.join()
    return found[0] + 1


@refused("another thread called operators")
def other_thread_writes(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    thread = threading.Thread(target=torch.inference_mode()(lambda: y.copy_(x)))
    thread.start()
    thread.join()
    return y + 1


@right()
class CallIsReplaced(nn.Module):
    def __call__(self, x: Tensor) -> Tensor:
        return x.exp()


class _Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x)


@right()
class ForwardOfTheInstance(_Plain):
    def __init__(self) -> None:
        super().__init__()
        self.forward = functools.partial(lambda part, x: part(x).exp(), self.part)


@right()
class ForwardThatReplacesItself(_Plain):
    def forward(self, x: Tensor) -> Tensor:
        self.forward = self.part.forward
        return self.part(x)


@right()
class FalsyAndMute(_Plain):
    """Odd in every method of its own that something might call."""

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")

    def __repr__(self) -> str:
        raise ValueError("nothing to say")

    def __eq__(self, other: object) -> bool:
        raise ValueError("compared")

    __hash__ = nn.Module.__hash__


@right()
class AttributesOutOfThinAir(_Plain):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("wish_"):
            return 2.0
        return super().__getattr__(name)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x) * self.wish_scale


@right()
class EvalThatReturnsNothing(_Plain):
    def eval(self) -> Any:  # a forgotten return
        super().eval()


@refused("cannot be put in eval mode")
class Frozen(_Plain):
    def __init__(self) -> None:
        super().__init__()
        self.__dict__["frozen"] = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("frozen"):
            raise AttributeError(f"{name} may not be set")
        super().__setattr__(name, value)


@refused("lazy")
def lazy_module() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(4))


@refused("meta device")
def module_without_memory() -> nn.Module:
    return nn.Linear(4, 4, device="meta")


@right(marks=[PROTOTYPE])
def QuantisedLayer() -> nn.Module:
    return Inner(lambda x: torch.dequantize(torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)))


@right()
def OddName() -> nn.Module:
    kind = type("[bold]\x1b[31m[/no] {x} %s \u202e\n", (_Plain,), {})
    module = kind()
    module.add_module("[red] a\n/[/red]", nn.Linear(4, 4))
    return module


@right()
class AddsAPartWhenCalled(_Plain):
    def forward(self, x: Tensor) -> Tensor:
        if "late" not in self._modules:
            self.late = nn.Linear(4, 4)
            nn.init.ones_(self.late.weight)
            nn.init.zeros_(self.late.bias)
            self.register_buffer("table", torch.ones(4))
        return self.late(self.part(x)) * self.table


@right()
def TransformerLayer() -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)


@right()
def recurrent() -> nn.Module:
    return nn.LSTM(4, 4, 2)


# Switches of torch and of the process


@refused("autocast")
def autocast_inside(x: Tensor) -> Tensor:
    with torch.autocast("cpu"):
        return x @ x.t()


@refused("default dtype")
def default_dtype_left_changed(x: Tensor) -> Tensor:
    torch.set_default_dtype(torch.float64)
    return x + torch.ones(4)


@refused("deterministic")
def deterministic_left_on(x: Tensor) -> Tensor:
    torch.use_deterministic_algorithms(True)
    return x + 1


@marked("threads")
def threads_left_changed(x: Tensor) -> Tensor:
    torch.set_num_threads(2)
    return x + 1


@refused("grad mode")
def gradients_left_on(x: Tensor) -> Tensor:
    torch.set_grad_enabled(True)
    return x + 1


@right()
def environment_left_changed(x: Tensor) -> Tensor:
    os.environ["HOSTILE"] = "1"
    return x + 1


@marked("default device")
def default_device_left_changed(x: Tensor) -> Tensor:
    torch.set_default_device("cpu")
    return x + torch.ones(4)


@right()
def default_device_inside(x: Tensor) -> Tensor:
    with torch.device("cpu"):
        return x + torch.ones(4)


@refused("meta")
def moved_to_meta(x: Tensor) -> Tensor:
    return x.to("meta")


@right()
def prints(x: Tensor) -> Tensor:
    print("[bold] {x} \x1b")
    return x + 1


@right(marks=[pytest.mark.filterwarnings("ignore:hostile")])
def warns(x: Tensor) -> Tensor:
    warnings.warn("hostile", stacklevel=1)
    return x + 1


@right()
def sleeps(x: Tensor) -> Tensor:
    time.sleep(1e-4)
    return x + 1


# Modules that raise


@refused("ValueError")
def raises_always(x: Tensor) -> Tensor:
    raise ValueError("no [bold] {x} %s \n" * 3)


@refused("SystemExit")
def exits(x: Tensor) -> Tensor:
    raise SystemExit(3)


@refused("UnicodeError")
def raises_what_is_no_text(x: Tensor) -> Tensor:
    raise UnicodeError("\udc80 \0 \ud800")


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@refused("the model raised Wordless")
def raises_without_words(x: Tensor) -> Tensor:
    raise Wordless


@refused("MemoryError")
def raises_at_length(x: Tensor) -> Tensor:
    raise MemoryError("long " * 100_000)


def raise_at(call: int, error: BaseException, pause_s: float = 0.0) -> type[nn.Module]:
    class Raises(Counts):
        def compute(self, x: Tensor, calls: int) -> Tensor:
            if calls >= call:
                raise error
            time.sleep(pause_s)
            return x + 1

    Raises.__name__ = f"RaisesAtCall{call}{type(error).__name__}"
    return Raises


for call in (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20):
    refused("ValueError")(raise_at(call, ValueError("enough")))
# Behind the rounds, which end with call 26 to 28, seldom later, as a call so slow comes twice a
# round everywhere; it goes on beyond 45.
marked("a later call failed")(raise_at(36, ValueError("enough"), pause_s=5e-3))
refused("SystemExit")(raise_at(6, SystemExit(3)))
refused("SystemExit")(raise_at(20, SystemExit(3)))


# Inputs


@right(inputs=lambda seed: (torch.tensor(0.5 + seed),))
def no_dimension(x: Tensor) -> Tensor:
    return x * 2


@refused("batch is 0", inputs=lambda seed: (torch.zeros(0, 4),))
def batch_of_none(x: Tensor) -> Tensor:
    return x * 2


@right(
    inputs=lambda seed: {"x": normal(3, seed=seed), "more": {"y": [normal(3, seed=seed + 9), 2]}}
)
class KeywordsAndContainers(nn.Module):
    def forward(self, *, x: Tensor, more: dict[str, Any]) -> Tensor:
        return x * more["y"][0] * more["y"][1]


def same_twice(seed: int) -> Any:
    x = normal(3, 4, seed=seed)
    return (x, x)


@marked("writes into input 0", inputs=same_twice)
def one_tensor_twice(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return y * 2


def overlapping(seed: int) -> Any:
    x = normal(3, 4, seed=seed)
    return (x, x[1])


@marked("other outputs when it is called again", inputs=overlapping)
def inputs_that_share_memory(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return y * 2


@marked("elements share memory", inputs=lambda seed: (normal(5, seed=seed).unfold(0, 3, 1),))
def input_with_overlapping_rows(x: Tensor) -> Tensor:
    return x * 2


@right(inputs=lambda seed: (normal(3, 1, seed=seed).expand(3, 4),))
def expanded_input(x: Tensor) -> Tensor:
    return x * 2


@right(inputs=lambda seed: (normal(9, 8, seed=seed)[::3, ::2].t(),))
def strided_input(x: Tensor) -> Tensor:
    return x.reshape(-1) * 2


@marked("sparse", inputs=lambda seed: (normal(3, 4, seed=seed).relu().to_sparse(),))
def sparse_input(x: Tensor) -> Tensor:
    return torch.sparse.mm(x, torch.ones(4, 2))


@marked("real numbers", inputs=lambda seed: (torch.complex(normal(3, seed=seed), normal(3)),))
def complex_input(x: Tensor) -> Tensor:
    return x * 2


@refused(
    "disagree on the operators",
    inputs=lambda seed: (torch.complex(normal(3, seed=seed), normal(3)).conj(),),
)
def conjugate_input(x: Tensor) -> Tensor:
    return x * 2


@marked(
    "real numbers",
    inputs=lambda seed: (torch.quantize_per_tensor(normal(3, seed=seed), 0.1, 0, torch.qint8),),
    marks=[PROTOTYPE],
)
def quantised_input(x: Tensor) -> Tensor:
    return x.dequantize() * 2


@marked(
    "real numbers",
    inputs=lambda seed: (torch.nested.nested_tensor([normal(2, seed=seed), normal(3)]),),
    marks=[PROTOTYPE],
)
def nested_input(x: Tensor) -> Tensor:
    return x * 2


@right(inputs=lambda seed: (torch.ones(3, 4) * (seed + 1),))
def constant_input(x: Tensor) -> Tensor:
    return x * 2


@right(inputs=lambda seed: (normal(3, seed=seed) > 0, torch.arange(3) + seed))
def booleans_and_integers(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x, y, -y)


@right(inputs=lambda seed: (normal(3, 4, seed=seed).requires_grad_(),))
def input_that_needs_a_gradient(x: Tensor) -> Tensor:
    return x * 2


@right(inputs=lambda seed: (nn.Parameter(normal(3, 4, seed=seed)),))
def input_that_is_a_parameter(x: Tensor) -> Tensor:
    return x * 2


class Tagged(Tensor):
    """A subclass that says on which calls it went through Python."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


@refused(
    "disagree on the operators", inputs=lambda seed: (normal(3, 4, seed=seed).as_subclass(Tagged),)
)
def input_of_a_subclass(x: Tensor) -> Tensor:
    return x * 2


class Secret(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out + 1 if func is torch.Tensor.mul else out


@refused(
    "disagree on the operators", inputs=lambda seed: (normal(3, 4, seed=seed).as_subclass(Secret),)
)
def input_of_a_subclass_that_computes(x: Tensor) -> Tensor:
    return x * 2


@refused("disagree on the operators")
class WeightOfASubclass(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4).as_subclass(Secret), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.mul(x, self.weight)


def with_attribute(seed: int) -> Any:
    x = normal(3, 4, seed=seed)
    x.scale = 2.0 + seed
    return (x,)


@marked("checked on one input: on values that ftax drew", inputs=with_attribute)
def attribute_of_an_input(x: Tensor) -> Tensor:
    return x * x.scale


@right(inputs=lambda seed: (Pair(normal(3, seed=seed), None),))
def object_as_an_input(x: Any) -> Tensor:
    return x.left * 2


@refused("has no tensor", inputs=lambda seed: (1.0,))
def no_tensor_at_all(x: float) -> Tensor:
    return torch.ones(3) * x


@refused("is on meta", inputs=lambda seed: (torch.ones(3, 4, device="meta"),))
def input_without_memory() -> nn.Module:
    return nn.Linear(4, 4)


def numbers_of_numpy(seed: int) -> Any:
    return (torch.from_numpy(np.arange(12.0, dtype=np.float32).reshape(3, 4) + seed),)


@right(inputs=numbers_of_numpy)
def input_in_memory_of_numpy(x: Tensor) -> Tensor:
    return x * 2


def inference_tensor(seed: int) -> Any:
    with torch.inference_mode():
        return (normal(3, 4, seed=seed) + 0,)


@right(inputs=inference_tensor)
def inference_tensor_as_an_input(x: Tensor) -> Tensor:
    return x * 2


@right(inputs=lambda seed: (normal(3, 4, seed=seed), "text", None, 3, torch.float32))
def plain_values(x: Tensor, *rest: Any) -> Tensor:
    return x.to(rest[3]) * rest[2]


def inside_itself(seed: int) -> Any:
    inputs: list[Any] = [normal(3, 4, seed=seed)]
    inputs.append(inputs)
    return (inputs,)


@refused("contains itself", inputs=inside_itself)
def inputs_within_themselves(x: Any) -> Tensor:
    return x[0] * 2


@right(inputs=lambda seed: (normal(3, 4, seed=seed).to(torch.float8_e4m3fn),))
def input_of_eight_bits(x: Tensor) -> Tensor:
    return x.float() * 2


@right(inputs=lambda seed: ((torch.arange(4) + seed).to(torch.uint16),))
def short_unsigned_input(x: Tensor) -> Tensor:
    return x.int() * 2


@marked(
    "sparse",
    inputs=lambda seed: (normal(3, 4, seed=seed).relu().to_sparse_csr(),),
    marks=[PROTOTYPE],
)
def compressed_input(x: Tensor) -> Tensor:
    return x @ torch.ones(4, 2)


def jagged(seed: int) -> Any:
    parts = [normal(2, 4, seed=seed), normal(3, 4, seed=seed + 9)]
    return (torch.nested.nested_tensor(parts, layout=torch.jagged),)


@marked("real numbers", inputs=jagged, marks=[PROTOTYPE])
def jagged_input(x: Tensor) -> Tensor:
    return x * 2


@right("constant", inputs=lambda seed: (normal(3, 4, seed=seed), torch.ones(3, 4)))
def mask_that_is_left_out(x: Tensor, mask: Tensor) -> Tensor:
    return x * 2 if bool((mask == 1).all()) else x * mask * 2 + 0


@right(inputs=lambda seed: [normal(3, 4, seed=seed)])
def input_that_is_made_to_need_a_gradient(x: Tensor) -> Tensor:
    x.requires_grad_()
    return x.detach() * 2


@marked("other outputs when it is called again", inputs=overlapping)
def inputs_that_share_memory_and_are_read(x: Tensor, y: Tensor) -> Tensor:
    return x * y


class LikeMany(nn.Module):
    """A part that is called many times, and a mask that its first call makes."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(4, 4)
        self.masks: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        for step in range(5):
            if step not in self.masks:
                self.masks[step] = torch.ones(4) * step
            x = self.part(x) + self.masks[step]
        return x


right()(LikeMany)
right(runtimes=["torchscript"])(type("LikeManyTraced", (LikeMany,), {}))


# Compiled alternatives, which bake in what they have seen


@refused(PATH, check=True, runtimes=["torchscript"])
def traced_branch(x: Tensor) -> Tensor:
    return x + 1 if x.sum() > 0 else x - 1


@right(runtimes=["torchscript", "onnxruntime"], inputs=lambda seed: (normal(3, 4, seed=seed),))
def plain_layer() -> nn.Module:
    return nn.Linear(4, 4)


@refused("on a second input", check=True, runtimes=["torchscript", "onnxruntime"])
def traced_value(x: Tensor) -> Tensor:
    return x * (2 if bool(x.sum() > 0) else 3)


@marked(CHANGES, runtimes=["torchscript"])
class TracedBeforeItChanges(Counts):
    def compute(self, x: Tensor, calls: int) -> Tensor:
        return x.exp().neg() if calls > 60 else x.exp()


@right(runtimes=["torchscript"])
def traced_random_numbers(x: Tensor) -> Tensor:
    return x + torch.rand(3, 4)
