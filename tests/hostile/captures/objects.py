"""Objects and containers that code reads and somebody changes. See `table.py`."""

from __future__ import annotations

import enum
import functools
import types
import weakref
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hostile.captures.table import (
    Scene,
    frozen,
    right,
)
from torch import Tensor, nn


@right()
def global_by_a_name_in_a_text() -> Scene:
    global FACTOR
    FACTOR = 1.0

    def disturb(step: int) -> None:
        global FACTOR
        FACTOR = step + 2.0

    return Scene(lambda x: x * globals()["FACTOR"], disturb=disturb)


@right()
def module_inside_of_a_plain_object() -> Scene:
    holder = types.SimpleNamespace(net=nn.Linear(4, 4))

    def disturb(step: int) -> None:
        holder.net = nn.Linear(4, 4)

    return Scene(lambda x: holder.net(x), disturb=disturb)


@right()
def attribute_of_a_dictionary() -> Scene:
    holder = types.SimpleNamespace(factor=2.0)
    return Scene(
        lambda x: x * sum(vars(holder).values()),
        disturb=lambda step: setattr(holder, "factor", step + 3.0),
    )


@right()
def attribute_by_attrgetter() -> Scene:
    import operator

    holder = types.SimpleNamespace(inner=types.SimpleNamespace(factor=2.0))
    get = operator.attrgetter("inner.factor")
    return Scene(
        lambda x: x * get(holder), disturb=lambda step: setattr(holder.inner, "factor", step + 3.0)
    )


@right()
def slot_that_changes() -> Scene:
    class Slots:
        __slots__ = ("factor",)

    slots = Slots()
    slots.factor = 2.0
    return Scene(
        lambda x: x * slots.factor, disturb=lambda step: setattr(slots, "factor", step + 3.0)
    )


@right()
def slot_that_is_filled_later() -> Scene:
    class Slots:
        __slots__ = ("factor",)

    slots = Slots()
    return Scene(
        lambda x: x * getattr(slots, "factor", 1.0),
        disturb=lambda step: setattr(slots, "factor", step + 3.0),
    )


@right()
def attribute_that_appears() -> Scene:
    holder = types.SimpleNamespace()
    return Scene(
        lambda x: x * getattr(holder, "factor", 1.0),
        disturb=lambda step: setattr(holder, "factor", step + 3.0),
    )


@right()
def global_that_appears() -> Scene:
    def work(x: Tensor) -> Tensor:
        try:
            return x * HOSTILE_LATER
        except NameError:
            return x

    def disturb(step: int) -> None:
        globals()["HOSTILE_LATER"] = step + 3.0

    return Scene(work, disturb=disturb, undo=lambda: globals().pop("HOSTILE_LATER", None))


@right()
def builtin_that_is_hidden() -> Scene:
    def disturb(step: int) -> None:
        globals()["abs"] = lambda x: x * (step + 3)

    return Scene(lambda x: abs(x), disturb=disturb, undo=lambda: globals().pop("abs", None))


@right()
def partial_of_a_list() -> Scene:
    factors = [2.0]

    def scale(by: list[float], x: Tensor) -> Tensor:
        return x * by[0]

    def disturb(step: int) -> None:
        factors[0] = step + 3.0

    return Scene(functools.partial(scale, factors), disturb=disturb)


@right()
def bound_method() -> Scene:
    class Scaled:
        factor = 2.0

        def scale(self, x: Tensor) -> Tensor:
            return x * self.factor

    scaled = Scaled()
    return Scene(scaled.scale, disturb=lambda step: setattr(scaled, "factor", step + 3.0))


@right()
def object_that_is_called() -> Scene:
    class Scaled:
        def __init__(self) -> None:
            self.factor = 2.0

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.factor

    scaled = Scaled()
    return Scene(scaled, disturb=lambda step: setattr(scaled, "factor", step + 3.0))


@right()
def decorated_function() -> Scene:
    holder = {"factor": 2.0}

    def scaled(function: Any) -> Any:
        @functools.wraps(function)
        def inner(*args: Any) -> Any:
            return function(*args) * holder["factor"]

        return inner

    @scaled
    def work(x: Tensor) -> Tensor:
        return x + 1

    return Scene(work, disturb=lambda step: holder.update(factor=step + 3.0))


@frozen("a _lru_cache_wrapper")
def lru_cache_that_is_cleared() -> Scene:
    holder = {"factor": 2.0}

    @functools.lru_cache
    def factor() -> float:
        return holder["factor"]

    def disturb(step: int) -> None:
        holder["factor"] = step + 3.0
        factor.cache_clear()

    return Scene(lambda x: x * factor(), disturb=disturb)


@right()
def cached_property() -> Scene:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = 2.0

        @functools.cached_property
        def factor(self) -> float:
            return self.base * 2

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    module = Scaled()
    _ = module.factor

    def disturb(step: int) -> None:
        module.base = step + 3.0
        del module.factor
        _ = module.factor

    return Scene(module, disturb=disturb)


@right()
def enum_that_changes() -> Scene:
    class Kind(enum.Enum):
        A = 1
        B = 2

    holder = types.SimpleNamespace(kind=Kind.A)
    return Scene(
        lambda x: x.exp() if holder.kind is Kind.A else x.neg(),
        disturb=lambda step: setattr(holder, "kind", (Kind.B, Kind.A)[step]),
    )


@right()
def flags_of_integers() -> Scene:
    class Factor(enum.IntEnum):
        TWO = 2
        THREE = 3

    holder = types.SimpleNamespace(factor=Factor.TWO)
    return Scene(
        lambda x: x * holder.factor,
        disturb=lambda step: setattr(holder, "factor", (Factor.THREE, Factor.TWO)[step]),
    )


@right(recorded=3)
def array_of_numpy_that_changes() -> Scene:
    module = nn.Linear(4, 4)
    module.factor = np.ones(4, dtype=np.float32)
    module.forward = lambda x: x * torch.tensor(module.factor)

    def disturb(step: int) -> None:
        module.factor[0] = step + 3

    return Scene(module, disturb=disturb)


@right()
def array_of_numpy_that_is_replaced() -> Scene:
    module = nn.Linear(4, 4)
    module.factor = np.ones(4, dtype=np.float32)
    module.forward = lambda x: x * torch.tensor(module.factor)
    return Scene(
        module,
        disturb=lambda step: setattr(module, "factor", np.full(4, step + 3, dtype=np.float32)),
    )


@right()
def array_of_one_number() -> Scene:
    holder = {"factor": np.array(2.0)}

    def disturb(step: int) -> None:
        holder["factor"][...] = step + 3.0

    return Scene(lambda x: x * float(holder["factor"]), disturb=disturb)


@frozen("the 10,000 items of table")
def large_array_that_changes() -> Scene:
    table = np.full((10, 1000), 2.0)

    def disturb(step: int) -> None:
        table[3, 7] = step + 3.0

    return Scene(lambda x: x * float(table[3, 7]), disturb=disturb)


@right()
def number_of_numpy() -> Scene:
    holder = {"factor": np.float64(2.0)}
    return Scene(
        lambda x: x * holder["factor"], disturb=lambda s: holder.update(factor=np.float64(s + 3))
    )


@right(recorded=1)
def array_that_a_tensor_shares() -> Scene:
    array = np.ones(4, dtype=np.float32)
    tensor = torch.from_numpy(array)

    def disturb(step: int) -> None:
        array[0] = step + 3

    return Scene(lambda x: x * tensor, disturb=disturb)


@right()
def bytearray_that_changes() -> Scene:
    data = bytearray(b"a")
    return Scene(lambda x: x * len(data), disturb=lambda step: data.extend(b"b"))


@frozen("a ReferenceType")
def weak_reference() -> Scene:
    class Holder:
        factor = 2.0

    holder = Holder()
    reference = weakref.ref(holder)

    def disturb(step: int) -> None:
        holder.factor = step + 3.0

    return Scene(lambda x: x * reference().factor, disturb=disturb)


@frozen("a ContextVar")
def context_variable() -> Scene:
    import contextvars

    variable = contextvars.ContextVar("hostile", default=2.0)
    return Scene(lambda x: x * variable.get(), disturb=lambda step: variable.set(step + 3.0))


@frozen("a _local")
def thread_local() -> Scene:
    import threading

    local = threading.local()
    local.factor = 2.0
    return Scene(
        lambda x: x * local.factor, disturb=lambda step: setattr(local, "factor", step + 3.0)
    )


@frozen("the 200,000 items of factors")
def large_list_that_changes() -> Scene:
    factors = [2.0] * 200_000

    def disturb(step: int) -> None:
        factors[7] = step + 3.0

    return Scene(lambda x: x * factors[7], disturb=disturb)


@right()
def dictionary_of_a_subclass() -> Scene:
    class Config(dict):  # type: ignore[type-arg]
        def __getattr__(self, name: str) -> Any:
            return self[name]

    config = Config(factor=2.0)
    return Scene(lambda x: x * config.factor, disturb=lambda s: config.update(factor=s + 3.0))


@right()
def list_of_a_subclass_with_an_attribute() -> Scene:
    class Config(list):  # type: ignore[type-arg]
        factor = 2.0

    config = Config([1])
    return Scene(
        lambda x: x * config.factor * config[0],
        disturb=lambda s: setattr(config, "factor", s + 3.0),
    )


@right()
def user_dictionary() -> Scene:
    from collections import UserDict

    config = UserDict(factor=2.0)

    def disturb(step: int) -> None:
        config["factor"] = step + 3.0

    return Scene(lambda x: x * config["factor"], disturb=disturb)


@right()
def chain_of_dictionaries() -> Scene:
    from collections import ChainMap

    inner = {"factor": 2.0}
    config = ChainMap({}, inner)
    return Scene(lambda x: x * config["factor"], disturb=lambda s: inner.update(factor=s + 3.0))


@right()
def deque_that_changes() -> Scene:
    from collections import deque

    factors = deque([2.0])
    return Scene(lambda x: x * sum(factors), disturb=lambda s: factors.append(s + 3.0))


@right()
def counter_of_collections() -> Scene:
    from collections import Counter

    counts = Counter("a")
    return Scene(lambda x: x * counts["a"], disturb=lambda s: counts.update("a"))


@right()
def proxy_of_a_dictionary() -> Scene:
    inner = {"factor": 2.0}
    config = types.MappingProxyType(inner)
    return Scene(lambda x: x * config["factor"], disturb=lambda s: inner.update(factor=s + 3.0))


@right()
def function_with_an_attribute() -> Scene:
    def scale(x: Tensor) -> Tensor:
        return x * scale.factor

    scale.factor = 2.0
    return Scene(lambda x: scale(x), disturb=lambda s: setattr(scale, "factor", s + 3.0))


@frozen("functions and classes of torch")
def module_of_torch_that_is_patched() -> Scene:
    before = F.relu

    def disturb(step: int) -> None:
        F.relu = lambda x: x * (step + 3)

    return Scene(lambda x: F.relu(x), disturb=disturb, undo=lambda: setattr(F, "relu", before))
