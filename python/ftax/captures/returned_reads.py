"""Numbers that a call reads of tensors and only returns (`return loss.item()`): they become results
like others, and are read when the replay has run.

That a number goes nowhere else is proved in three runs from the same state. In the first all is as
it is. In the second each read gives another value. In the third it gives an object that notes each
use but being passed on. All three have to run the same instructions of Python, call the same
operators, and return the same, but for what was planted.
"""

from __future__ import annotations

import dis
import gc
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.errors import FtaxError, UnsupportedError
from ftax.steps import echoes
from ftax.steps.echoes import PlainMode
from ftax.steps.reach import is_library
from ftax.tape.recording import operator_name
from ftax.tape.waits import READS, find_line

Call = Callable[[Callable[..., Any], Any, Any], Any]  # what it returns, of these arguments

_OWN = (__file__, echoes.__file__)
_DISPATCHING = str(Path(torch._library.__file__).parent)  # what torch asks before it calls a mode
_MOST_TRIES = 8  # of reads that are found not to be only returned

Space = dict[str, Any]  # globals of a module
Site = tuple[CodeType, int]  # an instruction
Kind = Literal["as it is", "another", "unusable"]

_METHODS: tuple[str, ...] = ("item", "tolist")
_CONVERSIONS = (float, int, bool)
NAMES = frozenset((*_METHODS, *(kind.__name__ for kind in _CONVERSIONS)))  # by which code reads


class Number:
    """In the place of a number that is read later: a copy of its tensor."""

    def __init__(self, tensor: torch.Tensor, convert: Callable[[torch.Tensor], Any]) -> None:
        self.tensor, self.convert = tensor, convert


class _UsedError(Exception):
    """Something was done with a number."""


class Unusable:
    """In the place of a number: each use is noted, but for passing it on."""

    __slots__ = ("note",)

    def __init__(self, note: Callable[[FrameType], None]) -> None:
        object.__setattr__(self, "note", note)


def _note_use(self: Unusable, *_: Any, **__: Any) -> Any:
    object.__getattribute__(self, "note")(sys._getframe(1))
    raise _UsedError("a number of the call is used in it")


_BASIC = ("__new__", "__init__", "__init_subclass__", "__subclasshook__", "__class__", "__doc__")
for _name in {name for kind in (float, int, complex, list) for name in dir(kind)}:
    if _name.startswith("__") and _name not in _BASIC:
        setattr(Unusable, _name, _note_use)
Unusable.__array__ = _note_use  # type: ignore[attr-defined]


@dataclass(slots=True, eq=False)
class Read:
    """One, with what was given in its place; ``is_list``: a list of numbers."""

    site: Site
    line: str
    given: Any
    number: Number
    is_list: bool

    @property
    def kind(self) -> type:
        """Of the number."""
        if self.is_list:
            return list
        if self.number.convert in _CONVERSIONS:
            return self.number.convert
        if self.number.tensor.is_floating_point():
            return float
        return bool if self.number.tensor.dtype == torch.bool else int


class Use(NamedTuple):
    """The line that reads a number, and the one that uses it; "" where it is kept."""

    read: str
    use: str


class Scope(NamedTuple):
    """Which numbers are planted: of tensors on a ``device``, such as "cuda", but at sites that are
    ``skipped``; ``spaces`` are the globals of the code that reads."""

    device: str
    spaces: Sequence[Space]
    skipped: dict[Site, Use]


class Reads:
    """Lets the numbers of one run be read, each in the way that ``kind`` says.

    Attributes:
        made: reads, in order.
        used: where numbers were read that were used: the lines of the read and of the use.
    """

    def __init__(self, kind: Kind, scope: Scope) -> None:
        self.made: list[Read] = []
        self.used: dict[Site, Use] = {}
        self._kind, self._scope = kind, scope
        self._thread = threading.get_ident()
        self._modes = 0  # of torch, around the call
        self.is_reading = False

    def call(self, what: Callable[..., Any], args: Any, kwargs: Any) -> tuple[list[Any], Any]:
        """The leaves and the structure of what it returns, with a `Number` in the place of each
        that cannot be used."""
        self._modes = _count_modes()
        try:
            with self._replace_methods(), self._replace_conversions():
                result = what(*args, **kwargs)
        finally:
            self._thread = 0  # what the call may have kept of the replacements reads as usual
        planted = {id(read.given) for read in self.made}
        leaves, tree = pytree.tree_flatten(
            result, is_leaf=lambda item: id(item) in planted or isinstance(item, torch.Size)
        )
        del result
        if self._kind == "unusable":
            self._note_kept(leaves)
            numbers = {id(read.given): read.number for read in self.made}
            leaves = [numbers.get(id(leaf), leaf) for leaf in leaves]
        return leaves, tree

    def _note_kept(self, leaves: Sequence[Any]) -> None:
        """Those that somebody holds beside the result, and lists that are there twice."""
        for _ in range(2):
            kept = []
            for read in self.made:
                returned = sum(leaf is read.given for leaf in leaves)
                if sys.getrefcount(read.given) > 2 + returned or (read.is_list and returned > 1):
                    kept.append(read)
            if not kept:
                return
            gc.collect()  # it may have been a cycle that is over
        for read in kept:
            self.used.setdefault(read.site, Use(read.line, ""))

    @contextmanager
    def _replace_methods(self) -> Iterator[None]:
        names = [name for name in _METHODS if name not in vars(torch.Tensor)]  # they are inherited
        for name in names:
            setattr(torch.Tensor, name, self._make_method(name, getattr(torch.Tensor, name)))
        try:
            yield
        finally:
            for name in names:
                delattr(torch.Tensor, name)

    def _make_method(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if args or kwargs:
                return original(tensor, *args, **kwargs)
            return self._read(tensor, original, sys._getframe(1), is_list=name == "tolist")

        return read

    @contextmanager
    def _replace_conversions(self) -> Iterator[None]:
        """`float` and its like, which cannot give anything else than a number."""
        made = {kind.__name__: _make_conversion(kind, self._convert) for kind in _CONVERSIONS}
        spaces = () if self._kind == "as it is" else self._scope.spaces
        replaced = [(space, name) for space in spaces for name in made if name not in space]
        for space, name in replaced:
            space[name] = made[name]
        try:
            yield
        finally:
            for space, name in replaced:
                if space.get(name) is made[name]:
                    del space[name]

    def _convert(self, kind: type, args: tuple[Any, ...], frame: FrameType) -> Any:
        is_one = len(args) == 1 and threading.get_ident() == self._thread
        if is_one and type(args[0]) is Unusable:
            known = next((read for read in self.made if read.given is args[0]), None)
            if known is not None and known.kind is kind:
                return known.given  # float() of a float is the same object
        if not is_one or not isinstance(args[0], torch.Tensor):
            return kind(*args)
        if kind is int and args[0].is_floating_point():
            return kind(*args)  # which may raise
        return self._read(args[0], kind, frame)

    def _read(
        self,
        tensor: torch.Tensor,
        convert: Callable[[torch.Tensor], Any],
        frame: FrameType,
        *,
        is_list: bool = False,
    ) -> Any:
        site = frame.f_code, frame.f_lasti
        if (
            threading.get_ident() != self._thread
            or _count_modes() != self._modes
            or site in self._scope.skipped
            or tensor.device.type != self._scope.device  # a graph holds no work of the host
            or is_library(frame.f_code.co_filename)
            or type(tensor) not in (torch.Tensor, nn.Parameter)
            or tensor.is_complex()
            or tensor.is_neg()
            or (not is_list and tensor.numel() != 1)
        ):
            return convert(tensor)
        self.is_reading = True
        try:
            with torch.no_grad():
                line = find_line(frame)
                given, number = self._plant(partial(self._note, site, line), tensor, convert)
            self.made.append(Read(site, line, given, number, is_list))
        finally:
            self.is_reading = False
        return given

    def _plant(
        self,
        note: Callable[[FrameType], None],
        tensor: torch.Tensor,
        convert: Callable[[torch.Tensor], Any],
    ) -> tuple[Any, Number]:
        if self._kind == "as it is":
            return convert(tensor), Number(tensor, convert)
        if self._kind == "another":
            return convert(_change(tensor)), Number(tensor, convert)
        return Unusable(note), Number(tensor.clone(), convert)

    def _note(self, site: Site, line: str, frame: FrameType) -> None:
        self.used.setdefault(site, Use(line, _find_use(frame)))


def _find_use(frame: FrameType) -> str:
    """The line; of a number that is logged, the call that logs: Ray makes records in its code."""
    outer: FrameType | None = frame
    while outer is not None:
        if outer.f_code.co_filename == logging.__file__:
            frame = outer
        outer = outer.f_back
    return find_line(frame)


def _count_modes() -> int:
    """Of torch, which may make something else of a read."""
    return int(torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack())


def _change(tensor: torch.Tensor) -> torch.Tensor:
    """Another value in each place."""
    if tensor.is_floating_point():
        return torch.full_like(tensor, torch.nan)
    return ~tensor


def _make_conversion(
    kind: type, convert: Callable[[type, tuple[Any, ...], FrameType], Any]
) -> type:
    """To be called, and asked for instances, in the place of ``kind``."""

    class Meta(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return kind(*args, **kwargs) if kwargs else convert(kind, args, sys._getframe(1))

        def __instancecheck__(cls, item: Any) -> bool:
            return isinstance(item, kind)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, kind)

    return Meta(kind.__name__, (object,), {})


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
            sys._getframe().f_trace_opcodes = True  # Python 3.12 looks before whether any asks
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
        frame.f_trace = self._step  # Python 3.13 wants it first
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

    for _ in range(_MOST_TRIES):
        found = probe("unusable")
        if not found.reads.used:
            break
        scope.skipped.update(found.reads.used)
    leaves = [] if found.run is None or found.reads.used else found.run.leaves
    if found.run is None or not any(isinstance(leaf, Number) for leaf in leaves):
        return None
    expected, another = probe("as it is").run, probe("another").run
    if expected is None or another is None or not _is_like(found.run, expected, another):
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
