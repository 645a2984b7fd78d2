"""Calls a model, and finds the tensors in whatever it returns.

An object of an unknown class is walked through its attributes rather than refused, because
key-value caches are such objects and hold most of what a decoder returns.
"""

import dataclasses
import enum
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ftax.errors import FtaxError, RunnerError, UnsupportedError, describe_fault, name_key
from ftax.steps.reach import is_library

# Carry no tensor and say nothing about one.
_PLAIN = (
    *(type(None), str, bytes, bool, int, float, complex, enum.Enum, type),
    *(torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format),
)
_ACTING = (nn.Module, torch.optim.Optimizer)  # whose weights are no result


def call_model(call: Callable[[], Any]) -> Any:
    """``call()``, with whatever the model raises as a RunnerError that names the line; only Ctrl-C
    passes."""
    try:
        return call()
    except FtaxError:
        raise
    except (Exception, SystemExit) as error:
        raise RunnerError(
            f"the model raised {describe_fault(error)}{_find_place(error)}"
        ) from error


def _find_place(error: BaseException) -> str:
    """The last line that is neither ftax's, torch's nor Python's, without its folder."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not is_library(frame.filename)]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def flatten_outputs(output: Any) -> list[torch.Tensor]:
    """The tensors of `output`, depth first, in the order in which their containers hold them.

    Understands tensors, mappings (so `ModelOutput` too), lists, tuples, dataclasses, and objects
    with attributes such as the caches of transformers. Plain values (None, text, numbers, dtypes)
    are left out. Raises UnsupportedError, naming the type, for anything else and where there is no
    tensor at all.
    """
    tensors = list(_walk(output, "output", ()))
    if not tensors:
        raise UnsupportedError(
            "it returns no tensor, so its result cannot be checked: return a tensor that it "
            "computes, or a container of tensors"
        )
    return tensors


def find_tensors(output: Any) -> list[torch.Tensor]:
    """Those of `flatten_outputs`, of any result: what cannot be searched is passed over, and there
    may be none. Each object is searched once."""
    found: list[torch.Tensor] = []
    seen: dict[int, object] = {}
    waiting = [output]
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif id(value) not in seen and not isinstance(value, (*_PLAIN, *_ACTING)):
            seen[id(value)] = value
            with suppress(UnsupportedError):
                waiting += [child for _, child in reversed(_children(value, ""))]
    return found


def _walk(value: Any, where: str, parents: tuple[int, ...]) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
        return
    if isinstance(value, _PLAIN) or id(value) in parents:
        return
    parents = (*parents, id(value))
    for step, child in _children(value, where):
        yield from _walk(child, where + step, parents)


def _children(value: Any, where: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"[{name_key(key)}]", child) for key, child in value.items()]
    if isinstance(value, list | tuple):
        return [(f"[{index}]", child) for index, child in enumerate(value)]
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return [(f".{name}", getattr(value, name)) for name in names]
    # Modules and functions are callable: what they hold is no output.
    if hasattr(value, "__dict__") and not callable(value):
        return [(f".{name}", child) for name, child in vars(value).items()]
    raise UnsupportedError(
        f"the model returns {_type_name(value)} at {where}, which cannot be searched for tensors: "
        "return tensors in lists, tuples, dicts or dataclasses"
    )


def _type_name(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
