"""Names that code reads and somebody changes: globals, functions, classes. See `table.py`."""

from __future__ import annotations

import types
from typing import Any

import torch
from hostile.captures.arguments import Pair
from hostile.captures.table import (
    Scene,
    right,
)
from hostile.captures.weights import linear
from torch import Tensor, nn

from support.small_models import normal

FACTOR = 1.0
OTHER = types.SimpleNamespace(factor=1.0)
OUTSIDE = types.ModuleType("hostile_outside")
OUTSIDE.factor = 1.0
OUTSIDE.scale = lambda x: x * 2


@right()
def global_number() -> Scene:
    global FACTOR
    FACTOR = 1.0

    def disturb(step: int) -> None:
        global FACTOR
        FACTOR = step + 2.0

    return Scene(lambda x: x * FACTOR, disturb=disturb)


@right()
def sign_of_a_global_zero() -> Scene:
    global FACTOR
    FACTOR = 0.0

    def disturb(step: int) -> None:
        global FACTOR
        FACTOR = (-0.0, float("nan"))[step]

    return Scene(lambda x: x.abs() * FACTOR, disturb=disturb)


def _helper(x: Tensor) -> Tensor:
    return x * 2


@right()
def global_function_replaced() -> Scene:
    def disturb(step: int) -> None:
        globals()["_helper"] = lambda x: x * (step + 3)

    before = _helper
    return Scene(
        lambda x: _helper(x), disturb=disturb, undo=lambda: globals().update(_helper=before)
    )


@right()
def number_of_an_imported_module() -> Scene:
    OUTSIDE.factor = 1.0
    return Scene(
        lambda x: x * OUTSIDE.factor,
        disturb=lambda step: setattr(OUTSIDE, "factor", step + 2.0),
    )


@right()
def function_of_an_imported_module() -> Scene:
    OUTSIDE.scale = lambda x: x * 2
    return Scene(
        lambda x: OUTSIDE.scale(x),
        disturb=lambda step: setattr(OUTSIDE, "scale", lambda x: x * (step + 3)),
    )


@right()
def function_that_is_typed_in_again() -> Scene:
    space: dict[str, Any] = {"__name__": "__main__"}

    def enter(text: str) -> None:
        exec(compile(text, "<stdin>", "single"), space)

    enter("def helper(x): return x * 2\n")
    enter("def work(x): return helper(x)\n")
    return Scene(
        space["work"], disturb=lambda step: enter(f"def helper(x): return x * {step + 3}\n")
    )


@right()
def number_that_is_typed_in_again() -> Scene:
    space: dict[str, Any] = {"__name__": "__main__"}

    def enter(text: str) -> None:
        exec(compile(text, "<stdin>", "single"), space)

    enter("def work(x): return x * getattr(options, names[0]) * FACTOR\n")
    enter("import types; options = types.SimpleNamespace(a=1.0); names = ['a']; FACTOR = 2.0\n")

    def disturb(step: int) -> None:
        enter(("options.a = 3.0\n", "FACTOR = 5.0\n")[step])

    return Scene(space["work"], disturb=disturb)


@right()
def code_of_a_function_replaced() -> Scene:
    def inner(x: Tensor) -> Tensor:
        return x * 2

    def disturb(step: int) -> None:
        inner.__code__ = ((lambda x: x * 5), (lambda x: x * 7))[step].__code__

    return Scene(lambda x: inner(x), disturb=disturb)


@right()
def default_replaced() -> Scene:
    def inner(x: Tensor, factor: float = 2.0) -> Tensor:
        return x * factor

    def disturb(step: int) -> None:
        inner.__defaults__ = (step + 3.0,)

    return Scene(lambda x: inner(x), disturb=disturb)


@right()
def keyword_default_replaced() -> Scene:
    def inner(x: Tensor, *, factor: float = 2.0) -> Tensor:
        return x * factor

    def disturb(step: int) -> None:
        inner.__kwdefaults__ = {"factor": step + 3.0}

    return Scene(inner, disturb=disturb)


@right()
def closure_over_a_number() -> Scene:
    factor = 1.0

    def disturb(step: int) -> None:
        nonlocal factor
        factor = step + 2.0

    return Scene(lambda x: x * factor, disturb=disturb)


@right()
def closure_over_a_list() -> Scene:
    factors = [1.0]
    return Scene(lambda x: x * sum(factors), disturb=lambda step: factors.append(step + 2.0))


@right()
def closure_over_nested_containers() -> Scene:
    tree: Any = {"a": [{"b": (1.0, [2.0])}]}

    def disturb(step: int) -> None:
        tree["a"][0]["b"][1][0] = step + 3.0

    return Scene(lambda x: x * tree["a"][0]["b"][1][0], disturb=disturb)


@right()
def closure_over_a_set() -> Scene:
    names = {"a"}
    return Scene(lambda x: x * len(names), disturb=lambda step: names.add(step))


@right()
def closure_over_a_tensor_replaced() -> Scene:
    tensors = [normal(4, seed=50)]

    def disturb(step: int) -> None:
        tensors[0] = normal(4, seed=51 + step)

    return Scene(lambda x: x * tensors[0], disturb=disturb)


@right()
def class_attribute() -> Scene:
    class Scaled(nn.Module):
        factor = 2.0

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    return Scene(Scaled(), disturb=lambda step: setattr(Scaled, "factor", step + 3.0))


@right()
def class_attribute_hidden_by_the_instance() -> Scene:
    class Scaled(nn.Module):
        factor = 2.0

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    module = Scaled()
    return Scene(module, disturb=lambda step: setattr(module, "factor", step + 3.0))


@right()
def class_attribute_by_its_name() -> Scene:
    class Options:
        factor = 2.0

    return Scene(
        lambda x: x * Options.factor, disturb=lambda step: setattr(Options, "factor", step + 3.0)
    )


@right()
def class_attribute_of_a_base() -> Scene:
    class Base:
        factor = 2.0

    class Options(Base):
        pass

    return Scene(
        lambda x: x * Options().factor, disturb=lambda step: setattr(Base, "factor", step + 3.0)
    )


@right()
def method_of_the_class_replaced() -> Scene:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return self.scale(x)

        def scale(self, x: Tensor) -> Tensor:
            return x * 2

    return Scene(
        Scaled(), disturb=lambda step: setattr(Scaled, "scale", lambda self, x: x * (step + 3))
    )


@right()
def forward_of_the_class_replaced() -> Scene:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    return Scene(
        Scaled(), disturb=lambda step: setattr(Scaled, "forward", lambda self, x: x * (step + 3))
    )


@right()
def static_method_replaced() -> Scene:
    class Scaled:
        @staticmethod
        def scale(x: Tensor) -> Tensor:
            return x * 2

    def disturb(step: int) -> None:
        Scaled.scale = staticmethod(lambda x: x * (step + 3))

    return Scene(lambda x: Scaled.scale(x), disturb=disturb)


@right()
def method_of_the_instance_replaced() -> Scene:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return self.scale(x)

        def scale(self, x: Tensor) -> Tensor:
            return x * 2

    module = Scaled()
    return Scene(module, disturb=lambda step: setattr(module, "scale", lambda x: x * (step + 3)))


@right()
def property_of_an_attribute() -> Scene:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = 1.0

        @property
        def factor(self) -> float:
            return self.base * 2

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    module = Scaled()
    return Scene(module, disturb=lambda step: setattr(module, "base", step + 3.0))


@right()
def attribute_by_getattr() -> Scene:
    class Lazy:
        def __init__(self) -> None:
            self.hidden = {"factor": 2.0}

        def __getattr__(self, name: str) -> Any:
            return self.hidden[name]

    lazy = Lazy()

    def disturb(step: int) -> None:
        lazy.hidden["factor"] = step + 3.0

    return Scene(lambda x: x * lazy.factor, disturb=disturb)


@right()
def attribute_by_a_made_up_name() -> Scene:
    holder = types.SimpleNamespace(a1=1.0, a2=2.0)
    return Scene(
        lambda x: x * getattr(holder, f"a{x.dim()}"),
        disturb=lambda step: setattr(holder, "a2", step + 3.0),
    )


@right()
def attribute_by_a_name_in_a_list() -> Scene:
    holder = types.SimpleNamespace(factor=1.0)
    names = ["factor"]

    def work(x: Tensor) -> Tensor:
        note = "another text"
        return x * getattr(holder, names[0]) + len(note)

    return Scene(work, disturb=lambda step: setattr(holder, "factor", step + 3.0))


@right()
def bound_method_of_a_dictionary() -> Scene:
    config = {"factor": 2.0}
    get = config.get
    return Scene(lambda x: x * get("factor"), disturb=lambda s: config.update(factor=s + 3.0))


@right(recorded=1)
def attributes_that_nobody_reads() -> Scene:
    module = linear()
    module.note = "a"

    def disturb(step: int) -> None:
        module.note += "a"
        module[0].other = step

    return Scene(module, disturb=disturb)


@right(recorded=1)
def module_of_the_user_that_grows() -> Scene:
    def disturb(step: int) -> None:
        globals()[f"HOSTILE_{step}"] = step
        OUTSIDE.other = step

    return Scene(
        lambda x: x * OUTSIDE.factor,
        disturb=disturb,
        undo=lambda: [globals().pop(f"HOSTILE_{step}", None) for step in range(2)],
    )


@right()
def named_tuple_that_is_replaced() -> Scene:
    holder = {"pair": Pair(2.0, [1.0])}

    def disturb(step: int) -> None:
        if step:
            holder["pair"].right[0] = 4.0
        else:
            holder["pair"] = Pair(3.0, [1.0])

    return Scene(lambda x: x * holder["pair"].left + holder["pair"].right[0], disturb=disturb)


@right()
def lazily_made_mask() -> Scene:
    class Masks(nn.Module):
        mask: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.mask is None or self.mask.shape[0] < x.shape[0]:
                self.mask = torch.ones(x.shape[0], 4).tril()
            return x * self.mask[: x.shape[0]]

    return Scene(Masks(), lambda seed: (normal((3, 3, 2, 2, 5, 5)[seed], 4, seed=seed),))


@right()
def descriptor_of_the_user() -> Scene:
    class Doubled:
        def __init__(self) -> None:
            self.by = 2.0

        def __get__(self, owner: Any, kind: Any = None) -> float:
            return self.by * 2

    doubled = Doubled()

    class Scaled(nn.Module):
        factor = doubled

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    return Scene(Scaled(), disturb=lambda step: setattr(doubled, "by", step + 3.0))


@right()
def hash_of_a_set_of_numbers() -> Scene:
    factors = {2.0, 3.0}
    return Scene(
        lambda x: x * sum(factors), disturb=lambda s: (factors.discard(3.0), factors.add(5.0 + s))
    )


@right()
def true_replaced_by_one_in_a_set() -> Scene:
    factors: set[Any] = {True}

    def disturb(step: int) -> None:
        factors.clear()
        factors.add((1, 1.0)[step])

    return Scene(
        lambda x: x * (5 if next(iter(factors)) is True else 3),
        disturb=disturb,
    )


@right()
def options_of_a_command_line() -> Scene:
    import argparse

    options = argparse.Namespace(factor=2.0)
    return Scene(
        lambda x: x * options.factor, disturb=lambda step: setattr(options, "factor", step + 3.0)
    )
