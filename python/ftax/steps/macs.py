"""How much one inference of a model computes and calls, whatever device or runtime it is for.

It is counted on a real forward pass and not from a list of layers, so that it holds for any module,
and for the path that the model takes on these inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import nn

from ftax.steps.echoes import Echoes, PlainMode
from ftax.steps.loaded import LoadedModel
from ftax.steps.module_calls import watch_module_calls
from ftax.steps.setting import use_autograd

_RECURRENT = ("lstm", "gru", "rnn_relu", "rnn_tanh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One inference of the whole batch.

    Attributes:
        macs: multiply-accumulates of matrix products, convolutions, attention and recurrent layers,
            by `torch.utils.flop_counter` (half of its FLOPs) with formulas of ours for what it
            lacks. Not counted: elementwise operators, biases, normalisations, softmax, pooling,
            look-ups, Fourier transforms, and custom operators. Masked positions and padding count
            in full. It is what the operator asks for and not what a kernel does: a Winograd
            convolution multiplies less.
        operators: calls that reach torch's dispatcher from the model, composite ones whole: what a
            tape records.
        modules: calls of modules without children. A module that is called twice counts twice; the
            paper's `nn_calls` counts it once.
    """

    macs: int
    operators: int
    modules: int


def count_work(loaded: LoadedModel) -> Work:
    """Count one forward pass of `loaded` on its main inputs, under inference mode.

    Runs the model once, on its device. Global random states are left as found.
    """
    devices = [loaded.device] if loaded.device.startswith("cuda") else []
    with torch.random.fork_rng(devices=devices):
        loaded.prepare()
        return count_call(loaded.module, loaded.call, has_autograd=loaded.has_autograd)


def count_call(module: nn.Module, call: Callable[[], Any], *, has_autograd: bool = False) -> Work:
    """Count what `call` does; `modules` are those of `module`. Meta tensors work too."""
    # The counter imports torch's compiler, which takes seconds in a fresh process.
    from torch.utils.flop_counter import FlopCounterMode

    leaves = {id(part) for part in module.modules() if next(part.children(), None) is None}
    calls = 0

    def count(part: nn.Module, inputs: Any) -> None:
        nonlocal calls
        calls += id(part) in leaves

    counter = FlopCounterMode(display=False, custom_mapping=_make_formulas())
    watch = watch_module_calls(count)
    # The inner mode sees a call first, before the counter takes composite ones apart.
    with watch, use_autograd(has_autograd), counter, _OperatorCount() as operators:
        call()
    return Work(macs=counter.get_total_flops() // 2, operators=operators.total, modules=calls)


class _OperatorCount(PlainMode):
    """Counts calls and passes them on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self.echoes = Echoes()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.total += not self.echoes.has(func, args)
        return self.echoes.keep(func, args, func(*args, **(kwargs or {})))


def _make_formulas() -> dict[Any, Callable[..., int]]:
    """FLOPs of operators that the counter lacks, or knows only on some devices."""
    aten = torch.ops.aten
    packets: dict[Any, Callable[..., int]] = {
        aten.scaled_dot_product_attention: _count_attention,
        **{getattr(aten, name): _count_recurrent for name in _RECURRENT},
        aten._native_multi_head_attention: _count_native_attention,
        aten._transformer_encoder_layer_fwd: _count_encoder_layer,
        aten.mv: _count_vector_product,
        aten.dot: _count_vector_product,
        aten.addmv: _count_added_vector_product,
    }
    # The counter looks an operator up by its packet, but takes it apart unless it finds the
    # overload. Taken apart, an LSTM would run another program than the model does.
    overloads = {
        getattr(packet, name): formula
        for packet, formula in packets.items()
        for name in packet.overloads()
    }
    return {**packets, **overloads}


# Each formula gets the arguments of its operator with a shape in place of each tensor.
Dims = Sequence[int]


def _count_attention(query: Dims, key: Dims, value: Dims, *_: Any, **__: Any) -> int:
    """Scores and weighted sum, for each query against all keys, whatever the mask."""
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _count_recurrent(data: Dims, *arguments: Any, **_: Any) -> int:
    """Each matrix is applied once to each step of each sequence."""
    lists = [argument for argument in arguments if isinstance(argument, list)]
    matrices: list[int] = [math.prod(shape) for shape in chain(*lists) if len(shape) == 2]
    return 2 * math.prod(data[:-1]) * sum(matrices)


def _count_native_attention(
    query: Dims,
    key: Dims,
    value: Dims,
    width: int,
    heads: int,
    joint: Dims,
    joint_bias: Dims,
    output: Dims,
    *_: Any,
    **__: Any,
) -> int:
    """torch.nn.MultiheadAttention in inference; `joint` is the weight of all three projections."""
    projections = math.prod(query[:2]) * (math.prod(joint) + math.prod(output))
    return 2 * (projections + 2 * math.prod(query[:2]) * key[1] * width)


def _count_encoder_layer(
    source: Dims, width: int, heads: int, joint: Dims, _: Any, output: Dims, *rest: Any, **__: Any
) -> int:
    """torch.nn.TransformerEncoderLayer in inference: attention and two linear layers."""
    *_before, first, _bias, second = rest[:11]
    forward: int = math.prod(first) + math.prod(second)
    attention = _count_native_attention(source, source, source, width, heads, joint, (), output)
    return attention + 2 * math.prod(source[:2]) * forward


def _count_vector_product(matrix: Dims, vector: Dims, *_: Any, **__: Any) -> int:
    return 2 * math.prod(matrix)


def _count_added_vector_product(added: Dims, matrix: Dims, vector: Dims, *_: Any, **__: Any) -> int:
    return 2 * math.prod(matrix)
