"""Measures a call of a program from inside, where `ftax run --receipt` has waited for it.

It is measured in the modes in which the program calls it: of autograd, of training, of autocast. A
module that is called with autograd on is one of a training step: its backward pass begins with the
gradients that its outputs got, and the optimizer that steps next is the step's.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from ftax.cli.show import explain_once, keep_last, save, show
from ftax.errors import FtaxError, UnsupportedError, describe_fault
from ftax.ladders.receipt import Receipt
from ftax.ladders.tax import tax_with_traces, usual_plan
from ftax.reports.terminal import say
from ftax.steps.given import Model
from ftax.steps.outputs import find_tensors
from ftax.steps.prompt import KeptCache
from ftax.steps.setting import read_grad_mode
from ftax.steps.step import Step, step

Finish = Callable[[str], object]
_HOW_TO_CAPTURE = (
    "The step to capture is a function of the program: zero_grad, forward, loss, backward and the "
    "optimizer's step (docs/capture.md, A training step)"
)


class _Measuring:
    """One call, and what becomes of its receipt."""

    def __init__(
        self, caller: str, path: str | None, plan: Mapping[str, float], finish: Finish
    ) -> None:
        self._caller, self._plan, self._finish = caller, plan, finish
        self._path = None if path is None else Path(path)

    def run(self, what: str, make: Callable[[], tuple[Model, Any]], note: str = "") -> None:
        """Measure what ``make`` gives, and print its receipt; ``finish`` is told why not."""
        say(f"\nMeasuring {what}, called at {self._caller}, and what ftax.capture makes of it")
        changes: Any = self._plan
        try:
            with warnings.catch_warnings(action="ignore"):  # the program's have been seen
                receipt, _ = tax_with_traces(
                    *make(),
                    runtimes=("capture",),
                    plan=lambda device: replace(usual_plan(device), **changes),
                    label=self._caller,
                    grad_mode="no_grad" if read_grad_mode() == "no_grad" else "inference",
                )
            _require_ladder(receipt)
            if self._path is not None:
                self._path.unlink(missing_ok=True)
            save(self._path, [receipt], quiet=True)
            with redirect_stdout(sys.stderr):  # standard output is the program's
                self._show(receipt)
            say(note, end="\n" if note else "")
        except FtaxError as error:
            self._finish(str(error))
        except Exception as error:  # of the program's own objects
            self._finish(describe_fault(error))
        else:
            self._finish("")

    def _show(self, receipt: Receipt) -> None:
        more = "ftax show --all" if keep_last(receipt) else "-o FILE, then ftax show FILE --all"
        saved = "Kept until the next (-o FILE saves it)."
        if self._path is not None:
            saved = f"Saved in {self._path}."
        show(receipt.draw(saved=saved, more=more, legend=explain_once(receipt.ladder.name)))


def _require_ladder(receipt: Receipt) -> None:
    """Raises UnsupportedError where nothing was taken apart: the program may call what can be."""
    reasons = {item.place: item.reason for item in receipt.unavailable}
    if len(receipt.lines) == 1 and not receipt.others and receipt.ladder.without_python in reasons:
        raise UnsupportedError(reasons[receipt.ladder.without_python])


def measure_call(
    what: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    name: str,
    caller: str,
    path: str | None,
    plan: Mapping[str, float],
    finish: Finish,
) -> None:
    """The receipt of a module or a function that is being called with these arguments.

    Args:
        name: of the function; of a module that of its forward pass.
        caller: the line of the program that calls it.
        path: of the record that is written.
        plan: fields of a `Plan` that are not the usual ones.
        finish: told why there is no receipt, or nothing when it was printed. Of a module with
            autograd on that is later, when the program's optimizer steps.
    """
    measuring, kind = _Measuring(caller, path, plan, finish), type(what).__name__
    if not isinstance(what, nn.Module):
        function, rest = _bind(what, args)
        make = functools.partial(step, function, (rest, kwargs), name=name)
        measuring.run(f"the function {name}", lambda: (make(), None))
    elif (cache := _find_growing_cache(kwargs)) is not None:
        make = functools.partial(_make_decoding, what, args, kwargs, cache)
        measuring.run(f"{kind} with what its cache holds", lambda: (make(), None))
    elif torch.is_grad_enabled():
        _TrainingCall(what, args, kwargs, measuring)
    elif what.training:
        make = functools.partial(step, what, (args, kwargs), name=kind)
        measuring.run(f"{kind} in training mode, without autograd", lambda: (make(), None))
    else:
        measuring.run(kind, lambda: (what, (args, kwargs)))


def _bind(function: Any, args: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A method with its object, named as a method."""
    names = function.__code__.co_varnames
    if isinstance(function, FunctionType) and args and names[:1] == ("self",):
        return MethodType(function, args[0]), args[1:]
    return function, args


def _find_growing_cache(kwargs: dict[str, Any]) -> str | None:
    """The argument that is a key-value cache of transformers, unless its memory is made once."""
    for name, value in kwargs.items():
        layers = getattr(value, "layers", ())
        is_cache = hasattr(value, "get_seq_length") and isinstance(layers, list)
        if is_cache and not any(hasattr(layer, "max_cache_len") for layer in layers):
            return name
    return None


def _make_decoding(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> Step:
    """A call after which the cache is put back, so that the next one does the same work."""
    cache = kwargs[name]
    length = int(cache.get_seq_length())
    return Step(
        function=lambda *args, **kwargs: module(*args, **kwargs, **{name: cache}),
        inputs=(args, {key: value for key, value in kwargs.items() if key != name}),
        reset=KeptCache(cache, length=length).put_back,
        sequence=length,
        name=type(module).__name__,
        kind="decode",
        grad_mode=read_grad_mode(),
    )


class _TrainingCall:
    """Follows a call of a module to the optimizer's step, or to the next call."""

    def __init__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any],
        measuring: _Measuring,
    ) -> None:  # fmt: skip
        self._module, self._inputs, self._measuring = module, (args, kwargs), measuring
        self._gradients: dict[int, torch.Tensor] = {}  # by place among the outputs
        self._casts, self._training = _find_autocast(module), module.training
        self._handles = [
            module.register_forward_hook(self._see_output),
            register_optimizer_step_pre_hook(self._see_step),
        ]

    def _see_output(self, module: nn.Module, _inputs: Any, output: Any) -> None:
        if len(self._handles) == 2:
            self._handles.append(module.register_forward_pre_hook(self._see_next_call))
            for place, tensor in _list_differentiable(output):
                tensor.register_hook(lambda grad, place=place: self._keep(place, grad))

    def _keep(self, place: int, gradient: torch.Tensor) -> None:
        self._gradients[place] = gradient.detach().clone()

    def _see_step(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        steps = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
        if self._gradients and any(id(weight) in steps for weight in self._module.parameters()):
            self._end(optimizer)

    def _see_next_call(self, module: nn.Module, _inputs: Any) -> None:
        if torch.is_grad_enabled() and module.training == self._training:  # no evaluation
            self._end(None)

    def _end(self, optimizer: Optimizer | None) -> None:
        for handle in self._handles:
            handle.remove()
        kind = type(self._module).__name__
        what, note = f"{kind} with autograd, whose backward pass was not called", ""
        if self._gradients:
            what = f"a training step of {kind}, without its loss: forward, backward"
            what += "" if optimizer is None else f", {type(optimizer).__name__}"
            note = _HOW_TO_CAPTURE
        with torch.enable_grad():
            self._measuring.run(what, lambda: (self._make_step(optimizer), None), note)

    def _make_step(self, optimizer: Optimizer | None) -> Step:
        module, casts, gradients = self._module, self._casts, self._gradients

        def run(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
            if optimizer is not None:
                optimizer.zero_grad()
            with casts():
                outputs = dict(_list_differentiable(module(*args, **kwargs)))
            if gradients:
                tensors = [outputs[place] for place in gradients]
                torch.autograd.backward(tensors, list(gradients.values()))
            if optimizer is not None:
                optimizer.step()
            return [tensor.detach() for tensor in outputs.values()]

        return step(run, self._inputs, name=type(module).__name__)


def _list_differentiable(output: Any) -> list[tuple[int, torch.Tensor]]:
    tensors = enumerate(find_tensors(output))
    return [(place, tensor) for place, tensor in tensors if tensor.requires_grad]


def _find_autocast(module: nn.Module) -> Callable[[], AbstractContextManager[Any]]:
    """That which is on around the call, to enter again."""
    with suppress(StopIteration):
        kind = next(module.parameters()).device.type
        if torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
            return lambda: torch.autocast(kind, dtype=dtype)
    return nullcontext
