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
import threading
from collections.abc import Callable, Container, Iterator, Sequence
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

Space = dict[str, Any]  # globals of a module
Site = tuple[CodeType, int]  # an instruction
Call = Callable[[Callable[..., Any], Any, Any], Any]  # what it returns, of these arguments
Kind = Literal["as it is", "another", "unusable"]

_METHODS: tuple[str, ...] = ("item", "tolist")
_CONVERSIONS = (float, int, bool)
_OWN = (__file__, echoes.__file__)
_DISPATCHING = str(Path(torch._library.__file__).parent)  # what torch asks before it calls a mode
_MOST_TRIES = 8  # of reads that are found not to be only returned
NAMES = frozenset((*_METHODS, *(kind.__name__ for kind in _CONVERSIONS)))  # by which code reads


class Number:
    """In the place of a number that is read later: a copy of its tensor."""

    def __init__(self, tensor: torch.Tensor, convert: Callable[[torch.Tensor], Any]) -> None:
        self.tensor, self.convert = tensor, convert


class _UsedError(Exception):
    """Something was done with a number."""


class _Unusable:
    """In the place of a number. Whoever does more than pass it on is noted."""

    __slots__ = ("note",)

    def __init__(self, note: Callable[[FrameType], None]) -> None:
        object.__setattr__(self, "note", note)


def _note_use(self: _Unusable, *_: Any, **__: Any) -> Any:
    object.__getattribute__(self, "note")(sys._getframe(1))
    raise _UsedError("a number of the call is used in it")


_BASIC = ("__new__", "__init__", "__init_subclass__", "__subclasshook__", "__class__", "__doc__")
for _name in {name for kind in (float, int, complex, list) for name in dir(kind)}:
    if _name.startswith("__") and _name not in _BASIC:
        setattr(_Unusable, _name, _note_use)
_Unusable.__array__ = _note_use  # type: ignore[attr-defined]


@dataclass(slots=True, eq=False)
class _Read:
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


class Reads:
    """Lets the numbers of one run be read, each in the way that ``kind`` says.

    Attributes:
        made: reads, in order.
        used: where numbers were read that were used: the lines of the read and of the use.
    """

    def __init__(self, kind: Kind, spaces: Sequence[Space], skipped: Container[Site]) -> None:
        self.made: list[_Read] = []
        self.used: dict[Site, Use] = {}
        self._kind, self._spaces, self._skipped = kind, spaces, skipped
        self._thread = threading.get_ident()
        self.is_reading = False

    def call(self, what: Callable[..., Any], args: Any, kwargs: Any) -> tuple[list[Any], Any]:
        """The leaves and the structure of what it returns, with a `Number` in the place of each
        that cannot be used."""
        with self._replace_methods(), self._replace_conversions():
            result = what(*args, **kwargs)
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
        before = {name: vars(torch.Tensor).get(name) for name in _METHODS}
        for name in _METHODS:
            setattr(torch.Tensor, name, self._make_method(name, getattr(torch.Tensor, name)))
        try:
            yield
        finally:
            for name, method in before.items():
                if method is None:
                    delattr(torch.Tensor, name)
                else:
                    setattr(torch.Tensor, name, method)

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
        spaces = () if self._kind == "as it is" else self._spaces
        replaced = [(space, name) for space in spaces for name in made if name not in space]
        for space, name in replaced:
            space[name] = made[name]
        try:
            yield
        finally:
            for space, name in replaced:
                del space[name]

    def _convert(self, kind: type, args: tuple[Any, ...], frame: FrameType) -> Any:
        is_one = len(args) == 1 and threading.get_ident() == self._thread
        if is_one and type(args[0]) is _Unusable:
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
            or site in self._skipped
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
            self.made.append(_Read(site, line, given, number, is_list))
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
        return _Unusable(note), Number(tensor.clone(), convert)

    def _note(self, site: Site, line: str, frame: FrameType) -> None:
        self.used.setdefault(site, Use(line, find_line(frame)))


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
        def __call__(cls, *args: Any) -> Any:
            return convert(kind, args, sys._getframe(1))

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
    reads: list[_Read]


class Probe:
    """Called in the place of a call: runs it, and keeps what it did."""

    def __init__(self, kind: Kind, spaces: Sequence[Space], skipped: Container[Site]) -> None:
        self.reads = Reads(kind, spaces, skipped)
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


def find_returned_reads(
    run: Callable[[Call], None], spaces: Sequence[Space], name: str
) -> tuple[Call | None, list[Use]]:
    """Calls it with `Number` in the place of numbers that it reads of tensors and only returns;
    None where there are none. And what becomes of the others. ``run`` makes the call in the way
    that it is given; ``spaces``: globals of its code; ``name``: of it, in messages."""
    skipped: dict[Site, Use] = {}

    def probe(kind: Kind) -> Probe:
        made = Probe(kind, spaces, skipped)
        with suppress(FtaxError):
            run(made.call)
        return made

    expected = probe("as it is").run
    for _ in range(_MOST_TRIES):
        found = probe("unusable")
        if not found.reads.used:
            break
        skipped |= found.reads.used
    if expected is None or found.run is None or found.reads.used:
        return None, [*skipped.values()]
    numbers = [item for item in found.run.leaves if isinstance(item, Number)]
    another = probe("another").run
    if not numbers or another is None or not _is_like(found.run, expected, another):
        return None, [*skipped.values()]

    def call(what: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        reads = Reads("unusable", spaces, skipped)
        try:
            return pytree.tree_unflatten(*reads.call(what, args, kwargs))
        finally:
            if reads.used:
                use = next(iter(reads.used.values()))
                raise UnsupportedError(
                    f"cannot capture {name}: at {use.read} it reads a number of a tensor, which it "
                    f"only returns in some calls, and uses in others ({use.use or 'it is kept'}): "
                    "return the tensor, and read it of what the capture gives"
                )

    return call, [*skipped.values()]


def _is_like(found: _Run, expected: _Run, another: _Run) -> bool:
    """Whether all three did the same, and returned the same but for numbers."""
    if not (
        found.path == expected.path == another.path
        and found.calls == expected.calls == another.calls
        and found.tree == expected.tree == another.tree
        and len(found.reads) == len(another.reads)
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
        before = None
        for item in dis.get_instructions(code):
            is_none = before is not None and before.opname == "LOAD_CONST" and before.argval is None
            if item.opname == "IS_OP" and (code, item.offset) in ran and not is_none:
                return True
            before = item
    return False
