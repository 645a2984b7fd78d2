"""Names that lead to what a call reads by a way on which few look. See `table.py`."""

from __future__ import annotations

import builtins
import dataclasses
import functools
import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch.nn.functional as F
from hostile.captures.table import Scene, one, refused, right
from torch import Tensor, nn

from support.small_models import normal

PACKAGE = types.ModuleType("hostile_package")
PACKAGE.settings = types.ModuleType("hostile_package.settings")
PACKAGE.settings.scale = 1.0
SETTINGS = sys.modules["hostile_settings"] = types.ModuleType("hostile_settings")
SETTINGS.scale = 1.0
__factor__ = 1.0


def changed(what: Any, put: Callable[[float], object], inputs: Callable[[int], Any] = one) -> Scene:
    """``put(2.0)`` and ``put(3.0)`` between calls, and ``put(1.0)`` at the end, for the next."""
    return Scene(what, inputs, disturb=lambda step: put(step + 2.0), undo=lambda: put(1.0))


class Base(nn.Module):
    factor = 1.0

    def scale(self, x: Tensor) -> Tensor:
        return x * self.factor

    def forward(self, x: Tensor) -> Tensor:
        return self.scale(x)


@right()
def attribute_of_a_derived_class() -> Scene:
    class Derived(Base):
        pass

    return changed(Derived(), lambda value: setattr(Derived, "factor", value))


@right()
def method_of_a_derived_class() -> Scene:
    class Derived(Base):
        pass

    return changed(
        Derived(), lambda value: setattr(Derived, "scale", lambda self, x: x * (value + 1))
    )


@right()
def forward_of_a_class_derived_from_torchs() -> Scene:
    class Linear(nn.Linear):
        pass

    return changed(
        nn.Sequential(Linear(4, 4)),
        lambda value: setattr(Linear, "forward", lambda self, x: x * value),
    )


@right()
def attribute_that_a_module_may_have() -> Scene:
    class Asks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * getattr(self, "extra", 1.0)

    module = Asks()
    return changed(module, lambda value: setattr(module, "extra", value))


@right()
def attribute_that_a_class_may_have() -> Scene:
    class Options:
        pass

    def work(x: Tensor) -> Tensor:
        return x * Options.extra if hasattr(Options, "extra") else x

    return changed(work, lambda value: setattr(Options, "extra", value))


@right()
def attribute_that_was_made_up() -> Scene:
    class Options:
        def __getattr__(self, name: str) -> float:
            return 1.0

    options = Options()
    return changed(lambda x: x * options.extra, lambda value: setattr(options, "extra", value))


@right()
def module_in_a_package() -> Scene:
    return changed(
        lambda x: x * PACKAGE.settings.scale,
        lambda value: setattr(PACKAGE.settings, "scale", value),
    )


@right()
def module_that_is_imported_inside() -> Scene:
    def work(x: Tensor) -> Tensor:
        import hostile_settings

        return x * hostile_settings.scale

    return changed(work, lambda value: setattr(SETTINGS, "scale", value))


@right()
def name_that_is_imported_inside() -> Scene:
    def work(x: Tensor) -> Tensor:
        from hostile_settings import scale

        return x * scale

    return changed(work, lambda value: setattr(SETTINGS, "scale", value))


@right()
def python_module_in_an_attribute() -> Scene:
    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.settings = SETTINGS

        def forward(self, x: Tensor) -> Tensor:
            return x * self.settings.scale

    return changed(Holds(), lambda value: setattr(SETTINGS, "scale", value))


@right()
def attribute_of_a_weight() -> Scene:
    weight = nn.Parameter(normal(3, 4))
    weight.factor = 1.0
    return changed(
        lambda x: x * weight * weight.factor, lambda value: setattr(weight, "factor", value)
    )


@refused("names 'factor', an attribute")
def attribute_of_an_argument() -> Scene:
    def inputs(seed: int) -> tuple[Tensor]:
        x = normal(3, 4, seed=seed)
        x.factor = seed + 1.0
        return (x,)

    return Scene(lambda x: x * x.factor, inputs)


@dataclasses.dataclass
class Batch:
    x: Tensor
    factor: ClassVar[float] = 1.0


@right()
def class_of_an_argument() -> Scene:
    return changed(
        lambda batch: batch.x * batch.factor,
        lambda value: setattr(Batch, "factor", value),
        lambda seed: (Batch(normal(3, 4, seed=seed)),),
    )


class Row(NamedTuple):
    x: Tensor

    def scale(self) -> Tensor:
        return self.x * 1.0


@right()
def method_of_an_argument() -> Scene:
    return changed(
        lambda row: row.scale(),
        lambda value: setattr(Row, "scale", lambda self: self.x * value),
        lambda seed: (Row(normal(3, 4, seed=seed)),),
    )


def make_options() -> Any:
    options = types.SimpleNamespace()
    options.inner = type("Inner", (), {})()
    options.inner.factor = 1.0
    return options


@right()
def names_in_a_path() -> Scene:
    options, path = make_options(), "inner.factor"

    def work(x: Tensor) -> Tensor:
        return x * functools.reduce(getattr, path.split("."), options)

    return changed(work, lambda value: setattr(options.inner, "fac" + "tor", value))


@dataclasses.dataclass
class Softplus:
    beta: float = 1.0
    threshold: float = 20.0


@right()
def fields_of_a_dataclass() -> Scene:
    options = Softplus()
    return changed(
        lambda x: F.softplus(x, **dataclasses.asdict(options)),
        lambda value: setattr(options, "be" + "ta", value),
    )


@right()
def fields_by_their_place() -> Scene:
    options = Softplus()

    def work(x: Tensor) -> Tensor:
        match options:
            case Softplus(first, second):
                return x * first + second
        return x

    return changed(work, lambda value: setattr(options, "be" + "ta", value))


@right()
def numbers_among_parameters() -> Scene:
    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.ParameterDict({"a": 1.0})

        def forward(self, x: Tensor) -> Tensor:
            return x * sum(self.table.values())

    module = Holds()
    return changed(module, lambda value: module.table.update({"a": value}))


@right()
def object_that_is_a_key() -> Scene:
    key = make_options().inner
    table = {key: 1}
    return changed(
        lambda x: x * next(iter(table)).factor, lambda value: setattr(key, "factor", value)
    )


@right()
def attribute_of_a_function_that_is_not_called() -> Scene:
    def holder() -> None: ...

    holder.factor = 1.0
    return changed(lambda x: x * holder.factor, lambda value: setattr(holder, "factor", value))


@right()
def attribute_of_a_metaclass() -> Scene:
    class Meta(type):
        factor = 1.0

    class Made(metaclass=Meta):
        pass

    return changed(lambda x: x * Made.factor, lambda value: setattr(Meta, "factor", value))


@right()
def builtin_of_ones_own() -> Scene:
    def put(value: float) -> None:
        builtins.hostile_factor = value

    put(1.0)
    return changed(lambda x: x * hostile_factor, put)  # noqa: F821


@right()
def global_between_underscores() -> Scene:
    return changed(lambda x: x * __factor__, lambda value: globals().update(__factor__=value))


@right()
def attribute_between_underscores() -> Scene:
    class Options:
        __factor__ = 1.0

    options = Options()
    return changed(
        lambda x: x * options.__factor__, lambda value: setattr(Options, "__factor__", value)
    )


@right()
def function_that_is_registered() -> Scene:
    @functools.singledispatch
    def scale(x: Tensor) -> Tensor:
        return x * 1.0

    return changed(lambda x: scale(x), lambda value: scale.register(Tensor, lambda x: x * value))


@right()
def cell_that_is_filled_later() -> Scene:
    def work(x: Tensor) -> Tensor:
        try:
            return x * factor
        except NameError:
            return x

    def put(value: float) -> None:
        nonlocal factor
        factor = value

    if not work:
        factor = 1.0
    return changed(work, put)
