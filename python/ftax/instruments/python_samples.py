"""Which lines of Python a call spends its time in: samples of its stack.

A native thread interrupts the calls at random times. A sample counts as Python's if the machine
code that runs is the interpreter's or that of torch's bindings, or code that these have called
without torch's dispatcher (numpy, a tokenizer); what the dispatcher calls is an operator. Each
sample costs a signal, which slows the calls but is in no sample: the rounds are over by then.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from ftax_run.errors import UnknownPythonError
from ftax_run.frames import Place, Places, is_users, make_table, name_place
from ftax_run.sampler import Sampler
from torch import nn

from ftax.errors import UnavailableError
from ftax.records.record import Count, Name, Record
from ftax.steps.equal_modules import EqualModules, ModuleGroup
from ftax.steps.module_calls import watch_module_calls
from ftax.steps.outputs import call_model

_RATE_HZ = 4000.0
_PYTHON, _OPERATORS = 1, 2
_TORCH = f"{Path(nn.__file__).parents[1]}/"
_DEVICE = ("libcu", "libnv")  # libraries of a GPU
_STRINGS_BYTES = 1 << 22  # at the start of a library, where the names are that it needs


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSamples(Record):
    """Samples in Python for one line of one group of modules."""

    line: Name  # "model.py:41 forward"
    group: Count  # which of `PythonSamples.groups`
    samples: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonSamples(Record):
    """Where Python was at random times of a call.

    Attributes:
        samples: all of them, those in operators too.
        calls: over which they were taken.
        call_ns: how long one took meanwhile, in the mean.
    """

    samples: Count
    calls: Count
    call_ns: float
    lines: tuple[LineSamples, ...]
    groups: tuple[ModuleGroup, ...]


def sample_python(
    call: Callable[[], object], prepare: Callable[[], None], root: nn.Module, *,
    seconds: float, calls_root: bool, device: str = "cpu",
) -> PythonSamples:  # fmt: skip
    """Samples of ``call()`` for so many seconds, each until ``device`` has done its work.
    ``prepare`` is called before each, outside all samples; ``calls_root`` says whether it is the
    root's forward that is called.

    Raises UnavailableError where the stacks cannot be read, and what the call raises.
    """
    equal = EqualModules(root, _count_calls(call, prepare, root), calls_root=calls_root)
    with Sampler(_RATE_HZ) as sampler:
        try:
            sampler.add_own_thread(_list_regions())
        except (OSError, UnknownPythonError) as error:
            raise UnavailableError(f"the stacks of this process cannot be read: {error}") from error
        times_ns = _run(call, prepare, seconds, device)
        news = sampler.drain()
    places = Places()
    places.learn(news.stacks, news.codes)
    samples, lines = _count_lines(news.samples, _StackReader(places, equal, root))
    return PythonSamples(
        samples=samples,
        calls=len(times_ns),
        call_ns=sum(times_ns) / len(times_ns),
        lines=tuple(
            LineSamples(line=line, group=group, samples=count)
            for (line, group), count in lines.most_common()
        ),
        groups=tuple(equal.groups),
    )


def _run(
    call: Callable[[], object], prepare: Callable[[], None], seconds: float, device: str
) -> list[int]:
    """How long each call took, ns."""
    times_ns: list[int] = []
    end = time.perf_counter() + seconds
    while not times_ns or time.perf_counter() < end:
        prepare()
        begin = time.perf_counter_ns()
        _run_once(call, device)
        times_ns.append(time.perf_counter_ns() - begin)
    return times_ns


def _run_once(call: Callable[[], object], device: str) -> None:
    """By this function in their stacks samples of a call are known."""
    call_model(call)
    if device != "cpu":
        torch.cuda.synchronize(device)


def _count_lines(found: np.ndarray, reader: _StackReader) -> tuple[int, Counter[tuple[str, int]]]:
    """How many samples are of calls, and how many of these are of Python by line and group."""
    lines: Counter[tuple[str, int]] = Counter()
    count = 0
    is_python = _find_python(found)
    for stack, in_python in zip(found["stack"].tolist(), is_python.tolist(), strict=True):
        at = reader.read(stack)
        count += at is not None
        if at and in_python:
            lines[at] += 1
    return count, lines


def _count_calls(
    call: Callable[[], object], prepare: Callable[[], None], root: nn.Module
) -> Counter[str]:
    """Of each module's path, in one call."""
    paths = {id(module): path for path, module in root.named_modules()}
    counts: Counter[str] = Counter()

    def enter(module: nn.Module, _inputs: object) -> None:
        counts[paths.get(id(module), "?")] += 1

    prepare()
    with watch_module_calls(enter):
        call_model(call)
    return counts


def _list_regions() -> Iterator[tuple[int, int, int]]:
    """Where machine code lies that is Python's, and that is an operator's; of the C library and its
    like the caller decides."""
    known: dict[str, int] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, _, _, _, *name = line.split(maxsplit=5)
        if "x" in access and name:
            file = name[0]
            if file not in known:
                known[file] = _judge_library(file)
            begin, end = (int(text, 16) for text in addresses.split("-"))
            yield from [(begin, end, known[file])] if known[file] else []


def _judge_library(file: str) -> int:
    name = Path(file).name
    if file == os.readlink("/proc/self/exe") or name.startswith(("libpython", "libtorch_python")):
        return _PYTHON
    if file.startswith(_TORCH) or name.startswith(_DEVICE) or "/nvidia/" in file:
        return _OPERATORS
    if is_users(file) and not file.endswith(f"-{os.uname().machine}-linux-gnu.so"):
        return 0
    return _OPERATORS if _links_torch(file) else _PYTHON


def _links_torch(file: str) -> bool:
    """Whether an extension needs libraries of torch, as those with operators do."""
    try:
        with open(file, "rb") as library:
            return b"libc10.so" in library.read(_STRINGS_BYTES)
    except OSError:
        return False


def _find_python(samples: np.ndarray) -> np.ndarray:
    """Of each sample, whether it is in Python. Where no machine code tells, the bytecode does."""
    into_c = make_table(sys.version_info[:2])[samples["opcode"] & 255]
    is_python: np.ndarray = np.where(samples["region"] == 0, ~into_c, samples["region"] == _PYTHON)
    return is_python


class _StackReader:
    """The line and the group of modules at which stacks stand; each looked up once."""

    def __init__(self, places: Places, equal: EqualModules, root: nn.Module) -> None:
        self._places, self._equal = places, equal
        self._folders, self._files = _list_folders(root), equal.files
        self._known: dict[int, tuple[str, int] | tuple[()] | None] = {}

    def read(self, stack: int) -> tuple[str, int] | tuple[()] | None:
        """None for a sample outside of the calls; nothing for one in no function of the model."""
        if stack not in self._known:
            self._known[stack] = self._find(_cut(self._places.list_frames(stack)))
        return self._known[stack]

    def _find(self, frames: Sequence[Place] | None) -> tuple[str, int] | tuple[()] | None:
        if not frames:
            return None if frames is None else ()
        own = [frame for frame in frames if self._is_models(frame[0])]
        own = own or [frame for frame in frames if frame[0] in self._files] or [*frames]
        group = self._equal.find((file, name) for file, _, name in reversed(frames))
        return name_place(own[0]), group

    def _is_models(self, file: str) -> bool:
        return is_users(file) or file.startswith(self._folders)


def _cut(frames: Sequence[Place]) -> Sequence[Place] | None:
    """Those of the call, from the innermost; None for a sample outside of `_run_once`."""
    ours = (_run_once.__code__.co_filename, _run_once.__name__)
    for place, (file, _, name) in enumerate(frames):
        if (file, name) == ours:
            is_called = place > 0 and frames[place - 1][2] == call_model.__name__
            return frames[: place - 1] if is_called else ()
    return None


def _list_folders(root: nn.Module) -> tuple[str, ...]:
    """Of the installed packages that the model's classes come from; torch is none."""
    names = {type(module).__module__.partition(".")[0] for module in root.modules()}
    files = [getattr(sys.modules.get(name), "__file__", None) for name in names - {"torch"}]
    return tuple(
        f"{Path(file).parent}/" for file in files if file and Path(file).stem == "__init__"
    )
