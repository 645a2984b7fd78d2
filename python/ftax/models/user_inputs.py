"""Reads the inputs that a user hands over, and makes a second input like them.

The surprising choice: a user's tensors are never moved or converted. An input on the wrong device
is an error, because a silent copy would be measured or, worse, not be.
"""

import collections.abc
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ftax.errors import InvalidArgumentError, UnsupportedError
from ftax.models.inputs import InputPair

_FORMS = (
    "pass a tensor, a tuple or list of positional arguments, a dict of keyword arguments, "
    "or a pair (args, kwargs) of a tuple and a dict"
)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)


def split_inputs(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of one call.

    A tensor is the one positional argument; a mapping is the keyword arguments; a pair of a tuple
    or list and a mapping is `(args, kwargs)`; any other tuple or list is the positional arguments.
    So a call with two positional arguments, a list and a dict, is written `((a_list, a_dict), {})`.
    """
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, collections.abc.Mapping):
        return (), _keywords(inputs)
    if isinstance(inputs, tuple | list):
        if len(inputs) == 2:
            first, second = inputs
            if isinstance(first, tuple | list) and isinstance(second, collections.abc.Mapping):
                return tuple(first), _keywords(second)
        return tuple(inputs), {}
    raise InvalidArgumentError(f"inputs is of type {type(inputs).__name__}: {_FORMS}")


def read_user_inputs(
    inputs: Any, check_inputs: Any, *, device: str, generator: torch.Generator
) -> InputPair:
    """The pair of inputs; the second is derived from the first where `check_inputs` is None.

    Raises InvalidArgumentError for a form that is not understood, for no tensor, for tensors that
    are not on `device`, and for check inputs of another structure, shape or dtype; UnsupportedError
    for objects that may hide tensors.
    """
    args, kwargs = split_inputs(inputs)
    _check_leaves("inputs", args, kwargs, device)
    if check_inputs is None:
        check_args, check_kwargs, notes = derive_check_inputs(args, kwargs, generator)
    else:
        check_args, check_kwargs = split_inputs(check_inputs)
        _check_leaves("check_inputs", check_args, check_kwargs, device)
        # A call does not depend on the order of keywords, but flattened tensors do.
        if check_kwargs.keys() == kwargs.keys():
            check_kwargs = {key: check_kwargs[key] for key in kwargs}
        _check_same_shapes((args, kwargs), (check_args, check_kwargs))
        notes = ()
    return InputPair(
        args=args,
        kwargs=kwargs,
        check_args=check_args,
        check_kwargs=check_kwargs,
        warnings=notes,
    )


def derive_check_inputs(
    args: tuple[Any, ...], kwargs: dict[str, Any], generator: torch.Generator
) -> tuple[tuple[Any, ...], dict[str, Any], tuple[str, ...]]:
    """Another input of the same shapes, and a note for each tensor that had to stay as it is.

    Floating point tensors get normal samples of the same mean and standard deviation, integers
    uniform samples between their smallest and largest value, booleans their own values shuffled
    within each row of the last dimension (a mask keeps as many entries per row). Constant tensors
    and those with values that are not finite stay. A tensor that occurs twice still occurs twice.
    """
    fresh: dict[int, torch.Tensor] = {}
    notes: list[str] = []

    def derive(path: Any, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in fresh:
            reason = _reason_to_keep(leaf)
            if reason:
                notes.append(
                    f"the check input keeps {_describe(path, leaf)} because it is {reason}: "
                    "pass check_inputs to vary it"
                )
            fresh[id(leaf)] = leaf if reason else _draw_like(leaf, generator)
        return fresh[id(leaf)]

    new_args, new_kwargs = pytree.tree_map_with_path(derive, (args, kwargs))
    return new_args, new_kwargs, tuple(notes)


def _keywords(mapping: collections.abc.Mapping[Any, Any]) -> dict[str, Any]:
    for key in mapping:
        if not isinstance(key, str):
            raise InvalidArgumentError(
                f"inputs has the key {key!r}, which names no argument: {_FORMS}"
            )
    return dict(mapping)


def _check_leaves(what: str, args: tuple[Any, ...], kwargs: dict[str, Any], device: str) -> None:
    found = False
    for path, leaf in pytree.tree_leaves_with_path((args, kwargs)):
        if isinstance(leaf, torch.Tensor):
            found = True
            if str(leaf.device) != device:
                raise InvalidArgumentError(
                    f"{what}: {_describe(path, leaf)} is on {leaf.device}, but the model is on "
                    f"{device}: move it with .to({device!r})"
                )
        elif not isinstance(leaf, _PLAIN):
            raise UnsupportedError(
                f"{what}: the argument{_place(path)} is a {type(leaf).__name__}, in which tensors "
                "cannot be found: pass tensors in lists, tuples or dicts"
            )
    if not found:
        raise InvalidArgumentError(f"{what} has no tensor: {_FORMS}")


def _check_same_shapes(main: Any, check: Any) -> None:
    leaves, structure = pytree.tree_flatten_with_path(main)
    check_leaves, check_structure = pytree.tree_flatten(check)
    if structure != check_structure:
        raise InvalidArgumentError(
            "check_inputs has another structure than inputs: "
            "give the same arguments with other values"
        )
    for (path, leaf), other in zip(leaves, check_leaves, strict=True):
        if isinstance(leaf, torch.Tensor) != isinstance(other, torch.Tensor):
            raise InvalidArgumentError(
                f"check_inputs has a {type(other).__name__} at{_place(path)} where inputs has a "
                f"{type(leaf).__name__}: give the same arguments with other values"
            )
        if isinstance(leaf, torch.Tensor):
            same = leaf.shape == other.shape and leaf.dtype == other.dtype
            if not same:
                raise InvalidArgumentError(
                    f"check_inputs has {tuple(other.shape)} {other.dtype} at{_place(path)}, "
                    f"inputs has {tuple(leaf.shape)} {leaf.dtype}: give the same shape and dtype"
                )
        elif leaf != other:
            raise InvalidArgumentError(
                f"check_inputs has {other!r} at{_place(path)}, inputs has {leaf!r}: "
                "only tensors may differ"
            )


def _reason_to_keep(tensor: torch.Tensor) -> str | None:
    if tensor.is_nested or tensor.is_sparse or tensor.is_quantized or tensor.is_complex():
        return "not a dense tensor of real numbers"
    if tensor.is_floating_point() and not bool(tensor.double().isfinite().all()):
        return "not finite everywhere"
    if tensor.numel() == 0 or bool((tensor == tensor.flatten()[0]).all()):
        return "constant"
    return None


def _draw_like(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """New values in a tensor of the same shape, memory format, dtype and device."""
    values = tensor.detach().cpu()
    if tensor.is_floating_point():
        wide = values.double()
        drawn = torch.randn(tensor.shape, generator=generator) * wide.std() + wide.mean()
    elif tensor.dtype is torch.bool:
        order = torch.rand(tensor.shape, generator=generator).argsort(dim=-1)
        drawn = values.gather(-1, order)
    else:
        wide = values.long()
        low, high = int(wide.min()), min(int(wide.max()), 2**63 - 2)
        drawn = torch.randint(low, high + 1, tensor.shape, generator=generator)
    return torch.empty_like(tensor).copy_(drawn)


def _place(path: Any) -> str:
    """` 0['mask']` for a leaf of (args, kwargs): the argument, then the way into it."""
    keys = [getattr(key, "idx", getattr(key, "key", None)) for key in path[1:]]
    return f" {keys[0]!r}" + "".join(f"[{key!r}]" for key in keys[1:])


def _describe(path: Any, tensor: torch.Tensor) -> str:
    return f"argument{_place(path)} ({tensor.dtype}, shape {tuple(tensor.shape)})"
