"""Random weights: fast, the same on every machine, and such that a model's output depends on its
input.

A library's own initialisation is skipped and ours is drawn as 16 random bits a weight. Libraries
initialise twice, leave biases at zero and scales at one (a replay that forgets them still looks
right), and zero or starve whole branches; integers also do not depend on the processor, as
vectorised normal samples do.
"""

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.overrides import TorchFunctionMode

# Both torch.Tensor methods and torch.nn.init functions, by name.
_RANDOM_FILLS = frozenset(
    (
        *("normal_", "uniform_", "trunc_normal_", "orthogonal_"),
        *("kaiming_normal_", "kaiming_uniform_", "xavier_normal_", "xavier_uniform_"),
    )
)
# Uniform 16-bit integers have this standard deviation.
_BITS_STD = 2**16 / math.sqrt(12)
# torch uses one thread up to this many values. More gain little on so light a task, and on a busy
# machine each of the hundreds of joins waits for a core: 8 s instead of 2 s for BERT-base.
_CHUNK = 1 << 15
_VECTOR_STD = 0.1


class _SkipRandomFills(TorchFunctionMode):
    """Leaves parameters unfilled where the code asks for random values; constants are kept."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in _RANDOM_FILLS:
            target = args[0] if args else kwargs["tensor"]
            # Buffers and scalars are filled as asked: `fill_weights` does not visit them.
            if isinstance(target, nn.Parameter) and target.ndim > 0:
                return target
        return func(*args, **kwargs)


@contextmanager
def seeded_rng(seed: int) -> Iterator[None]:
    """torch's global CPU generator seeded inside, and as it was found afterwards."""
    # Not torch.manual_seed: it also seeds every CUDA device, and nothing would put those back.
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(state)


def build_unfilled(build: Callable[[], nn.Module]) -> nn.Module:
    """`build()` without the time that random initialisation takes: `fill_weights` must follow."""
    with _SkipRandomFills():
        return build()


def fill_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Fills every parameter of `module` (on the CPU) from `generator`, in the order of
    registration.

    Convolutions keep the second moment through a ReLU (He et al. 2015), other matrices, and each
    gate of a recurrent layer, keep it in both directions (Glorot and Bengio 2010), and embeddings
    have rows of unit length. Biases lie around 0; other vectors, and both of a batch norm, around
    1. Values are uniform. Scalars stay.
    """
    filled: set[int] = set()
    with torch.no_grad():
        for owner in module.modules():
            for name, parameter in owner.named_parameters(recurse=False):
                if id(parameter) in filled or parameter.ndim == 0:
                    continue
                filled.add(id(parameter))
                _fill_uniform(parameter, _std(owner, parameter), generator)
                parameter.add_(_mean(owner, name, parameter))


def calibrate_batch_norms(module: nn.Module, make_args: Callable[[], tuple[Any, ...]]) -> None:
    """Sets the running statistics of every batch norm to those of one pass on `make_args()`.

    Without this a deep network of random weights grows or starves layer by layer.
    """
    norms = [
        m for m in module.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None
    ]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    _run_in_double(module, make_args())
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.eval()
        norm.momentum = momentum
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked.zero_()


def calibrate_unit_layers(
    module: nn.Module, names: Collection[str], make_args: Callable[[], tuple[Any, ...]]
) -> None:
    """Scales the parameters of every layer of the classes `names`, so that its output has standard
    deviation 1 in one pass on `make_args()`.

    The layers must be linear in their parameters. For models that have no norm where random weights
    need one.
    """
    layers = [layer for layer in module.modules() if type(layer).__name__ in names]
    if not layers:
        return
    handles = [layer.register_forward_hook(_scale_to_unit) for layer in layers]
    _run_in_double(module, make_args())
    for handle in handles:
        handle.remove()


def _scale_to_unit(layer: nn.Module, _args: Any, output: torch.Tensor) -> torch.Tensor:
    factor = 1 / float(output.std())
    for parameter in layer.parameters(recurse=False):
        parameter.mul_(factor)
    return output * factor


def _run_in_double(module: nn.Module, args: tuple[Any, ...]) -> None:
    """In fp64, so that what is rounded to fp32 is the same whatever the number of threads."""
    module.double()
    with torch.no_grad():
        module(*(arg.double() if torch.is_floating_point(arg) else arg for arg in args))
    module.float()


def _mean(owner: nn.Module, name: str, parameter: nn.Parameter) -> float:
    if parameter.ndim > 1:
        return 0.0
    # A batch norm's shift of one deviation lets most values pass the ReLU behind it. Around 0 the
    # random ResNet-50 magnifies rounding: its fp16 output is off by 3 % instead of 0.1 %.
    if isinstance(owner, _BatchNorm):
        return 1.0
    return 0.0 if "bias" in name or "beta" in name else 1.0


def _std(owner: nn.Module, parameter: nn.Parameter) -> float:
    shape = parameter.shape
    if parameter.ndim == 1:
        return _VECTOR_STD
    if isinstance(owner, _ConvNd):
        return math.sqrt(2.0 / math.prod(shape[1:]))
    if isinstance(owner, nn.RNNBase):
        # Its gates are stacked in one matrix.
        return math.sqrt(2.0 / (owner.hidden_size + shape[-1]))
    if isinstance(owner, nn.Embedding):
        return math.sqrt(1.0 / shape[-1])
    return math.sqrt(2.0 / (shape[0] + shape[-1]))


def _fill_uniform(parameter: nn.Parameter, std: float, generator: torch.Generator) -> None:
    values = parameter if parameter.is_contiguous() else torch.empty(parameter.shape)
    words = torch.empty(_CHUNK // 4, dtype=torch.int64)
    for chunk in torch.split(values.view(-1), _CHUNK):
        drawn = words[: math.ceil(chunk.numel() / 4)].random_(-(2**63), None, generator=generator)
        torch.mul(drawn.view(torch.int16)[: chunk.numel()], std / _BITS_STD, out=chunk)
    if values is not parameter:
        parameter.copy_(values)
