"""Straight-line Python that makes a tape's operator calls through torch's normal bindings.

This is the rung between the model and the tape: no modules, no hooks, no branches, only bytecode,
argument parsing and wrapping. Nothing is hand-made for a model or an operator, and there is no
table from operators to Python names, which would be wrong for the next operator: every plausible
spelling (an operator sign, an index, a method, `torch.*`, ...) is tried on the live arguments, best
first, and is taken only if the recorder sees it make the very call that the tape holds, arguments
included.
"""

from __future__ import annotations

import ctypes
import linecache
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ftax import _core
from ftax.errors import UnsupportedError
from ftax.tape.flow import list_collectives
from ftax.tape.recording import dispatch_key_works, record_fragment

Call = dict[str, Any]
Described = tuple[str, Any]  # ("slot", i), ("const", value) or ("list", [...])
_INDENT = "        "

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatProgram:
    """Generated Python for one tape.

    ``function(*inputs)`` takes the tape's inputs and returns a tuple of its outputs. ``via_ops``
    counts, per operator, the calls that no binding makes and that go through ``torch.ops``.
    """

    function: Callable[..., tuple[torch.Tensor, ...]]
    source: str
    via_ops: dict[str, int]


@dataclass
class _Writer:
    """Names for slots and constants, and the lines written so far."""

    tape: _core.Tape
    constants: list[Any] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    numbers: dict[int, Any] = field(default_factory=dict)
    fixed: set[int] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    via_ops: dict[str, int] = field(default_factory=dict)
    spellings: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place, slot in enumerate(self.tape.input_slots):
            self.names[slot] = f"in{place}"
        for slot, tensor in self.tape.constants:
            self.fixed.add(slot)
            if _core.is_wrapped_number(tensor):
                self.numbers[slot] = tensor.item()
            else:
                self.names[slot] = self.constant(tensor)

    def constant(self, value: Any) -> str:
        self.constants.append(value)
        return f"c{len(self.constants) - 1}"

    def name(self, slot: int) -> str:
        return self.names.setdefault(slot, f"v{slot}")

    def target(self, slot: int) -> str:
        """What an output is assigned to. Python must not rebind a constant: `build` owns it."""
        return "_" if slot < 0 or slot in self.fixed else self.name(slot)

    def refer(self, described: Described) -> str:
        kind, value = described
        if kind == "list":
            items = "".join(f"{self.refer(item)}, " for item in value)
            return f"[{items.removesuffix(', ')}]"
        if kind == "slot" and value not in self.numbers:
            return self.name(value)
        content = self.numbers[value] if kind == "slot" else value
        return repr(content) if is_literal(content) else self.constant(content)


def make_flat(tape: _core.Tape, inputs: Sequence[torch.Tensor]) -> FlatProgram:
    """Generate straight-line Python for ``tape``, running it once on ``inputs`` to probe spellings.

    Raises UnsupportedError where this torch offers no dispatch key to probe with, and for calls
    that communicate.
    """
    if list_collectives(tape):
        raise UnsupportedError(
            "it communicates with other ranks, and flat Python would go on without waiting for them"
        )
    if not dispatch_key_works():
        raise UnsupportedError(
            "flat Python needs the dispatch-key recorder, which this torch does not offer"
        )
    writer = _Writer(tape)
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        tape.bind_inputs(list(inputs))
        for index, call in enumerate(tape.calls):
            _write_call(writer, index, call)
            tape.run_call(index)
        tape.release_outputs()
    return _compile(writer)


def _write_call(writer: _Writer, index: int, call: Call) -> None:
    if call["fill"] is not None:
        source = writer.constant(call["fill"])
        writer.lines.append(f"fill({writer.name(call['outputs'][0])}, {source})")
    else:
        expression = _choose_spelling(writer, index, call)
        if goes_through_ops(expression):
            operator = call["operator"]
            writer.via_ops[operator] = writer.via_ops.get(operator, 0) + 1
        writer.lines.append(_assign(writer, call["outputs"], expression))
    dead = [writer.names[slot] for slot in call["releases"] if slot in writer.names]
    if dead:
        writer.lines.append(f"del {', '.join(dead)}")


def _assign(writer: _Writer, outputs: list[Any], expression: str) -> str:
    targets: list[str] = []
    for output in outputs:
        if isinstance(output, list):
            items = "".join(f"{writer.target(slot)}, " for slot in output)
            targets.append(f"({items})")
        else:
            targets.append(writer.target(output))
    if not targets or targets == ["_"]:
        return expression
    return f"{', '.join(targets)} = {expression}"


def _choose_spelling(writer: _Writer, index: int, call: Call) -> str:
    """First spelling seen to make exactly this call; remembered for calls of the same form."""
    values = writer.tape.arguments(index)
    described = call["arguments"]
    texts: dict[int, str] = {}

    def refer(value: Any) -> str:
        for place, whole in enumerate(values):
            if value is whole:
                return texts.setdefault(place, writer.refer(described[place]))
            if isinstance(whole, (list, tuple)):
                for item, item_described in zip(whole, described[place][1], strict=False):
                    if value is item and isinstance(value, torch.Tensor):
                        return writer.refer(item_described)
        return writer.refer(("const", value))

    spellings = list(spell(call["operator"], values, refer))
    form = _form(call, values)
    if form not in writer.spellings:
        writer.spellings[form] = _probe(call, values)
    return spellings[writer.spellings[form]]


def _form(call: Call, values: Sequence[Any]) -> str:
    """What decides which spelling works: the operator, its constants, and kinds of its tensors."""

    def form(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"<{value.dtype} {value.dim()} {value.device}>"
        if isinstance(value, (list, tuple)):
            return str([form(item) for item in value])
        return repr(value)

    return f"{call['operator']}({', '.join(form(value) for value in values)})"


def _probe(call: Call, values: Sequence[Any]) -> int:
    """Place of the first spelling that the recorder sees make this call with these arguments."""
    if call["written"]:
        values = [v.clone() if isinstance(v, torch.Tensor) else v for v in values]
    names = _ProbeNames()
    spellings = list(spell(call["operator"], values, names))
    expected = [
        _expect(described, value, names.tensors)
        for described, value in zip(call["arguments"], values, strict=True)
    ]
    for place, expression in enumerate(spellings[:-1]):
        if _makes_call(expression, names, call["operator"], expected):
            return place
    return len(spellings) - 1


class _ProbeNames:
    """Names the live arguments of one call: ``t0`` for tensors, ``k0`` for other objects."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.environment: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}

    def __call__(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return self._bind(f"t{_place(self.tensors, value)}", value)
        if is_literal(value):
            return repr(value)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self(item) for item in value)}]"
        return self._bind(f"k{len(self.environment)}", value)

    def _bind(self, name: str, value: Any) -> str:
        self.environment[name] = value
        return name


def _place(tensors: list[torch.Tensor], tensor: torch.Tensor) -> int:
    for place, other in enumerate(tensors):
        if other is tensor:
            return place
    tensors.append(tensor)
    return len(tensors) - 1


def _makes_call(expression: str, names: _ProbeNames, operator: str, expected: list[Any]) -> bool:
    code = compile(expression, "<ftax spelling>", "eval")
    try:
        tape = record_fragment(lambda: eval(code, names.environment), names.tensors)
    except Exception:  # whatever went wrong, this is not how the call is written
        return False
    calls = tape.calls
    if [call["operator"] for call in calls] != [operator]:
        return False
    numbers = {slot: tensor.item() for slot, tensor in tape.constants if tensor.numel() == 1}
    places = {slot: place for place, slot in enumerate(tape.input_slots)}
    return [_normalise(d, places, numbers) for d in calls[0]["arguments"]] == expected


def _normalise(described: Described, places: dict[int, int], numbers: dict[int, Any]) -> Any:
    """A recorded argument in a form that compares equal to what `_expect` makes."""
    kind, value = described
    if kind == "list":
        return [_normalise(item, places, numbers) for item in value]
    if kind == "slot":
        return ("tensor", places[value]) if value in places else ("number", numbers.get(value))
    return repr(value)


def _expect(described: Described, value: Any, tensors: list[torch.Tensor]) -> Any:
    kind, content = described
    if kind == "list":
        return [_expect(item, v, tensors) for item, v in zip(content, value, strict=True)]
    if kind == "slot":
        is_tensor = isinstance(value, torch.Tensor)
        return ("tensor", _place(tensors, value)) if is_tensor else ("number", value)
    return repr(value)


def _fill(target: torch.Tensor, source: torch.Tensor) -> None:
    """Write bytes without an operator call, as torch.tensor does."""
    ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes)


def _compile(writer: _Writer) -> FlatProgram:
    tape = writer.tape
    inputs = ", ".join(f"in{place}" for place in range(len(tape.input_slots)))
    outputs = "".join(f"{writer.refer(('slot', slot))}, " for slot in tape.output_slots)
    unpack = "".join(f"c{i}, " for i in range(len(writer.constants)))
    lines = ["def build(torch, F, fill, constants):"]
    if unpack:
        lines.append(f"    ({unpack}) = constants")
    lines += [f"    def flat({inputs}):", *(_INDENT + line for line in writer.lines)]
    lines += [f"{_INDENT}return ({outputs})", "    return flat", ""]
    source = "\n".join(lines)
    filename = f"<ftax flat {id(tape):x}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), scope)
    function = scope["build"](torch, torch.nn.functional, _fill, writer.constants)
    return FlatProgram(function=function, source=source, via_ops=writer.via_ops)


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
