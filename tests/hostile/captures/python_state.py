"""State that Python keeps. See `table.py`."""

from __future__ import annotations

import functools
import itertools
import os
import random
import threading
import time
import types
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import torch
from hostile.captures.table import (
    CHANGES,
    Scene,
    frozen,
    refused,
    right,
)
from torch import Tensor, nn


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def forward(self, x: Tensor) -> Tensor:
        self.n += 1
        return x * self.n


@refused("n")
def counter_that_scales() -> Scene:
    module = Counts()
    return Scene(module, watch=lambda: module.n)


@refused(CHANGES)
def counter_that_nobody_reads() -> Scene:
    module = nn.Linear(4, 4)
    module.calls = 0

    def work(x: Tensor) -> Tensor:
        module.calls += 1
        return module(x)

    return Scene(work, watch=lambda: module.calls)


@refused(CHANGES)
def list_that_grows() -> Scene:
    seen: list[Tensor] = []

    def work(x: Tensor) -> Tensor:
        seen.append(x)
        return x * 2

    return Scene(work, watch=lambda: len(seen))


@refused(CHANGES)
def deque_that_turns() -> Scene:
    from collections import deque

    factors = deque([1.0, 2.0, 3.0])

    def work(x: Tensor) -> Tensor:
        factors.rotate(1)
        return x * factors[0]

    return Scene(work, watch=lambda: list(factors))


@refused("computed outside torch's operators", moves=True)
def iterator_that_moves_on() -> Scene:
    factors = itertools.count()
    return Scene(lambda x: x * next(factors))


@refused("computed outside torch's operators", moves=True)
def generator_that_moves_on() -> Scene:
    factors = (float(i) for i in range(100))
    return Scene(lambda x: x * next(factors))


@right(recorded=1)
def attribute_bound_to_a_new_tensor() -> Scene:
    class Keeps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.last = x * 2
            return self.last + 1

    module = Keeps()
    return Scene(module, watch=lambda: getattr(module, "last", None))


@refused("cannot capture")
def global_that_is_counted() -> Scene:
    global COUNT
    COUNT = 0

    def work(x: Tensor) -> Tensor:
        global COUNT
        COUNT += 1
        return x * COUNT

    return Scene(work, watch=lambda: COUNT)


COUNT = 0


@refused("cannot capture")
def nonlocal_that_is_counted() -> Scene:
    n = 0

    def work(x: Tensor) -> Tensor:
        nonlocal n
        n += 1
        return x * n

    return Scene(work, watch=lambda: n)


@refused("cannot capture")
def class_attribute_that_is_counted() -> Scene:
    class Scale:
        n = 0

    def work(x: Tensor) -> Tensor:
        Scale.n += 1
        return x * Scale.n

    return Scene(work, watch=lambda: Scale.n)


@refused("cannot capture")
def function_attribute_that_is_counted() -> Scene:
    def work(x: Tensor) -> Tensor:
        work.n += 1
        return x * work.n

    work.n = 0
    return Scene(work, watch=lambda: work.n)


@refused("cannot capture")
def slots_that_are_counted() -> Scene:
    class Slots:
        __slots__ = ("n",)

    slots = Slots()
    slots.n = 0

    def work(x: Tensor) -> Tensor:
        slots.n += 1
        return x * slots.n

    return Scene(work, watch=lambda: slots.n)


@refused("cannot capture")
def default_that_is_written() -> Scene:
    def work(x: Tensor, seen: list[int] = []) -> Tensor:  # noqa: B006
        seen.append(1)
        return x * len(seen)

    work.__defaults__ = ([],)
    return Scene(work, watch=lambda: len(work.__defaults__[0]))


@refused("cannot capture")
def array_of_numpy_that_counts() -> Scene:
    count = np.zeros(1)

    def work(x: Tensor) -> Tensor:
        count[0] += 1
        return x * float(count[0])

    return Scene(work, watch=lambda: count.copy())


@refused("cannot capture")
def dataclass_that_counts() -> Scene:
    @dataclass
    class State:
        n: int = 0

    state = State()

    def work(x: Tensor) -> Tensor:
        state.n += 1
        return x * state.n

    return Scene(work, watch=lambda: state.n)


@refused("cannot capture")
def every_third_call_is_another() -> Scene:
    calls = [0]

    def work(x: Tensor) -> Tensor:
        calls[0] += 1
        return x.exp() if calls[0] % 3 == 0 else x.neg()

    return Scene(work, watch=lambda: calls[0])


@right(replayed=0)
def cache_that_is_filled_once() -> Scene:
    cache: dict[str, Tensor] = {}

    def work(x: Tensor) -> Tensor:
        if "mask" not in cache:
            cache["mask"] = torch.ones(4).cumsum(0)
        return x * cache["mask"]

    return Scene(work)  # who replays does not fill it


@right(recorded=1)
def lru_cache_of_a_tensor() -> Scene:
    @functools.lru_cache
    def table(n: int) -> Tensor:
        return torch.arange(float(n))

    return Scene(lambda x: x * table(x.shape[-1]))


@refused("computed outside torch's operators", moves=True)
def clock_as_a_factor(x: Tensor) -> Tensor:
    return x * (time.perf_counter_ns() % 100_003)


@refused("random numbers of Python")
def random_numbers_of_python() -> Scene:
    random.seed(0)
    return Scene(lambda x: x * random.random())


@refused("random numbers of Python")
def own_random_numbers_of_python() -> Scene:
    source = random.Random(0)
    return Scene(lambda x: x * source.random())


@refused("random numbers of Python")
def choice_of_python() -> Scene:
    random.seed(0)
    return Scene(lambda x: x * random.choice([1, 2, 3, 4, 5, 6, 7]))


@refused("random numbers of numpy")
def random_numbers_of_numpy() -> Scene:
    np.random.seed(0)
    return Scene(lambda x: x * np.random.rand())


@refused("random numbers of numpy")
def own_random_numbers_of_numpy() -> Scene:
    source = np.random.default_rng(0)
    return Scene(lambda x: x * float(source.random()))


@right(recorded=3)
def environment_as_a_factor() -> Scene:
    os.environ["HOSTILE"] = "1"

    def disturb(_: int) -> None:
        os.environ["HOSTILE"] += "1"

    return Scene(
        lambda x: x * int(os.environ["HOSTILE"]),
        disturb=disturb,
        undo=lambda: os.environ.pop("HOSTILE"),
    )


@frozen("open")
def file_as_a_factor() -> Scene:
    import tempfile

    file = tempfile.NamedTemporaryFile("w+", delete=False)  # noqa: SIM115  (open until undo)
    file.write("1")
    file.flush()

    def work(x: Tensor) -> Tensor:
        with open(file.name) as opened:
            return x * len(opened.read())

    def disturb(_: int) -> None:
        file.write("1")
        file.flush()

    return Scene(work, disturb=disturb, undo=lambda: (file.close(), os.unlink(file.name)))


class Starts:
    def __init__(self) -> None:
        self.has_started = False

    def __call__(self, x: Tensor) -> Tensor:
        result = x * 2 if self.has_started else x + 100
        self.has_started = True
        return result


@right()
def what_the_first_call_changes() -> Scene:
    net = Starts()
    return Scene(net, watch=lambda: net.has_started)


@refused("each call finds it changed back")
def what_the_first_call_changes_and_somebody_changes_back() -> Scene:
    net = Starts()

    def work(x: Tensor) -> Tensor:
        return net(x)

    def disturb(_: int) -> None:
        net.has_started = False

    return Scene(work, disturb=disturb, watch=lambda: net.has_started)


@right()
def a_step_that_ends_in_evaluation() -> Scene:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()

    def work(x: Tensor) -> Tensor:
        net.train()
        result = net(x)
        net.eval()
        return result

    return Scene(work, watch=lambda: (net.training, net[1].training, net.state_dict()))


@right()
def ordered_dict_in_another_order() -> Scene:
    parts = OrderedDict(a=torch.tensor(1e8), b=torch.tensor(-1e8), c=torch.tensor(1.0))
    return Scene(lambda x: x + sum(parts.values()), disturb=lambda _: parts.move_to_end("a"))


@refused("starts a thread")
def work_in_a_thread() -> Scene:
    count = torch.zeros(1)

    def work(x: Tensor) -> Tensor:
        thread = threading.Thread(target=lambda: x.sum())
        thread.start()
        thread.join()
        return x + count

    return Scene(work)


@right(recorded=1)
def features_that_a_hook_keeps() -> Scene:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    features: dict[str, Tensor] = {}
    net[0].register_forward_hook(lambda _part, _given, output: features.update(first=output))
    return Scene(net, watch=lambda: dict(features))


@refused("what the call before left in")
def hidden_state_in_an_attribute() -> Scene:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.h = torch.zeros(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            self.h = torch.tanh(self.h + x)
            return self.h * 2

    module = Recurrent()
    return Scene(module, watch=lambda: module.h)


@refused("ignore=('calls',)")
def counter_that_nothing_computes_with() -> Scene:
    return _count_calls()


@right(ignore=("calls",), recorded=1, moves=True)
def counter_that_is_ignored() -> Scene:
    return _count_calls()


def _count_calls() -> Scene:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * 2

    module = Counts()
    return Scene(module, watch=lambda: module.calls)


@right(ignore=("losses",), recorded=1, moves=True)
def list_of_losses_that_is_ignored() -> Scene:
    losses: list[Tensor] = []

    def step(x: Tensor) -> Tensor:
        losses.append(x.sum().detach())
        return x * 2

    return Scene(step, watch=lambda: len(losses))


@right(replayed=2)
def attributes_replaced_as_a_whole() -> Scene:
    class Scales:
        def __init__(self) -> None:
            self.factor = 2.0

    scales = Scales()

    def disturb(at: int) -> None:
        scales.__dict__ = {"factor": 3.0 + at}

    return Scene(lambda x: x * scales.factor, disturb=disturb)


@right(replayed=2)
def attribute_of_a_function_that_torch_wraps() -> Scene:
    @torch.no_grad()
    def scale(x: Tensor) -> Tensor:
        return x * scale.factor  # type: ignore[attr-defined,no-any-return]

    scale.factor = 2.0  # type: ignore[attr-defined]

    def disturb(at: int) -> None:
        scale.factor = 3.0 + at  # type: ignore[attr-defined]

    return Scene(lambda x: scale(x), disturb=disturb)


@right(replayed=2)
def attribute_of_a_function_by_type() -> Scene:
    @functools.singledispatch
    def scale(x: object) -> object:
        raise TypeError

    @scale.register
    def _(x: Tensor) -> Tensor:
        return x * scale.factor  # type: ignore[attr-defined,no-any-return]

    scale.factor = 2.0  # type: ignore[attr-defined]

    def disturb(at: int) -> None:
        scale.factor = 3.0 + at  # type: ignore[attr-defined]

    return Scene(lambda x: scale(x), disturb=disturb)


@right(replayed=2)
def attribute_of_a_partial_function() -> Scene:
    twice = functools.partial(torch.mul, 2.0)
    twice.factor = 2.0  # type: ignore[attr-defined]

    def disturb(at: int) -> None:
        twice.factor = 3.0 + at  # type: ignore[attr-defined]

    return Scene(lambda x: twice(x) * twice.factor, disturb=disturb)  # type: ignore[attr-defined]


class Scaled(nn.Linear):
    factor = 2.0

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.factor


@right(replayed=2)
def base_class_behind_a_parametrization() -> Scene:
    module = Scaled(4, 4)
    nn.utils.parametrize.register_parametrization(module, "weight", nn.Identity())

    def disturb(at: int) -> None:
        Scaled.factor = 3.0 + at

    return Scene(module, disturb=disturb, undo=lambda: setattr(Scaled, "factor", 2.0))


@right(replayed=2)
def base_class_of_a_class_that_python_made() -> Scene:
    made = types.new_class("Made", (Scaled,))(4, 4)

    def disturb(at: int) -> None:
        Scaled.factor = 3.0 + at

    return Scene(made, disturb=disturb, undo=lambda: setattr(Scaled, "factor", 2.0))
