"""Numbers that a call reads of tensors and only returns (`return loss.item()`): they become results
like others, and are read when the replay has run.

That a number goes nowhere else is proved in three runs from the same state. In the first all is as
it is. In the second each read gives another value. In the third it gives an object that notes
whatever is done with it, but being passed on. All three have to run the same instructions of
Python, call the same operators, and return the same, but for what was planted.
"""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.captures import planted_numbers
from ftax.captures.planted_numbers import Kind, Number, Read, Reads, Scope
from ftax.errors import FtaxError, UnsupportedError
from ftax.steps import echoes
from ftax.steps.echoes import PlainMode
from ftax.steps.reach import is_library
from ftax.tape.recording import operator_name
from ftax.tape.waits import READS

Call = Callable[[Callable[..., Any], Any, Any], Any]  # what it returns, of these arguments

_OWN = (__file__, planted_numbers.__file__, echoes.__file__)
_DISPATCHING = str(Path(torch._library.__file__).parent)  # what torch asks before it calls a mode
_MOST_TRIES = 8  # of reads that are found not to be only returned


class _Operators(PlainMode):
    """The operators that one run calls, with all they are given that is no tensor."""

    def __init__(self, reads: Reads) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[str, str]] = []
        self._reads = reads

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = operator_name(func)
        if not self._reads.is_reading and name.partition(".")[0] not in READS:
            given = pytree.tree_leaves((args, kwargs))
            plain = [item if _core.is_plain_value(item) else type(item) for item in given]
            self.calls.append((name, repr(plain)))
        return func(*args, **kwargs)


class _Run(NamedTuple):
    """What one of the three runs did: instructions, operators, and what it returned."""

    path: list[tuple[str, CodeType, int]]
    calls: list[tuple[str, str]]
    leaves: list[Any]
    tree: Any
    reads: list[Read]


class Probe:
    """Called in the place of a call: runs it, and keeps what it did."""

    def __init__(self, kind: Kind, scope: Scope) -> None:
        self.reads = Reads(kind, scope)
        self.run: _Run | None = None
        self._path: list[tuple[str, CodeType, int]] = []
        self._depth = 0  # of frames that are none of the call's own

    def call(self, what: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What it returns, with what was planted."""

        def run(*args: Any, **kwargs: Any) -> Any:
            before = sys.gettrace()
            sys.settrace(self._enter)
            try:
                return what(*args, **kwargs)
            finally:
                sys.settrace(before)

        collects = gc.isenabled()
        gc.disable()  # what a collection happens to call is no part of this call
        try:
            with _Operators(self.reads) as operators:
                leaves, tree = self.reads.call(run, args, kwargs)
        finally:
            if collects:
                gc.enable()
        self.run = _Run(self._path, operators.calls, leaves, tree, self.reads.made)
        return pytree.tree_unflatten(leaves, tree)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if file in _OWN:
            self._depth += 1
            frame.f_trace_lines = False
            return self._leave
        if self._depth or file.startswith(_DISPATCHING):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step(frame, event, argument)

    def _leave(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._depth -= event == "return"
        return self._leave

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._path.append((event, frame.f_code, frame.f_lasti))
        return self._step


def find_returned_reads(run: Callable[[Call], None], scope: Scope, name: str) -> Call | None:
    """Calls it with `Number` in the place of numbers that it reads of tensors and only returns;
    None where there are none. Others are noted as skipped in ``scope``. ``run`` makes the call in
    the way that it is given; ``name``: of it, in messages."""

    def probe(kind: Kind) -> Probe:
        made = Probe(kind, scope)
        with suppress(FtaxError):
            run(made.call)
        return made

    expected = probe("as it is").run
    for _ in range(_MOST_TRIES):
        found = probe("unusable")
        if not found.reads.used:
            break
        scope.skipped.update(found.reads.used)
    if expected is None or found.run is None or found.reads.used:
        return None
    numbers = [item for item in found.run.leaves if isinstance(item, Number)]
    another = probe("another").run
    if not numbers or another is None or not _is_like(found.run, expected, another):
        return None

    def call(what: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        reads, result = Reads("unusable", scope), None
        try:
            result = pytree.tree_unflatten(*reads.call(what, args, kwargs))
        except Exception:
            if not reads.used:
                raise
        if not reads.used:
            return result
        use = next(iter(reads.used.values()))
        raise UnsupportedError(
            f"cannot capture {name}: at {use.read} it reads a number of a tensor, which it only "
            f"returns in some calls, and uses in others ({use.use or 'it is kept'}): return the "
            "tensor, and read it of what the capture gives"
        )

    return call


def _is_like(found: _Run, expected: _Run, another: _Run) -> bool:
    """Whether all three did the same, and returned the same but for numbers."""
    if not (
        found.path == expected.path == another.path
        and found.calls == expected.calls == another.calls
        and found.tree == expected.tree == another.tree
        and len(found.reads) == len(another.reads)
        and any(event == "opcode" for event, _, _ in found.path)  # Python tells of them
    ):
        return False
    planted = {
        id(mine.number): other.given for mine, other in zip(found.reads, another.reads, strict=True)
    }
    if any(read.kind is int for read in found.reads) and _compares_identity(found.path):
        return False
    for mine, given, other in zip(found.leaves, expected.leaves, another.leaves, strict=True):
        if isinstance(mine, Number):
            if other is not planted[id(mine)] or type(given) is not type(other):
                return False
        elif isinstance(mine, torch.Tensor):
            if not isinstance(given, torch.Tensor) or not isinstance(other, torch.Tensor):
                return False
        elif not (_core.is_same_value(mine, given) and _core.is_same_value(mine, other)):
            return False
    return True


def _compares_identity(path: Sequence[tuple[str, CodeType, int]]) -> bool:
    """Whether code outside of libraries asks if something is the very object: small numbers are."""
    codes = {code for _, code, _ in path if not is_library(code.co_filename)}
    ran = {(code, place) for _, code, place in path if code in codes}
    for code in codes:
        if not {"is_", "is_not"}.isdisjoint(code.co_names):  # of the module operator
            return True
        before = None
        for item in dis.get_instructions(code):
            is_none = before is not None and before.opname == "LOAD_CONST" and before.argval is None
            if item.opname == "IS_OP" and (code, item.offset) in ran and not is_none:
                return True
            before = item
    return False
