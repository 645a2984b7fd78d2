"""A training step: forward, loss, backward and the optimizer's step, as one `Step`.

It is an ordinary function, written as people write it, and nothing of it is measured in another way
than any function's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from ftax.errors import InvalidArgumentError, name_type
from ftax.steps.feeds import Feed
from ftax.steps.step import Step
from ftax.steps.user_inputs import split_inputs

Loss = Callable[..., torch.Tensor]


def train(
    model: nn.Module,
    loss: Loss,
    optimizer: torch.optim.Optimizer,
    batch: Any = None,
    *,
    loader: Iterable[Any] | None = None,
    check_batch: Any = None,
    reset: Callable[[], object] | None = None,
    set_to_none: bool = True,
    name: str | None = None,
) -> Step:
    """One training step, for `ftax.tax` and its kin.

    Each run is ``optimizer.zero_grad(); loss(model, *batch).backward(); optimizer.step()``, with
    autograd on; for LBFGS the first two are the closure that its step is given. Weights, the
    optimizer's state and buffers are found by watching and put back.

    Args:
        model: in the mode in which it trains; it is not changed.
        loss: from the model and the batch to a tensor of one number, such as
            ``lambda model, x, y: cross_entropy(model(x), y)``.
        optimizer: of the model's parameters.
        batch: what ``loss`` is called with after the model, in the forms of inputs of
            `ftax.load_model`; its samples are the units.
        loader: in the place of ``batch``: gives such batches, as a DataLoader does. Each run has
            its first one; what the loader itself costs a step is timed after the rounds, among the
            phases.
        check_batch: another batch of the same shapes; drawn like ``batch`` if left out.
        reset: as for `ftax.step`: brings back what the loss, a hook or the model keeps in Python.
        set_to_none: of `Optimizer.zero_grad`.
        name: by which results know it; the model's class if left out.

    Raises InvalidArgumentError for arguments of other kinds, and for a model none of whose
    parameters the optimizer has. For accumulated gradients, clipping, autocast with a scaler, or a
    schedule write the step yourself and give it to `ftax.step`.
    """
    _check(model, loss, optimizer)
    feed = _open(loader, batch)
    if feed is not None:
        batch = next(feed)

    def differentiate(*args: Any, **kwargs: Any) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=set_to_none)
        value = loss(model, *args, **kwargs)
        try:
            value.backward()
        except (AttributeError, RuntimeError) as error:  # looked at here: a check would be timed
            _refuse_loss(value, error)
            raise
        return value

    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        value = differentiate(*args, **kwargs)
        optimizer.step()
        return value

    def run_closure(*args: Any, **kwargs: Any) -> Any:
        step: Any = optimizer.step  # torch declares that a closure returns a float
        return step(lambda: differentiate(*args, **kwargs))

    if not isinstance(batch, torch.Tensor | tuple | list | Mapping):
        raise InvalidArgumentError(
            f"batch is {name_type(batch)}: give what loss is called with after the model: a "
            "tensor, (x, y) or {'name': x}"
        )
    args, kwargs = split_inputs(batch)
    first = next(
        (item for item in (*args, *kwargs.values()) if isinstance(item, torch.Tensor)), None
    )
    samples = int(first.shape[0]) if first is not None and first.dim() else 1
    if samples == 0:
        raise InvalidArgumentError("batch has no samples: give one of at least 1")
    return Step(
        function=run_closure if needs_closure(optimizer) else run,
        inputs=(args, kwargs),
        check_inputs=check_batch,
        reset=reset,
        feed=feed,
        units=samples,
        name=name or type(model).__name__,
        kind="train",
        grad_mode="grad",
    )


def _open(loader: Any, batch: Any) -> Feed | None:
    if loader is None:
        return None
    if batch is not None:
        raise InvalidArgumentError("batch and loader are given: give one of them")
    if not isinstance(loader, Iterable) or isinstance(loader, torch.Tensor | str | Mapping):
        raise InvalidArgumentError(
            f"loader is {name_type(loader)}: give what gives batches, such as a DataLoader"
        )
    feed = Feed.of(loader)
    try:
        next(feed)
    except StopIteration:
        raise InvalidArgumentError("loader is empty: give one with a batch or more") from None
    return feed


def _refuse_loss(value: Any, error: Exception) -> None:
    is_tensor = isinstance(value, torch.Tensor)
    if is_tensor and value.numel() == 1:
        return
    what = f"a tensor of {value.numel()} numbers" if is_tensor else name_type(value)
    raise InvalidArgumentError(
        f"loss returns {what}: give one number, such as cross_entropy(model(x), y)"
    ) from error


def _check(model: Any, loss: Any, optimizer: Any) -> None:
    if not isinstance(model, nn.Module):
        raise InvalidArgumentError(f"model is {name_type(model)}: give a torch.nn.Module")
    if not callable(loss):
        raise InvalidArgumentError(
            f"loss is {name_type(loss)}: give a function from the model and the batch to a "
            "scalar, such as lambda model, x, y: cross_entropy(model(x), y)"
        )
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgumentError(
            f"optimizer is {name_type(optimizer)}: give a torch.optim.Optimizer"
        )
    weights = {id(weight) for weight in model.parameters() if weight.requires_grad}
    given = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    if not weights & given:
        raise InvalidArgumentError(
            "the optimizer has none of the model's parameters that require gradients: make it of "
            "model.parameters()"
        )


def needs_closure(optimizer: Optimizer) -> bool:
    """Whether its step cannot do without a closure."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def explain_closure(optimizer: Optimizer) -> str:
    """Why no recording can stand for its step, and what can be captured in its place."""
    return (
        f"{type(optimizer).__name__} reads numbers on the host to decide how often it calls its "
        "closure, and a replay would repeat the decisions of one run; capture the closure (forward "
        "and backward): fast = ftax.capture(closure, ()), then optimizer.step(fast)"
    )
