"""The exceptions of ftax, each named after what the reader can do about it, and what to say of the
exceptions of others, and of values.

Ours mirror `csrc/core/error.h` name by name: the bindings raise these very classes, so one `except`
clause catches a failure whichever language found it. Failures of others are recognised by their
words. When memory runs out, torch, the tape, CUDA and its libraries each raise something else, and
what a C++ runner met is text alone.
"""

from __future__ import annotations

import difflib
import functools
import re
import reprlib
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import PurePath
from typing import Any, TypeVar

import torch

_T = TypeVar("_T")
_PLAIN_KEYS = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device)
_Record = TypeVar("_Record")


class FtaxError(Exception):
    """The base of every error that ftax raises on purpose."""


class InvalidArgumentError(FtaxError, ValueError):
    """An argument has a wrong value: pass another one."""


class UnsupportedError(FtaxError):
    """This model or option cannot be measured so, by its nature: choose another one."""


class UnavailableError(FtaxError):
    """Something is missing on this machine (a library, a device): install or attach it."""


class RunnerError(FtaxError):
    """The measured code itself failed: it has to run outside ftax first."""


class ResultsError(FtaxError, ValueError):
    """A results file or a record cannot be trusted: the message has the place and the remedy."""


MOST = 2**31 - 1  # of whatever is counted: torch, C++ and the system count with as many bits

_FOREIGN = (RuntimeError, MemoryError, OSError)
# What a look at something may raise and cost no more than what it would have found.
FAULTS = (FtaxError, *_FOREIGN)
_WORDS = (
    "out of memory", "alloc_failed", "allocation_failed", "can't allocate memory",
    "size calculation overflowed",
)  # fmt: skip
_REMEDY = (
    "choose a smaller batch or sequence, name fewer runtimes, or free memory on the device "
    "(nvidia-smi shows who holds it)"
)
# What stands in messages of others and says nothing to who reads a table: the values of a tensor,
# the stack of C++, and the lines between a traceback's first and the error that it ends with.
_VALUES = re.compile(r"(?:Parameter containing:\s*)?\b(tensor|array)\(\s*[\[{(\d.+-][^()]*\)?")
_NATIVE_STACK = re.compile(
    r"\s*(?:Exception raised from |C\+\+ CapturedTraceback:|frame #\d+: ).*", re.S
)
_TRACEBACK = re.compile(
    r"Traceback[^\n]*\(most recent call last\):\n(?:(?:[ \t][^\n]*|[^\n]*\(\d+\): [^\n]*)?\n)*"
)
LONGEST_REASON = 500  # characters of a message of ours in a table
_LONGEST, _LONGEST_TENSOR = 200, 30  # of one of others, and of a tensor in it
LEFT_OUT = " [...]"
# The stack behind what pybind11 says of an error in Python, the innermost call first.
_STACK = re.compile(r"\bAt:\n(?P<calls>(?:  \S.*\(\d+\): .*\n?)+)")
_CALL = re.compile(r"  (?P<file>.*)\((?P<line>\d+)\): ")
_INSTALLED = re.compile(r"(site|dist)-packages|[/\\]lib[/\\]python3")
_SENTENCE = re.compile(r"(?<=\.) (?=[A-Z])")
_FOLDERS = re.compile(r"(?<![\w.:/~])~?/(?:[^\s/\"':]+/)+")
_MOST_CHARACTERS = 20_000
_SENTENCES = 3  # of torch's message: what was asked for, and how much there was


def suggest(name: str, names: Iterable[str]) -> str:
    """For a sentence about an unknown name: "did you mean ...? " with the nearest one, if any is
    near, or else the first that begins with it."""
    known = list(names)
    near = difflib.get_close_matches(name, known, n=1)
    near = near or [item for item in known if len(name) > 2 and item.startswith(name)]
    return f"did you mean {near[0]!r}? " if near else ""


def say_count(number: int, what: str) -> str:
    """``"1 record"``, ``"1,204 records"``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def name_type(value: object) -> str:
    """What a value is, with its article: "an int", "a Tensor"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


class _Brief(reprlib.Repr):
    def repr_Tensor(self, tensor: torch.Tensor, _level: int) -> str:
        return f"{type(tensor).__name__} {tuple(tensor.shape)}"

    repr_Parameter = repr_Tensor


_brief = _Brief()
_brief.maxlevel, _brief.maxstring, _brief.maxother = 4, 200, 200
_brief.maxlist = _brief.maxtuple = _brief.maxdict = 30


def describe_value(value: object) -> str:
    """The value in at most 60 characters, however long or deep it is; of a tensor its type and
    shape: ``Parameter (3, 2)``."""
    if isinstance(value, torch.Tensor):
        return _brief.repr_Tensor(value, 0)
    try:
        found = _brief.repr(value)
    except ValueError:  # Python writes no integer of more than some thousand digits
        found = f"{type(value).__name__}, too long to write"
    return found if len(found) <= 60 else found[:57] + "..."


def check_count(name: str, value: object, *, least: int = 1, most: int = MOST) -> None:
    """Raises InvalidArgumentError for what is no whole number from ``least`` to ``most``."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidArgumentError(
            f"{name} is {describe_value(value)}; give a whole number from {least} to {most}"
        )


def check_number(name: str, value: object, *, most: float = 1e9, can_be_0: bool = False) -> None:
    """Raises InvalidArgumentError for what is no number above 0, or from 0, and below ``most``."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 <= value < most and (value != 0 or can_be_0):  # type: ignore[operator]
        return  # neither NaN nor infinity
    least = "of at least 0" if can_be_0 else "above 0"
    raise InvalidArgumentError(
        f"{name} is {describe_value(value)}; give a number {least} and below {most:g}"
    )


def check_fields(record: type[_Record]) -> type[_Record]:
    """A dataclass of keywords that says which field an unknown one may have meant."""
    construct = record.__init__

    @functools.wraps(construct)
    def check(self: _Record, **given: Any) -> None:
        names = [field.name for field in fields(record)]  # type: ignore[arg-type]  # a dataclass
        for name in given:
            if name not in names:
                raise InvalidArgumentError(
                    f"{record.__name__} has no field {name!r}; {suggest(name, names)}"
                    f"there are {', '.join(names)}"
                )
        construct(self, **given)

    record.__init__ = check  # type: ignore[assignment, method-assign]  # the point of it
    return record


def is_out_of_memory(error: BaseException | str) -> bool:
    """Whether memory ran out, by the type of an error or by what it says."""
    text = _say(error).lower()
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or any(word in text for word in _WORDS)


def describe(error: BaseException | str) -> str:
    """One line for people, with a remedy if memory ran out; `tell_in_full` is all of it.

    Without the values of tensors, tracebacks and stacks, of which the innermost place in Python
    stays. Of a long message of others the first line is kept, of ours both ends: what is wrong, and
    the remedy.
    """
    said, place = _read_message(error)
    lines = [" ".join(line.split()) for line in said.splitlines()]
    text = " ".join(filter(None, (*lines, place)))
    is_told = _REMEDY in text
    if is_told or not is_out_of_memory(error):
        if is_told or isinstance(error, FtaxError):
            return shorten(text, LONGEST_REASON)
        if not text and isinstance(error, BaseException):
            return type(error).__name__
        return text if len(text) <= _LONGEST else _take_first(lines, place)
    text = cut(" ".join(_SENTENCE.split(text)[:_SENTENCES]), LONGEST_REASON).rstrip(".")
    if "out of memory" not in text.lower():
        text = f"out of memory: {text}" if text else "out of memory"  # Python's own says nothing
    return f"{text}; {_REMEDY}"


def describe_fault(error: BaseException) -> str:
    """`describe`; the type of an error that is none of ours is a part of it."""
    text, name = describe(error), type(error).__name__
    return text if isinstance(error, FtaxError) or text == name else f"{name}: {text}"


def shorten(text: str, most: int) -> str:
    """Both ends of a text that is longer."""
    if len(text) <= most:
        return text
    half = (most - len(LEFT_OUT) - 1) // 2
    first, last = text[:half], text[-half:]
    return f"{first.rpartition(' ')[0] or first}{LEFT_OUT} {last.partition(' ')[2] or last}"


def cut(text: str, most: int) -> str:
    """The beginning of a text that is longer."""
    if len(text) <= most:
        return text
    beginning = text.removesuffix(LEFT_OUT)[: most - len(LEFT_OUT)]
    return f"{beginning.rpartition(' ')[0] or beginning}{LEFT_OUT}"


def name_key(key: object) -> str:
    """How a place in a dictionary is named: by a short plain key as Python writes it, and else by
    its type, of a tensor with its shape: ``Parameter (3, 2)``."""
    if isinstance(key, torch.Tensor):
        return describe_value(key)
    parts = key if type(key) is tuple else (key,)
    is_plain = all(type(part) in _PLAIN_KEYS for part in parts)
    return describe_value(key) if is_plain else type(key).__name__


def _say(error: BaseException | str) -> str:
    try:
        return str(error)
    except Exception:  # it may fail to put itself into words
        return ""


def _read_message(error: BaseException | str) -> tuple[str, str]:
    """Its lines, and the place that a stack of Python gives it."""
    text = _say(error)
    stack = _STACK.search(text)
    for pattern in (_NATIVE_STACK, _TRACEBACK, _STACK):
        text = pattern.sub("", text)
    return _VALUES.sub(_leave_values_out, text), _name_place(stack) if stack else ""


def _leave_values_out(tensor: re.Match[str]) -> str:
    return tensor[0] if len(tensor[0]) <= _LONGEST_TENSOR else f"{tensor[1]}(...)"


def _take_first(lines: Iterable[str], place: str) -> str:
    """The first line of a message that is too long, and the next one of a line that ends with a
    colon; with its place."""
    text = ""
    for line in filter(None, lines):
        text = f"{text} {line}" if text else line
        if not line.endswith(":"):
            break
    return " ".join(filter(None, (cut(f"{text}{LEFT_OUT}", _LONGEST), place)))


def _name_place(stack: re.Match[str]) -> str:
    """The innermost place that was not installed, without its folder."""
    calls = [*_CALL.finditer(stack["calls"])]
    own = next((call for call in calls if not _INSTALLED.search(call["file"])), calls[0])
    return f"({PurePath(own['file']).name}, line {own['line']})"


def tell_in_full(error: BaseException) -> str:
    """The error with its traceback and all that it came from, for a record.

    Folders are left out, since a record may be published; of a very long text the ends are kept.
    """
    text = _FOLDERS.sub("", "".join(traceback.format_exception(error)).strip())
    if len(text) <= _MOST_CHARACTERS:
        return text
    half = _MOST_CHARACTERS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


@contextmanager
def name_faults(what: str) -> Iterator[None]:
    """Inside, what torch and CUDA raise becomes an error of ours that begins with ``what``.

    RuntimeError, the base of all theirs, is taken for theirs, and what a machine that is full
    raises: MemoryError and OSError. Errors of ours pass, but if memory ran out they get the remedy
    too, and what their frames hold is let go.
    """
    try:
        yield
    except FAULTS as error:
        if is_out_of_memory(error):
            release(error)
        elif isinstance(error, FtaxError):
            raise
        raise RunnerError(f"{what}: {describe(error)}") from error


def attempt(step: Callable[[], _T]) -> _T | FtaxError:
    """What ``step`` returns, or the error that it raised as one of ours: for what is worth having
    without the other parts of what is measured."""
    try:
        return step()
    except FAULTS as error:
        if is_out_of_memory(error):
            release(error)
        if isinstance(error, FtaxError):
            return error
        found = RunnerError(describe(error))
        found.__cause__ = error
        return found


def release(error: BaseException) -> None:
    """Let go of the tensors in the frames that ``error`` came through.

    An error that is kept keeps its frames, and with them the half-made inference that filled the
    device. The traceback can still be printed.
    """
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        item = pending.pop()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        traceback.clear_frames(item.__traceback__)
        pending += [item.__cause__, item.__context__]
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
