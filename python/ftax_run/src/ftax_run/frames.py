"""What a frame of the program is: whose code, which line, and whether it is in a call into C."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from struct import iter_unpack

import numpy as np

from ftax_run.sampler import Code, Stack

# Bytecodes from which code in C may run for long: calls, and operators of objects such as tensors.
# By version, as they lie in memory, those that Python has specialised included.
_INTO_C: dict[tuple[int, int], tuple[int, ...]] = {
    (3, 11): (
        3, 11, 12, 15, 17, 22, 25, 26, 39, 49, 52, 53, 60, 61, 64, 66, 67, 68, 72, 73, 76, 80, 81,
        92, 93, 95, 106, 107, 108, 113, 118, 122, 123, 142, 155, 162, 164, 166, 168, 171,
    ),
    (3, 12): (
        11, 12, 15, 25, 26, 27, 29, 34, 38, 39, 40, 44, 45, 46, 49, 52, 53, 60, 61, 68, 92, 93, 95,
        106, 107, 108, 118, 122, 123, 142, 155, 162, 164, 171, 241, 244,
    ),
    (3, 13): (
        1, 2, 4, 5, 9, 14, 15, 19, 38, 39, 40, 41, 42, 43, 44, 45, 53, 54, 57, 58, 59, 68, 72, 75,
        81, 82, 104, 108, 117, 165, 166, 167, 168, 172, 173, 174, 175, 176, 244, 245, 246,
    ),
    (3, 14): (
        1, 4, 8, 12, 13, 16, 37, 38, 39, 40, 41, 42, 43, 44, 52, 55, 56, 57, 66, 70, 73, 79, 80,
        106, 110, 119, 146, 147, 148, 149, 152, 156, 157, 158, 159, 160, 250, 251, 252,
    ),
}  # fmt: skip
_LIBRARY = re.compile(
    r"/(site|dist)-packages/|/lib/python3\.\d+/|/torchinductor_|^<frozen |^<string>$"
)
_PACKAGE = re.compile(r"/(?:site|dist)-packages/[^/]+|^<string>$")
_COMMAND = re.compile(r"/s?bin/[^/.]+$")  # a script that only calls a package's function
_MOST_FRAMES = 200  # of a stack in a flame graph
UNKNOWN = ("?", 0, "?")
REST = ("other lines", 0, "")  # of those that are too many to be kept apart
_OURS = re.compile(r"/ftax-run-[^/]+/(sitecustomize|iteration)\.py$")  # of --iteration
_SHIMS = ("<shim>", "__init__")  # files of frames that Python puts between a class and its __init__


def make_table(version: tuple[int, int]) -> np.ndarray:
    """Of each of 256 bytecodes, whether a frame that stands there may be in C."""
    table = np.zeros(256, dtype=bool)
    table[list(_INTO_C[version])] = True
    return table


def is_users(file: str) -> bool:
    """Whether code is of the program, and neither of Python nor of an installed package."""
    return _LIBRARY.search(file) is None


Place = tuple[str, int, str]  # file, line, function


class Places:
    """Where stacks stand: the line of the user, and what below it runs; each looked up once."""

    def __init__(self) -> None:
        self._codes: dict[int, Code] = {}
        self._stacks: dict[int, Stack] = {}
        self._lines: dict[tuple[int, int], Place] = {}
        self._frames: dict[int, tuple[Place, ...]] = {}
        self._users: dict[int, Place] = {}
        self._same: dict[Place, Place] = {}  # so that equal ones are one object

    def learn(self, stacks: Mapping[int, Stack], codes: Mapping[int, Code]) -> None:
        """What a sampler had to tell."""
        self._stacks.update(stacks)
        self._codes.update(codes)

    def forget(self, last_stack: int, last_code: int, waiting: Iterable[int]) -> None:
        """Drop what has no higher numbers than these, but for stacks of samples that wait."""
        kept = {number: self.list_frames(number) for number in waiting}
        self._same = {place: place for place in self._lines.values()}
        self._stacks = {key: item for key, item in self._stacks.items() if key > last_stack}
        self._frames = {key: item for key, item in self._frames.items() if key > last_stack} | kept
        self._users = {key: item for key, item in self._users.items() if key > last_stack}
        self._codes = {key: item for key, item in self._codes.items() if key > last_code}
        self._lines = {key: item for key, item in self._lines.items() if key[0] > last_code}

    def find_users(self, stack: int) -> Place:
        """The innermost line of the program itself; where it is all in a package, of that."""
        if stack not in self._users:
            self._users[stack] = _find_own(self.list_frames(stack))
        return self._users[stack]

    def find_leaf(self, stack: int) -> Place:
        """The innermost line."""
        return next(iter(self.list_frames(stack)), UNKNOWN)

    def list_outer(self, stack: int) -> tuple[Place, ...]:
        """From the outermost; of a deep recursion without the middle."""
        frames = tuple(reversed(self.list_frames(stack)))
        half = _MOST_FRAMES // 2
        return frames if len(frames) <= _MOST_FRAMES else (*frames[:half], REST, *frames[-half:])

    def list_frames(self, stack: int) -> tuple[Place, ...]:
        """From the innermost."""
        if stack not in self._frames:
            frames = (self._find(*frame) for frame in iter_unpack("<II", self._stacks[stack]))
            self._frames[stack] = tuple(
                frame for frame in frames if frame[0] not in _SHIMS and not _OURS.search(frame[0])
            )
        return self._frames[stack]

    def _find(self, code: int, offset: int) -> Place:
        key = (code, offset)
        if key not in self._lines:
            known = self._codes[code]
            place = (known.file, known.find_line(offset), known.name)
            self._lines[key] = self._same.setdefault(place, place)
        return self._lines[key]


def _find_own(frames: tuple[Place, ...]) -> Place:
    """The innermost of the user's, from the innermost. What is started by `-m`, `-c` or a package's
    command has none: then of the package, or of the code, that the outermost is of."""
    command = None
    for frame in frames:
        if is_users(frame[0]):
            if not _COMMAND.search(frame[0]):
                return frame
            command = command or frame
    packages = (_PACKAGE.search(file) for file, _, _ in reversed(frames))
    if outermost := next(filter(None, packages), None):
        package = outermost.group()
        return next(frame for frame in frames if package in frame[0])
    return command or (frames[-1] if frames else UNKNOWN)


def name_place(place: Place) -> str:
    """In short: "train.py:41 step"; of a library with the folder that it lies in."""
    file, line, name = place
    if place in (UNKNOWN, REST):
        return file
    parts = Path(file).parts
    return f"{'/'.join(parts[-1 if is_users(file) else -2 :])}:{line} {name.rpartition('.')[2]}"
