"""Reads the inputs that a user hands over, and makes a second input like them.

A user's tensors are never moved or converted. An input on the wrong device is an error, because a
silent copy would be measured or, worse, not be.
"""

from __future__ import annotations

import collections.abc
import inspect
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch.utils import _pytree as pytree

from ftax.errors import InvalidArgumentError, UnsupportedError, describe_value, name_key, name_type
from ftax.steps.input_trees import flatten_tensors, list_leaves, map_leaves, read_slots
from ftax.steps.inputs import InputPair
from ftax.steps.setting import Setting
from ftax.steps.tensors import find_memory, same_bytes
from ftax.steps.weights import seeded_rng

_NO_TENSOR = (
    "no input is a tensor, so a tape is of this one call: what the model makes tensors of is a "
    "constant of it, making them counts as the model's own Python, and nothing can be varied for a "
    "second input"
)
_FORMS = (
    "pass a tensor, a tuple or list of positional arguments, a dict of keyword arguments, "
    "a pair (args, kwargs) of a tuple and a dict, or the one argument"
)
_NOTHING_VARIED = (
    "check_inputs hold the same values as inputs, so programs are checked on one input only: give "
    "others, or leave check_inputs out"
)
_ONE_ORDER = "the same in each order that is sure to be valid"
_TRIES = 4  # to draw values that are not the same
# What holds no tensor, and of it what nobody works on alone.
_NO_DATA = (type(None), bool, int, float, complex, torch.dtype, torch.device, torch.Size)
_PLAIN = (*_NO_DATA, str, bytes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Given:
    """What the user handed over to call a model with, in the forms of `split_inputs`; without
    ``check_inputs`` the second input is drawn like the first. Both may be functions from a batch,
    or from a batch and a sequence, to such inputs. With ``objects`` there may be some that hold
    tensors out of sight, such as a model: they are constants of the call."""

    inputs: Any
    check_inputs: Any
    objects: bool = False

    @property
    def makes(self) -> bool:
        """Whether there are inputs of any size."""
        return callable(self.inputs)

    def at(self, setting: Setting) -> Given:
        """The inputs of the setting's size; those that were given have theirs."""
        if not self.makes:
            return self
        check = self.check_inputs
        with seeded_rng(setting.seed):
            return Given(
                inputs=_make_inputs("inputs", self.inputs, setting),
                check_inputs=_make_inputs("check_inputs", check, setting) if check else None,
            )


def read_given(inputs: Any, check_inputs: Any) -> Given | None:
    """The inputs that the user gave, if any."""
    if inputs is not None:
        return Given(inputs=inputs, check_inputs=check_inputs)
    if check_inputs is not None:
        raise InvalidArgumentError("check_inputs is given without inputs: give both")
    return None


def _make_inputs(what: str, make: Any, setting: Setting) -> Any:
    if not callable(make):
        raise InvalidArgumentError(
            f"{what} is of type {type(make).__name__}, but inputs is a function: give another one"
        )
    sizes = [setting.batch or 1, *([] if setting.sequence is None else [setting.sequence])]
    try:
        inspect.signature(make).bind(*sizes)
    except TypeError as error:
        names = "a batch" if len(sizes) == 1 else "a batch and a sequence"
        raise InvalidArgumentError(
            f"{what} is a function that does not take {names} ({error}): give one of inputs(batch) "
            "or inputs(batch, sequence)"
        ) from error
    return make(*sizes)


def split_inputs(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of one call.

    A mapping is the keyword arguments; a pair of a tuple or list and a mapping is `(args, kwargs)`;
    any other tuple or list is the positional arguments; all else (a tensor, a text, an object) is
    the one positional argument. So a call with two positional arguments, a list and a dict, is
    written `((a_list, a_dict), {})`.
    """
    if isinstance(inputs, collections.abc.Mapping):
        return (), _keywords(inputs)
    if isinstance(inputs, tuple | list):
        if len(inputs) == 2:
            first, second = inputs
            if isinstance(first, tuple | list) and isinstance(second, collections.abc.Mapping):
                return tuple(first), _keywords(second)
        return tuple(inputs), {}
    if inputs is None:
        raise InvalidArgumentError(f"inputs is None: {_FORMS}")
    return (inputs,), {}


def read_user_inputs(given: Given, *, device: str, generator: torch.Generator) -> InputPair:
    """The pair of inputs; the second is derived from the first where there is none.

    What is no tensor (a text, a number, an object) is a constant of the call, the same in both.
    Raises InvalidArgumentError for a form that is not understood, for nothing that a model could
    work on, for tensors that are not on `device`, and for check inputs of another structure, shape
    or dtype; UnsupportedError for objects in which tensors hide.
    """
    args, kwargs = split_inputs(given.inputs)
    try:
        _check_leaves("inputs", args, kwargs, device, given.objects)
    except RecursionError:
        raise InvalidArgumentError(
            f"inputs is nested too deep, or a part of it contains itself: {_FORMS}"
        ) from None
    if given.check_inputs is None:
        pair = derive_check_inputs(args, kwargs, generator)
        notes = () if flatten_tensors((args, kwargs)) else (_NO_TENSOR,)
        return replace(pair, warnings=(*pair.warnings, *notes))
    check_args, check_kwargs = split_inputs(given.check_inputs)
    _check_leaves("check_inputs", check_args, check_kwargs, device, given.objects)
    # A call does not depend on the order of keywords, but flattened tensors do.
    if check_kwargs.keys() == kwargs.keys():
        check_kwargs = {key: check_kwargs[key] for key in kwargs}
    _check_same_shapes((args, kwargs), (check_args, check_kwargs))
    main, others = flatten_tensors((args, kwargs)), flatten_tensors((check_args, check_kwargs))
    same = all(same_bytes(a, b) for a, b in zip(main, others, strict=True))
    return InputPair(
        args=args,
        kwargs=kwargs,
        check_args=check_args,
        check_kwargs=check_kwargs,
        warnings=(_NOTHING_VARIED,) if same else (),
    )


def derive_check_inputs(
    args: tuple[Any, ...], kwargs: dict[str, Any], generator: torch.Generator
) -> InputPair:
    """The inputs with others of the same shapes and layouts; a warning for each tensor that had to
    stay as it is.

    Other values keep what can be seen of the user's own, so that an index stays one, a count and a
    probability too. Floating point tensors of both signs get normal samples of the same mean and
    deviation, within the range of the original. All else gets its own values in another order:
    rolled along the longest dimension, the same for all rows; sorted rows stay sorted, and begin
    and end as they did; symmetric matrices stay symmetric; booleans are shuffled within each row of
    the last dimension, and what is not finite everywhere is shifted there. Constants: floats
    get values between the constant and its half, masks of ones some zeros, one integer a
    smaller one. A tensor that occurs twice still occurs twice.
    """
    fresh: dict[int, torch.Tensor] = {}
    constant: dict[int, str] = {}
    notes: list[str] = []

    def derive(path: Any, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in fresh:
            reason = _reason_to_keep(leaf)
            drawn = None if reason else _draw_like(leaf, generator)
            if drawn is None:
                notes.append(
                    f"the check input keeps {_describe(path, leaf)} because it is "
                    f"{reason or _ONE_ORDER}: pass check_inputs to vary it"
                )
            elif _is_constant(leaf):
                constant[id(leaf)] = _describe(path, leaf)
            fresh[id(leaf)] = leaf if drawn is None else drawn
        return fresh[id(leaf)]

    def keep_constants(_: Any, leaf: Any) -> Any:
        return leaf if id(leaf) in constant else fresh.get(id(leaf), leaf)

    new_args, new_kwargs = map_leaves(derive, (args, kwargs))
    if fresh and all(id(leaf) == key for key, leaf in fresh.items()):
        notes.append(
            "programs are checked on one input only, since ftax found no other values that are "
            "sure to be valid: pass check_inputs"
        )
    return InputPair(
        args=args,
        kwargs=kwargs,
        check_args=new_args,
        check_kwargs=new_kwargs,
        warnings=tuple(notes),
        is_drawn=True,
        varied=tuple(constant.values()),
        steady_check=map_leaves(keep_constants, (args, kwargs)) if constant else None,
    )


def _keywords(mapping: collections.abc.Mapping[Any, Any]) -> dict[str, Any]:
    for key in mapping:
        if not isinstance(key, str):
            raise InvalidArgumentError(
                f"inputs has the key {name_key(key)}, which names no argument: {_FORMS}"
            )
    return dict(mapping)


def _check_leaves(
    what: str, args: tuple[Any, ...], kwargs: dict[str, Any], device: str, objects: bool
) -> None:
    found = False
    for path, leaf in list_leaves((args, kwargs)):
        found |= not isinstance(leaf, _NO_DATA)
        if isinstance(leaf, torch.Tensor):
            if str(leaf.device) != device:
                raise InvalidArgumentError(
                    f"{what}: {_describe(path, leaf)} is on {leaf.device}, but the model is on "
                    f"{device}: move it with .to({device!r})"
                )
        elif isinstance(leaf, collections.abc.Iterator):
            refuse_iterator(what, path, leaf)
        elif not objects and (hidden := _find_hidden(leaf)):
            raise UnsupportedError(
                f"{what}: the argument{_place(path)} is {name_type(leaf)}, which holds a "
                f"tensor at {hidden}, where it is not found: pass tensors in lists, dicts, or "
                "objects that hold no module and no function"
            )
    if not found:
        raise InvalidArgumentError(f"{what} has no tensor, and no text or object either: {_FORMS}")


def refuse_iterator(what: str, path: Any, leaf: Any) -> NoReturn:
    """Raises UnsupportedError for one that is an argument."""
    raise UnsupportedError(
        f"{what}: the argument{_place(path)} is {name_type(leaf)}, which one call uses up: pass a "
        "list"
    )


def _find_hidden(leaf: Any) -> str:
    """Where an object holds a tensor, such as ".cache[0]"; "" if it holds none."""
    seen: set[int] = set()
    waiting = collections.deque([("", leaf)])
    while waiting:
        where, item = waiting.popleft()
        if isinstance(item, torch.Tensor):
            return where
        if isinstance(item, (*_PLAIN, type, ModuleType)) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, collections.abc.Mapping):
            waiting += [(f"{where}[{name_key(key)}]", value) for key, value in item.items()]
        elif isinstance(item, list | tuple | set | frozenset):
            waiting += [(f"{where}[{place}]", value) for place, value in enumerate(item)]
        attributes = {**getattr(item, "__dict__", {}), **read_slots(item)}
        waiting += [(f"{where}.{name}", value) for name, value in attributes.items()]
    return ""


def _check_same_shapes(main: Any, check: Any) -> None:
    leaves, check_leaves = list_leaves(main), list_leaves(check)
    is_same = pytree.tree_structure(main) == pytree.tree_structure(check)
    if not is_same or [path for path, _ in leaves] != [path for path, _ in check_leaves]:
        raise InvalidArgumentError(
            "check_inputs has another structure than inputs: "
            "give the same arguments with other values"
        )
    for (path, leaf), (_, other) in zip(leaves, check_leaves, strict=True):
        if isinstance(leaf, torch.Tensor) != isinstance(other, torch.Tensor):
            raise InvalidArgumentError(
                f"check_inputs has {name_type(other)} at{_place(path)} where inputs has a "
                f"{name_type(leaf)}: give the same arguments with other values"
            )
        if isinstance(leaf, torch.Tensor):
            facts, other_facts = _list_facts(leaf), _list_facts(other)
            if facts != other_facts:
                raise InvalidArgumentError(
                    f"check_inputs has {', '.join(other_facts)} at{_place(path)}, inputs has "
                    f"{', '.join(facts)}: give the same shape, dtype and memory layout"
                )
        elif not _is_equal(leaf, other):
            raise InvalidArgumentError(
                f"check_inputs has {describe_value(other)} at{_place(path)}, inputs has "
                f"{describe_value(leaf)}: "
                "only tensors may differ"
            )


def _is_equal(leaf: Any, other: Any) -> bool:
    """Of what is no tensor; an object that cannot be compared is equal to itself alone."""
    try:
        return leaf is other or bool(leaf == other)
    except Exception:  # whatever its comparison raises; arrays have no truth
        return False


def _list_facts(tensor: torch.Tensor) -> tuple[str, ...]:
    """Shape, dtype and layout in words; strides of dimensions of size 1 say nothing."""
    if tensor.is_nested or tensor.layout != torch.strided:
        return (str(tensor.dtype), str(tensor.layout), f"nested: {tensor.is_nested}")
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    strides = [stride if size > 1 else 0 for size, stride in sizes]
    return (str(tuple(tensor.shape)), str(tensor.dtype), f"strides {strides}")


def _reason_to_keep(tensor: torch.Tensor) -> str | None:
    if tensor.is_nested or tensor.is_quantized or tensor.is_complex():
        return "not a tensor of real numbers in one piece"
    if tensor.layout != torch.strided:
        return "sparse"
    if tensor.numel() == 0:
        return "empty"
    memory = find_memory(tensor)
    if not _is_dense(memory):
        return "a view in which elements share memory"
    if _is_constant(tensor):
        value = tensor.flatten()[0]
        if tensor.is_floating_point():
            return None if bool(value.isfinite()) else "constant and not finite"
        if tensor.dtype is torch.bool or value == 1 or (value > 1 and tensor.numel() == 1):
            return None
        return f"{int(value)} everywhere"  # other numbers may be no index, count or label
    return None


def _is_constant(tensor: torch.Tensor) -> bool:
    return bool((tensor == tensor.flatten()[0]).all())


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether no two elements have one place in memory."""
    reach = 1
    pairs = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    for stride, size in pairs:
        if size > 1:
            if stride < reach:
                return False
            reach = stride * size
    return True


def _draw_like(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
    """New values in a tensor of the same shape, strides, dtype and device; None if all others that
    are sure to be valid are these."""
    memory = find_memory(tensor)
    values = memory.detach().cpu()
    for _ in range(_TRIES):
        drawn = _draw(values, generator).to(values.dtype)
        if not bool((drawn == values).all()):
            fresh = torch.empty_strided(
                memory.shape, memory.stride(), dtype=tensor.dtype, device=tensor.device
            )
            return fresh.copy_(drawn).expand(tensor.shape)
    return None


def _draw(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    is_float = values.is_floating_point()
    wide = values.double() if is_float else values.long()
    if _is_constant(values):
        return _draw_beside(wide, generator, is_float=is_float)
    if is_float and not bool(wide.isfinite().all()):
        return values.roll(1, -1) if values.dim() else values
    if _is_symmetric(wide):
        order = torch.randperm(values.shape[-1], generator=generator)
        return wide[..., order, :][..., order]
    if values.dtype is torch.bool:
        return wide.gather(-1, torch.rand(values.shape, generator=generator).argsort(dim=-1))
    longest = max(range(values.dim()), key=lambda dim: (values.shape[dim], dim))
    if longest == values.dim() - 1 and values.shape[-1] > 2:
        steps = wide.diff(dim=-1)
        if bool((steps >= 0).all()) or bool((steps <= 0).all()):
            return _draw_sorted(wide, steps, generator, is_float=is_float)
    if is_float and bool((wide < 0).any()) and bool((wide > 0).any()):
        noise = torch.randn(values.shape, generator=generator, dtype=torch.float64)
        return (noise * wide.std() + wide.mean()).clamp(wide.min(), wide.max())
    count = values.shape[longest]  # rolled, so that each place gets the value of another
    return wide.roll(int(torch.randint(1, count, (), generator=generator)), longest)


def _draw_beside(
    constant: torch.Tensor, generator: torch.Generator, *, is_float: bool
) -> torch.Tensor:
    """Values between a constant and its half, or, of 0, from 0 to 1; of ones and of booleans, ones
    and zeros; of one integer, a smaller one that is positive."""
    random = torch.rand(constant.shape, generator=generator, dtype=torch.float64)
    value = constant.flatten()[0]
    if is_float:
        return constant * (1 + random) / 2 if value else random
    return (random < 0.5).long() if value <= 1 else 1 + (random * (value - 1)).long()


def _draw_sorted(
    wide: torch.Tensor, steps: torch.Tensor, generator: torch.Generator, *, is_float: bool
) -> torch.Tensor:
    """Rows that are sorted the same way, with their first and last values; of integers the steps
    are the same, in another order."""
    random = torch.rand(steps.shape, generator=generator, dtype=torch.float64)
    first, last = wide[..., :1], wide[..., -1:]
    if is_float:
        inner = random[..., 1:].sort(dim=-1).values * (last - first) + first
    else:
        inner = first + steps.gather(-1, random.argsort(dim=-1)).cumsum(-1)[..., :-1]
    return torch.cat((first, inner, last), dim=-1)


def _is_symmetric(values: torch.Tensor) -> bool:
    if values.dim() < 2 or values.shape[-1] != values.shape[-2] or values.shape[-1] < 2:
        return False
    return bool(torch.equal(values, values.mT))


def _place(path: Any) -> str:
    """` 0['mask'].ids` for a leaf of (args, kwargs): the argument, then the way into it."""
    first, *rest = path[1:]
    return f" {_name(first)}" + "".join(
        f".{key.name}" if isinstance(key, pytree.GetAttrKey) else f"[{_name(key)}]" for key in rest
    )


def _name(key: Any) -> str:
    return name_key(getattr(key, "idx", getattr(key, "key", None)))


def _describe(path: Any, tensor: torch.Tensor) -> str:
    shape = "nested" if tensor.is_nested else f"shape {tuple(tensor.shape)}"
    return f"argument{_place(path)} ({tensor.dtype}, {shape})"
