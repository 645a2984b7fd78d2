"""Ways to write one operator call in Python, best first.

There is no table from operators to Python names, because it would be wrong for the next operator.
Every plausible spelling is offered (an operator sign, an index, a method, `torch.*`, ...), and
flat.py takes the first that is seen to make exactly the recorded call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

Refer = Callable[[Any], str]  # source text of an argument: a variable, a literal or a constant

_BINARY = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "matmul": "@",
    "pow": "**",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "remainder": "%",
    "floor_divide": "//",
    "__and__": "&",
    "__or__": "|",
    "__xor__": "^",
    "__lshift__": "<<",
    "__rshift__": ">>",
}
_UNARY = {"neg": "-", "bitwise_not": "~"}
_NAMESPACES = ("linalg", "special", "fft")


def is_literal(value: Any) -> bool:
    """Whether ``repr(value)`` is an expression for it where only ``torch`` is imported."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, (list, tuple)):
        return all(is_literal(item) for item in value)
    plain = (bool, int, str, torch.dtype, torch.layout, torch.memory_format)
    return value is None or isinstance(value, plain)


def find_schema(operator: str) -> Any:
    """FunctionSchema of ``aten::add.Tensor``."""
    name, _, overload = operator.partition(".")
    return torch._C._get_schema(name, overload)


def spell(operator: str, values: Sequence[Any], refer: Refer) -> Iterator[str]:
    """Yield source expressions for a call of ``operator`` with all of its arguments, best first."""
    schema = find_schema(operator)
    namespace, _, name = schema.name.partition("::")
    positional, keywords = _split_arguments(schema, values, refer)
    arguments = [*positional, *keywords]
    has_self = bool(values) and isinstance(values[0], torch.Tensor)
    if namespace == "aten":
        yield from _spell_signs(name, positional, keywords)
        yield from _spell_indexing(name, values, refer)
        if has_self and hasattr(torch.Tensor, name):
            yield f"{positional[0]}.{name}({', '.join(arguments[1:])})"
            # Tensor.to takes no layout, and needs no dtype: it passes the tensor's own on.
            for dropped in (("layout=",), ("layout=", "dtype=")):
                fewer = [text for text in arguments[1:] if not text.startswith(dropped)]
                if len(fewer) < len(arguments) - 1:
                    yield f"{positional[0]}.{name}({', '.join(fewer)})"
            if len(arguments) == 1:
                yield f"{positional[0]}.{name}"  # an attribute: mT
        if name == "numpy_T":
            yield f"{positional[0]}.T"
        yield from _spell_functions(name, arguments)
    overload = schema.overload_name or "default"
    yield f"torch.ops.{namespace}.{name}.{overload}({', '.join(arguments)})"


def goes_through_ops(expression: str) -> bool:
    """Whether a spelling is the last resort, which costs about twice as much as a binding."""
    return expression.startswith("torch.ops.")


def _split_arguments(
    schema: Any, values: Sequence[Any], refer: Refer
) -> tuple[list[str], list[str]]:
    """Source of positional and keyword arguments; trailing defaults are left out."""
    last_needed = 0
    for place, (argument, value) in enumerate(zip(schema.arguments, values, strict=True)):
        if not argument.kwarg_only and not _is_default(argument, value):
            last_needed = place + 1
    positional, keywords = [], []
    for place, (argument, value) in enumerate(zip(schema.arguments, values, strict=True)):
        if argument.kwarg_only:
            if not _is_default(argument, value):
                keywords.append(f"{argument.name}={refer(value)}")
        elif place < last_needed:
            positional.append(refer(value))
    return positional, keywords


def _is_default(argument: Any, value: Any) -> bool:
    if not argument.has_default_value() or isinstance(value, torch.Tensor):
        return False
    default = argument.default_value
    return type(default) is type(value) and bool(default == value)


def _spell_signs(name: str, positional: list[str], keywords: list[str]) -> Iterator[str]:
    if keywords:
        return
    if name in _BINARY and len(positional) == 2:
        yield f"{positional[0]} {_BINARY[name]} {positional[1]}"
        if name in ("add", "mul"):
            yield f"{positional[1]} {_BINARY[name]} {positional[0]}"
    if name in _UNARY and len(positional) == 1:
        yield f"{_UNARY[name]}{positional[0]}"


def _spell_indexing(name: str, values: Sequence[Any], refer: Refer) -> Iterator[str]:
    if name == "slice":
        tensor, dim, start, end, step = values
        unbounded = end is None or end == 2**63 - 1
        text = f"{'' if start in (None, 0) else start}:{'' if unbounded else end}"
        text += "" if step == 1 else f":{step}"
        yield f"{refer(tensor)}[{':, ' * (dim % tensor.dim())}{text}]"
        if (dim + 1) % tensor.dim() == 0:  # torch before 2.9 makes a call of each colon
            yield f"{refer(tensor)}[..., {text}]"
    elif name == "select":
        tensor, dim, index = values
        yield f"{refer(tensor)}[{':, ' * (dim % tensor.dim())}{index}]"
    elif name == "alias":
        yield f"{refer(values[0])}[...]"
    elif name == "unsqueeze" and values[1] == 0:
        yield f"{refer(values[0])}[None]"
    elif name == "index":
        indices = ", ".join(":" if item is None else refer(item) for item in values[1])
        yield f"{refer(values[0])}[{indices}]"


def _spell_functions(name: str, arguments: list[str]) -> Iterator[str]:
    call = f"({', '.join(arguments)})"
    if hasattr(torch._C._VariableFunctions, name):
        yield f"torch.{name}{call}"
    if hasattr(torch._C._nn, name):
        builtin = getattr(torch._C._nn, name)
        is_public = getattr(torch.nn.functional, name, None) is builtin
        yield f"F.{name}{call}" if is_public else f"torch._C._nn.{name}{call}"
    for space in _NAMESPACES:
        short = name.removeprefix(f"{space}_")
        if short != name and hasattr(getattr(torch, space), short):
            yield f"torch.{space}.{short}{call}"
