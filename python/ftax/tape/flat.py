"""Straight-line Python that makes a tape's operator calls through torch's normal bindings.

This is the rung between the model and the tape: no modules, no hooks, no branches, only bytecode,
argument parsing and wrapping. Nothing is hand-made for a model or an operator: every spelling that
flat_calls.py offers is tried on the live arguments, and is taken only if the recorder sees it make
the very call that the tape holds, arguments included.
"""

from __future__ import annotations

import ctypes
import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ftax import _core
from ftax.errors import UnsupportedError
from ftax.tape.flat_calls import goes_through_ops, is_literal, spell
from ftax.tape.recording import dispatch_key_works, record_fragment

Call = dict[str, Any]
Described = tuple[str, Any]  # ("slot", i), ("const", value) or ("list", [...])
_INDENT = "        "


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

    Raises UnsupportedError where this torch offers no dispatch key to probe with.
    """
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
