"""Samples of the Python stacks of running processes, taken by a native thread of this process.

Nothing runs in other processes that are sampled, and nothing stops them: their memory is read from
outside, as a debugger may. A thread of this process reads its stack itself, which is exact.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from ftax_run.errors import UnknownPythonError
from ftax_run.layouts import FIELDS
from ftax_run.python_process import PythonProcess, find_python

# `ftax::sampler::Sample` (csrc/sampler/stacks.h).
SAMPLE = np.dtype(
    [
        ("time_ns", "<i8"), ("process", "<i4"), ("thread", "<i4"), ("stack", "<u4"),
        ("opcode", "<u2"), ("state", "u1"), ("region", "u1"), ("took_ns", "<u8"),
    ]
)  # fmt: skip

# Of a line table: what a range of instructions is, with the highest bit, and its lines and columns.
_ENTRY = re.compile(rb"[\x80-\xff][\x00-\x7f]*")


class _Layout(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in FIELDS]


class _Region(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_uint64), ("end", ctypes.c_uint64), ("number", ctypes.c_uint64)]


class _News(ctypes.Structure):
    _fields_ = [
        ("samples", ctypes.c_void_p), ("sample_count", ctypes.c_uint64),
        ("stacks", ctypes.c_void_p), ("stack_words", ctypes.c_uint64),
        ("codes", ctypes.c_void_p), ("code_bytes", ctypes.c_uint64),
        ("torn", ctypes.c_uint64), ("lost", ctypes.c_uint64),
        ("forgotten_stacks", ctypes.c_uint64), ("forgotten_codes", ctypes.c_uint64),
    ]  # fmt: skip


@dataclass(frozen=True)
class Code:
    """A function of the program, as its code object describes it."""

    number: int
    first_line: int
    file: str
    name: str
    line_table: bytes

    @cached_property
    def _lines(self) -> tuple[np.ndarray, list[int]]:
        return parse_lines(self.line_table, self.first_line)

    def find_line(self, offset: int) -> int:
        """The line of the instruction at an offset in bytes; the first where there is none."""
        starts, lines = self._lines
        place = int(np.searchsorted(starts, offset, side="right")) - 1
        return lines[place] if 0 <= place < len(lines) and lines[place] else self.first_line


Stack = bytes  # code and offset of each frame, 4 bytes each, from the innermost


@dataclass(frozen=True, slots=True)
class News:
    """What came since it was last asked for."""

    samples: np.ndarray  # of `SAMPLE`
    stacks: dict[int, Stack]
    codes: dict[int, Code]
    torn: int
    lost: int
    forgotten: tuple[int, int]  # the last stack and the last code that no further sample names


class Sampler:
    """A context in which the processes that are added are sampled, ``rate`` times a second."""

    def __init__(self, rate: float) -> None:
        self._library = ctypes.CDLL(str(Path(__file__).with_name("libftax_sampler.so")))
        self._library.ftax_sampler_start.restype = ctypes.c_void_p
        self._library.ftax_sampler_start.argtypes = [ctypes.c_int64]
        self._library.ftax_sampler_add.argtypes = [
            ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(_Layout), ctypes.c_uint64,
            ctypes.c_uint64,
        ]  # fmt: skip
        self._library.ftax_sampler_add_own.argtypes = [
            ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(_Layout), ctypes.c_uint64,
            ctypes.c_uint64, ctypes.POINTER(_Region), ctypes.c_uint64,
        ]  # fmt: skip
        self._library.ftax_sampler_drain.argtypes = [ctypes.c_void_p, ctypes.POINTER(_News)]
        self._library.ftax_sampler_drain.restype = None
        self._library.ftax_sampler_stop.argtypes = [ctypes.c_void_p]
        self._library.ftax_sampler_stop.restype = None
        self._handle: int | None = None
        self.period_ns = round(1e9 / rate)

    def __enter__(self) -> Self:
        self._handle = self._library.ftax_sampler_start(self.period_ns)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._library.ftax_sampler_stop(self._handle)
        self._handle = None

    def add(self, process: PythonProcess) -> int:
        """The number by which its samples name it."""
        layout = _Layout(*process.layout)
        return int(
            self._library.ftax_sampler_add(
                self._handle, process.pid, ctypes.byref(layout), process.runtime, process.code_type
            )
        )

    def add_own_thread(self, regions: Iterable[tuple[int, int, int]]) -> None:
        """Sample the thread that calls this, which has to leave the context too: by SIGPROF, in
        whose handler it reads its stack itself. ``regions`` are begin, end and number of machine
        code, which the samples name by the number.

        Raises:
            OSError: the program handles SIGPROF itself, or its memory may not be read.
            UnknownPythonError: frames of this Python are not known.
        """
        process = find_python(os.getpid())
        if process is None:
            raise UnknownPythonError("this process has no symbols of Python")
        layout, listed = _Layout(*process.layout), [_Region(*region) for region in regions]
        index = self._library.ftax_sampler_add_own(
            self._handle, threading.get_native_id(), ctypes.byref(layout), process.runtime,
            process.code_type, (_Region * len(listed))(*listed), len(listed),
        )  # fmt: skip
        if index < 0:
            raise OSError("another profiler handles SIGPROF, or memory may not be read")

    def drain(self) -> News:
        """All since the last call."""
        news = _News()
        self._library.ftax_sampler_drain(self._handle, ctypes.byref(news))
        content = ctypes.string_at(news.samples, news.sample_count * SAMPLE.itemsize)
        samples = np.frombuffer(content, dtype=SAMPLE)
        stacks = ctypes.string_at(news.stacks, 4 * news.stack_words)
        text = ctypes.string_at(news.codes, news.code_bytes)
        codes = [_parse_code(line) for line in text.decode("ascii").splitlines()]
        return News(
            samples, _parse_stacks(stacks), {code.number: code for code in codes},
            news.torn, news.lost, (news.forgotten_stacks, news.forgotten_codes),
        )  # fmt: skip


def _parse_stacks(content: bytes) -> dict[int, Stack]:
    stacks, place = {}, 0
    while place < len(content):
        number, count = struct.unpack_from("<II", content, place)
        end = place + 8 * (count + 1)
        stacks[number] = content[place + 8 : end]
        place = end
    return stacks


def _parse_code(line: str) -> Code:
    number, first, file, name, table = line.split(" ")
    return Code(int(number), int(first), _parse_text(file), _parse_text(name), bytes.fromhex(table))


def _parse_text(text: str) -> str:
    width, _, characters = text.partition(":")
    encoding = {"1": "latin-1", "2": "utf-16-le", "4": "utf-32-le"}[width]
    return bytes.fromhex(characters).decode(encoding, errors="replace")


def parse_lines(table: bytes, first_line: int) -> tuple[np.ndarray, list[int]]:
    """Where the instructions of each line begin, in bytes, and the lines (0: none), from a line
    table in the format of Python 3.11 and later."""
    starts, lines = [], []
    offset, line = 0, first_line
    for entry in _ENTRY.findall(table):
        head = entry[0]
        kind = head >> 3 & 15
        if kind in (13, 14):
            line += _parse_signed(entry[1:])
        elif 10 <= kind <= 12:
            line += kind - 10
        starts.append(offset)
        lines.append(line if kind != 15 else 0)
        offset += 2 * ((head & 7) + 1)
    return np.asarray(starts), lines


def _parse_signed(pieces: bytes) -> int:
    """A number in pieces of 6 bits, the lowest first, whose lowest bit is the sign."""
    value = 0
    for place, piece in enumerate(pieces):
        value |= (piece & 63) << 6 * place
        if not piece & 64:
            break
    return -(value >> 1) if value & 1 else value >> 1
