"""Arguments. See `table.py`."""

from __future__ import annotations

import enum
import types
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hostile.captures.table import (
    Given,
    Scene,
    one,
    refused,
    right,
)
from torch import Tensor, nn

from support.small_models import normal


@right()
def keywords_in_another_order() -> Scene:
    def inputs(seed: int) -> Given:
        pairs = [("x", normal(3, seed=seed)), ("y", normal(3, seed=seed + 9))]
        return Given(kwargs=dict(pairs if seed % 2 else reversed(pairs)))

    return Scene(lambda x, y: x - y, inputs)


@right(recorded=2)
def default_that_is_given() -> Scene:
    def work(x: Tensor, factor: float = 2.0) -> Tensor:
        return x * factor

    return Scene(work, lambda seed: Given(args=(*one(seed), *((3.0,) if seed % 2 else ()))))


Pair = namedtuple("Pair", "left right")


@right(recorded=1)
def nested_arguments() -> Scene:
    return Scene(
        lambda tree: {"sum": tree["a"][0] + tree["b"][1]["c"], "same": [tree["a"]]},
        lambda seed: ({"a": [normal(3, seed=seed)], "b": (1, {"c": normal(3, seed=seed + 9)})},),
    )


@right(replayed=0)  # each is another object, so each call is recorded
def arguments_with_names() -> Scene:
    return Scene(
        lambda pair: pair.left - pair.right,
        lambda seed: (Pair(normal(3, seed=seed), normal(3, seed=seed + 9)),),
    )


@right(recorded=1)
def results_with_names() -> Scene:
    return Scene(lambda x: Pair(x + 1, [x - 1, None, 3]))


@refused("returns a Result")
def result_of_a_dataclass() -> Scene:
    @dataclass
    class Result:
        value: Tensor

    return Scene(lambda x: Result(x + 1))


@right(replayed=0)  # each is another object, so each call is recorded
def argument_of_a_dataclass() -> Scene:
    @dataclass
    class Batch:
        value: Tensor

    return Scene(lambda batch: batch.value * 2, lambda seed: (Batch(*one(seed)),))


@right(replayed=0)  # each is another object, so each call is recorded
def tensor_inside_of_an_argument() -> Scene:
    batch = types.SimpleNamespace(value=normal(3))

    def inputs(seed: int) -> Given:
        batch.value = normal(3, seed=seed)
        return Given(args=(batch,))

    return Scene(lambda b: b.value * 2, inputs)


@right()
def object_as_an_argument() -> Scene:
    options = types.SimpleNamespace(factor=2.0)
    return Scene(
        lambda x, o: x * o.factor,
        lambda seed: Given(args=(*one(seed), options)),
        disturb=lambda step: setattr(options, "factor", step + 3.0),
    )


@right(recorded=1)
def list_of_numbers_as_an_argument() -> Scene:
    return Scene(lambda x, shape: x.reshape(shape), lambda seed: Given(args=(*one(seed), [2, -1])))


def _arguments(*values: Any) -> Callable[[int], Given]:
    return lambda seed: Given(args=(*one(seed), values[seed % len(values)]))


@right(recorded=2)
def signs_of_zero() -> Scene:
    return Scene(lambda x, v: x.abs() * v, _arguments(0.0, -0.0))


@right(recorded=1)
def not_a_number() -> Scene:
    return Scene(lambda x, v: x * v, lambda seed: Given(args=(*one(seed), float("nan"))))


@right(recorded=2)
def true_and_one() -> Scene:
    return Scene(lambda x, v: x * 2 if v is True else x * v, _arguments(True, 1))


@right(recorded=3)
def one_of_three_types() -> Scene:
    return Scene(lambda x, v: torch.full((2,), v), _arguments(1, 1.0, 1 + 0j))


@right(recorded=3)
def none_and_texts() -> Scene:
    return Scene(lambda x, v: x if v is None else getattr(x, v)(), _arguments(None, "exp", "neg"))


@right(recorded=2)
def members_of_an_enum() -> Scene:
    class Kind(enum.Enum):
        A = 1
        B = 2

    return Scene(lambda x, v: x.exp() if v is Kind.A else x.neg(), _arguments(Kind.A, Kind.B))


@right(recorded=2)
def dtypes_as_arguments() -> Scene:
    return Scene(lambda x, v: x.to(v), _arguments(torch.float64, torch.int32))


@right(recorded=2)
def slices_as_arguments() -> Scene:
    return Scene(lambda x, v: x[v] * 2, _arguments(slice(0, 1), slice(1, 3)))


@right()
def functions_as_arguments() -> Scene:
    return Scene(lambda x, v: v(x), _arguments(torch.exp, torch.neg))


@right(recorded=2)
def dictionary_whose_order_matters() -> Scene:
    def inputs(seed: int) -> Given:
        pairs = [("a", normal(3, seed=seed)), ("b", normal(3, seed=seed + 9))]
        return Given(args=(dict(pairs if seed % 2 else reversed(pairs)),))

    return Scene(lambda d: torch.cat(list(d.values())), inputs)


@right(recorded=2)
def keywords_whose_order_matters() -> Scene:
    def inputs(seed: int) -> Given:
        pairs = [("a", normal(3, seed=seed)), ("b", normal(3, seed=seed + 9))]
        return Given(kwargs=dict(pairs if seed % 2 else reversed(pairs)))

    return Scene(lambda **d: torch.cat(list(d.values())), inputs)


@right(recorded=2)
def key_that_is_true_or_one() -> Scene:
    return Scene(
        lambda d: d[1] * (2 if next(iter(d)) is True else 3),
        lambda seed: ({True if seed % 2 else 1: normal(3, seed=seed)},),
    )


@right(recorded=2)
def shapes() -> Scene:
    return Scene(lambda x: x * x.shape[0], lambda seed: (normal(2 + seed % 2, 4, seed=seed),))


@right(recorded=2)
def layouts() -> Scene:
    return Scene(
        lambda x: x * 2,
        lambda seed: (normal(4, 4, seed=seed).t() if seed % 2 else normal(4, 4, seed=seed),),
    )


@right(recorded=2)
def channels_last() -> Scene:
    module = nn.Conv2d(3, 4, 3).eval()

    def inputs(seed: int) -> tuple[Tensor, ...]:
        x = normal(2, 3, 5, 5, seed=seed)
        return (x.to(memory_format=torch.channels_last) if seed % 2 else x,)

    return Scene(module, inputs)


@right(recorded=1)
def expanded() -> Scene:
    return Scene(lambda x: x * 2, lambda seed: (normal(1, 4, seed=seed).expand(3, 4),))


@right()
def strides_of_single_dimensions() -> Scene:
    # What has one channel is contiguous in either layout, and torch chooses that of results.
    def inputs(seed: int) -> tuple[Tensor, ...]:
        x = normal(4, 1, 3, 3, seed=seed)
        return (x.as_strided(x.shape, (9, 1, 3, 1)) if seed % 2 else x,)

    return Scene(lambda x: F.conv2d(x, torch.ones(2, 1, 2, 2)), inputs)


@right(recorded=1)
def no_dimensions_and_no_items() -> Scene:
    return Scene(
        lambda x, y: (x * 2, y.exp(), torch.cat([y, y])),
        lambda seed: (normal(1, seed=seed)[0], normal(0, 3, seed=seed)),
    )


@right(recorded=2)
def types_of_tensors() -> Scene:
    return Scene(
        lambda x: x * 2,
        lambda seed: (normal(3, seed=seed).to((torch.float32, torch.float64)[seed % 2]),),
    )


@refused("disagree on the operators")
def complex_numbers() -> Scene:
    return Scene(
        lambda x: torch.view_as_real(x.conj() * x), lambda seed: (normal(3, 2, seed=seed) * 1j,)
    )


@refused("strided")
def conjugated() -> Scene:
    return Scene(lambda x: x * 2, lambda seed: ((normal(3, seed=seed) * 1j).conj(),))


@refused("conjugated or negated")
def results_that_are_conjugated() -> Scene:
    return Scene(lambda x: (x.conj(), x.imag.neg()), lambda seed: (normal(3, seed=seed) * 1j,))


@refused("strided")
def sparse() -> Scene:
    return Scene(lambda x: x @ torch.ones(4, 2), lambda seed: (one(seed)[0].relu().to_sparse(),))


@refused("strided")
def meta() -> Scene:
    return Scene(lambda x: x * 2, lambda seed: (one(seed)[0].to("meta"),))


@refused("strided")
def subclass() -> Scene:
    class Mine(Tensor):
        pass

    return Scene(lambda x: x * 2, lambda seed: (one(seed)[0].as_subclass(Mine),))


@right()
def parameter_as_an_argument() -> Scene:
    return Scene(lambda x: x * 2, lambda seed: (nn.Parameter(one(seed)[0]),))


@right(recorded=2)
def same_tensor_twice() -> Scene:
    def inputs(seed: int) -> tuple[Tensor, ...]:
        x, y = normal(3, seed=seed), normal(3, seed=seed + 9)
        return (x, x if seed % 2 else y)

    return Scene(lambda x, y: x.add_(1) + y, inputs)


@right(recorded=2)
def arguments_that_overlap() -> Scene:
    def inputs(seed: int) -> tuple[Tensor, ...]:
        x = normal(6, seed=seed)
        return (x[:4], x[2:] if seed % 2 else x[2:].clone())

    return Scene(lambda x, y: x.add_(1) + y, inputs)


@right()
def arguments_that_overlap_elsewhere() -> Scene:
    def inputs(seed: int) -> tuple[Tensor, ...]:
        x = normal(8, seed=seed)
        first = seed % 3
        return (x[:4], x[first : first + 4])

    return Scene(lambda x, y: x.add_(1) + y, inputs)


@right()
def argument_that_is_a_weight() -> Scene:
    weight = normal(3, seed=70)

    def inputs(seed: int) -> tuple[Tensor, ...]:
        return (weight if seed % 2 else normal(3, seed=seed),)

    return Scene(lambda x: x.add_(1) + weight, inputs, watch=lambda: weight)


@right()
def argument_that_is_a_view_of_a_weight() -> Scene:
    weight = normal(3, seed=70)

    def inputs(seed: int) -> tuple[Tensor, ...]:
        return (weight[:] if seed % 2 else normal(3, seed=seed),)

    return Scene(lambda x: weight.add_(1) * x, inputs, watch=lambda: weight)


@right()
def last_result_as_an_argument() -> Scene:
    last = [normal(3, seed=80)]

    def work(x: Tensor) -> Tensor:
        return x * 2 + 1

    def inputs(seed: int) -> tuple[Tensor, ...]:
        last[0] = last[0] * 0.5
        return (last[0],)

    return Scene(work, inputs)


@right(recorded=1)
def misaligned_memory() -> Scene:
    return Scene(
        nn.Linear(4, 4), lambda seed: (normal(13 + 12, seed=seed)[seed % 3 :][:12].view(3, 4),)
    )


@right()
def writes_into_an_argument(x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


@right()
def writes_into_a_view_of_an_argument(x: Tensor) -> Tensor:
    x[1].fill_(7)
    x.t()[0] += 1
    return x + 1


@refused("cannot capture")
def resizes_an_argument(x: Tensor) -> Tensor:
    x.resize_(5, 4).fill_(1)
    return x + 1


@refused("cannot capture")
def data_of_an_argument(x: Tensor) -> Tensor:
    x.data = torch.ones(2, 2)
    return x + 1


@refused("on a second input")
def weight_that_becomes_an_argument() -> Scene:
    net = nn.Linear(4, 4)

    def inputs(seed: int) -> tuple[Tensor, ...]:
        return (net.weight if seed % 3 else normal(4, 4, seed=seed),)

    def work(x: Tensor) -> Tensor:
        net.weight.add_(1)
        return net(x)

    return Scene(work, inputs, watch=lambda: net.weight)


@right()
def argument_with_another_gradient_flag() -> Scene:
    return Scene(lambda x: x * 2, lambda seed: (one(seed)[0].requires_grad_(seed % 2 == 1),))


@right()
def inference_tensors_as_arguments() -> Scene:
    def inputs(seed: int) -> tuple[Tensor, ...]:
        with torch.inference_mode(seed % 2 == 1):
            return (one(seed)[0] + 0,)

    return Scene(lambda x: x * 2, inputs)


@right(recorded=1)
def numbers_as_tensors() -> Scene:
    return Scene(lambda x, t: x * t + t, lambda seed: (*one(seed), torch.tensor(seed)))


@right()
def scalars_of_other_types() -> Scene:
    return Scene(
        lambda x, t: x * t, lambda seed: Given(args=(*one(seed), (np.float32(2), 2, 2.0)[seed % 3]))
    )


@right()
def changed_list_as_an_argument() -> Scene:
    sizes = [3, 4]

    def disturb(step: int) -> None:
        sizes[:] = [(12, 1), (2, 6)][step]

    return Scene(
        lambda x, shape: x.reshape(shape) * 1,
        lambda seed: Given(args=(*one(seed), sizes)),
        disturb=disturb,
    )


WRITES_ARGUMENTS = "changes a list, dictionary or dataclass that it is given"


@refused(WRITES_ARGUMENTS)
def item_taken_out_of_an_argument() -> Scene:
    return Scene(
        lambda batch: batch.pop("labels") - batch["x"],
        lambda seed: ({"x": normal(3, seed=seed), "labels": normal(3, seed=seed + 9)},),
    )


@refused(WRITES_ARGUMENTS)
def list_among_the_arguments_that_grows() -> Scene:
    def work(x: Tensor, kept: list[Tensor]) -> Tensor:
        kept.append(x * 2)
        return x + 1

    return Scene(work, lambda seed: (*one(seed), []))


@dataclass
class Context:
    hidden: Tensor | None = None


@refused(WRITES_ARGUMENTS)
def attribute_of_an_argument_that_is_set() -> Scene:
    def work(x: Tensor, context: Context) -> Tensor:
        context.hidden = x * 2
        return x + 1

    return Scene(work, lambda seed: (*one(seed), Context()))
