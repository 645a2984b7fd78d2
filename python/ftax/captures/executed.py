"""Which Python code a call runs, as Python's own profiling hook tells it.

What a call can read without a tensor it reads by names in code that ran: attributes, globals, cells
of closures. Functions are found by their code, among all that live, because a running frame does
not say of which function it is. Globals are asked of the frames, since a function that the call
makes is gone when it is looked for.
"""

from __future__ import annotations

import gc
import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple, TypeVar

import torch

from ftax import _core
from ftax.steps.profiling_hook import watch_calls
from ftax.steps.reach import PACKAGES, is_library, list_codes, list_living_objects
from ftax.tape.waits import find_line, shorten

_T = TypeVar("_T")

# Built-in modules whose functions give another result each time, whatever their arguments are.
_CHANGING = frozenset(
    (
        *("time", "random", "_random", "posix", "nt", "_io", "io", "_socket", "socket", "secrets"),
        *("uuid", "_secrets", "_datetime", "datetime", "select", "_thread"),
    )
)
# Of them what acts on the world, or waits.
_ACTING = frozenset(
    (
        *("print", "input", "open", "write", "writelines", "sleep", "system", "remove", "unlink"),
        *("send", "sendall", "sendto", "sendmsg", "connect", "mkdir", "rename", "replace"),
    )
)
# What torch and Python know and no operator call tells of.
_ASKING = frozenset(("is_inference_mode_enabled", "get_num_threads", "initial_seed"))
_SEEDING = frozenset(("manual_seed", "seed"))
_RESTORING = frozenset(("set_state", "set_offset", "graphsafe_set_state"))
# By the functions that carry them out, wherever they stand.
_TRANSFORMS = {
    **dict.fromkeys(("grad_and_value_impl", "grad_impl", "_vjp_with_argnums"), "torch.func.grad"),
    **dict.fromkeys(("_jvp_with_argnums",), "torch.func.jvp"),
    **dict.fromkeys(("_flat_vmap", "vmap_impl"), "torch.func.vmap"),
}
_TEXT = torch._tensor_str._str.__code__
_ASKERS = (getattr, hasattr, vars)
_CHECKPOINTING = str(Path("torch", "utils", "checkpoint.py"))


class Printing(NamedTuple):
    """Where the user's code has text written: the file, and its first and last line there."""

    file: str
    first: int
    last: int

    def holds(self, line: str) -> bool:
        """Whether a line, "model.py:12 in forward", is one of these."""
        file, _, rest = line.partition(":")
        number, _, _ = rest.partition(" ")
        return file == self.file and number.isdigit() and self.first <= int(number) <= self.last


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """What ran.

    Attributes:
        codes: of all Python functions that were entered, once each.
        spaces: the globals of each, all that it ran with.
        askers: those outside torch that called `getattr` or one of its kin, by whatever name.
        changing: calls of built-in functions that give another result each time, "time.time in
            model.py:12"; those that torch makes are left out.
        seeding: the first call that seeded a generator of torch's, "Generator.seed in model.py:12";
            "" if there was none.
        restoring: the first one that set its state, which may have brought an earlier one back.
        thread: where the first thread was started, "model.py:12"; "" if none was.
        draws: the first call that drew of Python's `random`, "Random.random in model.py:12"; "" if
            none did.
        transform: the first transform of torch.func that was called, by its name; "" if none was.
        printing: calls that print, log or write text.
        text: where the first tensor became text, "model.py:12 in forward"; "" if none did.
    """

    codes: tuple[CodeType, ...]
    changing: tuple[str, ...]
    seeding: str = ""
    restoring: str = ""
    thread: str = ""
    draws: str = ""
    transform: str = ""
    spaces: tuple[tuple[CodeType, dict[str, Any]], ...] = ()
    askers: tuple[CodeType, ...] = ()
    printing: tuple[Printing, ...] = ()
    text: str = ""

    @property
    def acts(self) -> tuple[str, ...]:
        """What was printed, written, sent or waited for, "builtins.print in model.py:12"."""
        named = ((item, item.partition(" in ")[0].rpartition(".")[2]) for item in self.changing)
        return tuple(item for item, name in named if name in _ACTING)

    @property
    def names_random(self) -> bool:
        """Whether code outside of libraries may draw of numpy, whose functions no hook sees."""
        own = (code for code in self.codes if not is_library(code.co_filename))
        return any("random" in part.co_names for code in own for part in list_codes(code))

    def list_functions(self) -> list[FunctionType]:
        """All functions that live and have code that ran."""
        return _core.find_functions(list_living_objects(), self.codes)


def watch_code(call: Callable[[], _T]) -> tuple[_T, Executed]:
    """What ``call`` returns, and what ran. Raises what it raises."""
    spaces: dict[tuple[int, int], tuple[CodeType, dict[str, Any]]] = {}
    changing: dict[str, None] = {}
    seeding: dict[str, str] = {}  # the first of each method
    threads: list[str] = []
    askers: dict[CodeType, None] = {}
    printing: dict[Printing, None] = {}
    texts: list[str] = []

    def see(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            code, space = frame.f_code, frame.f_globals
            spaces[id(code), id(space)] = code, space
            if code is _TEXT:
                texts.append(find_line(frame))
        elif event == "c_call" and _starts_thread(argument):
            threads.append(_find_caller(frame) or "torch")
        elif event == "c_call" and _sets_generator(argument):
            if (place := _find_caller(frame)) is not None:
                method = argument.__name__
                seeding.setdefault(method, f"{name_function(argument)} in {place}")
        elif event == "c_call" and _changes(argument):
            through_torch = name_function(argument).endswith("initial_seed")
            place = _find_caller(frame) if through_torch else _find_asker(frame)
            if place is not None:
                changing[f"{name_function(argument)} in {place}"] = None
            if argument is print or getattr(argument, "__name__", "") == "write":
                printing.update(dict.fromkeys(_find_printing(frame)))
        elif event == "c_call" and argument in _ASKERS and not is_library(frame.f_code.co_filename):
            askers[frame.f_code] = None

    collects = gc.isenabled()
    gc.disable()  # what a collection happens to call (gc.callbacks) is no part of this call
    try:
        result = watch_calls(see, call)
    finally:
        if collects:
            gc.enable()
    return result, Executed(
        codes=tuple({id(code): code for code, _ in spaces.values()}.values()),
        changing=tuple(changing),
        seeding=_find_first(seeding, _SEEDING),
        restoring=_find_first(seeding, _RESTORING),
        thread=next(iter(threads), ""),
        draws=next((line for line in changing if line.startswith("Random.")), ""),
        transform=next((name for name in map(_name_transform, spaces.values()) if name), ""),
        spaces=tuple(spaces.values()),
        askers=tuple(askers),
        printing=tuple(printing),
        text=next(iter(texts), ""),
    )


def name_function(function: Any) -> str:
    """``time.perf_counter``."""
    module = getattr(function, "__module__", None) or ""
    owner = getattr(function, "__self__", None)
    if not module and owner is not None and not isinstance(owner, types.ModuleType):
        module = type(owner).__name__
    return f"{module}.{getattr(function, '__name__', '?')}".lstrip(".")


def _changes(function: Any) -> bool:
    if function in (print, open, input):  # which a replay does not do again
        return True
    if getattr(function, "__name__", "") in _ASKING:
        return True
    module = getattr(function, "__module__", None)
    if module is None:  # a method of an object of a built-in class, as random.Random is
        module = type(getattr(function, "__self__", None)).__module__
    return module in _CHANGING


def _starts_thread(function: Any) -> bool:
    is_builtin = getattr(function, "__module__", None) == "_thread"
    return is_builtin and getattr(function, "__name__", "").startswith("start_")


def _name_transform(ran: tuple[CodeType, dict[str, Any]]) -> str:
    name = _TRANSFORMS.get(ran[0].co_name, "")
    return name if "_functorch" in ran[0].co_filename else ""


def _sets_generator(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    return isinstance(owner, torch.Generator) and function.__name__ in _SEEDING | _RESTORING


def _find_first(calls: Mapping[str, str], methods: Iterable[str]) -> str:
    return next((place for method, place in calls.items() if method in methods), "")


def _find_asker(frame: FrameType | None) -> str | None:
    """The line of the user's that asked Python, by what of Python's own library ever; None for what
    torch asks."""
    while frame is not None and is_library(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith(PACKAGES):
            return None
        frame = frame.f_back
    return None if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _find_printing(frame: FrameType | None) -> Iterator[Printing]:
    """The user's call that led there."""
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is not None:
        spans = itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
        first, last, *_ = next(spans, (None, None))
        first = first or frame.f_lineno
        yield Printing(shorten(frame.f_code.co_filename), first, last or first)


def _find_caller(frame: FrameType | None) -> str | None:
    """The line outside of torch that led there; None if that is for activation checkpointing, which
    draws again what was drawn."""
    place = None
    while frame is not None:
        file = frame.f_code.co_filename
        if file.endswith(_CHECKPOINTING):
            return None
        if place is None and not is_library(file):
            place = f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return place or "torch"
