"""Where a step makes a call: the module that is running, and the line of Python outside of torch.

The line is known by its text. Its file is named from the folder of the project, or from that of the
installed packages, so that a baseline is the same on every machine.
"""

from __future__ import annotations

import linecache
import re
import sys
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ftax.steps.outputs import call_model
from ftax.steps.train import train
from ftax.tape.waits import is_own_line, shorten

_MOST_CHARACTERS = 100  # of a line's text
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # of one of several alike layers


class Place(NamedTuple):
    """``where`` as a fact has it, and ``line``, "model.py:12"; "" for both where there is none."""

    where: str = ""
    line: str = ""


class Places:
    """Names lines from ``root``, the folder of the project."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._files: dict[str, str] = {}

    def find(self, frame: FrameType | None, module: str = "") -> Place:
        """The innermost line outside of torch and ftax that led to ``frame``, below where the step
        is called; ``module`` is the path of the one that is running."""
        inside = f"in {_NUMBER.sub('*', module)}" if module else ""
        while frame is not None and frame.f_code is not call_model.__code__:
            if frame.f_code.co_filename == train.__code__.co_filename:
                return Place(f"{inside} by ftax.train".lstrip())
            if is_own_line(frame):
                return self._name(frame, inside)
            frame = frame.f_back
        return Place(inside)

    def _name(self, frame: FrameType, inside: str) -> Place:
        code = frame.f_code
        place = self.name_line(code.co_filename, frame.f_lineno, code.co_qualname)
        return Place(f"{inside} {place.where}".lstrip(), place.line)

    def name_line(self, path: str, number: int, function: str) -> Place:
        """The place of a line of a file."""
        file = self.name_file(path)
        text = " ".join(linecache.getline(path, number).split())[:_MOST_CHARACTERS]
        where = f"at {file} in {function}{f': {text}' if text else ''}"
        return Place(where, f"{file}:{number}")

    def name_file(self, file: str) -> str:
        """From the project's folder, or within the packages; without folders elsewhere."""
        if file not in self._files:
            linecache.checkcache(file)  # it may have changed since another step was counted
            self._files[file] = self._choose_name(file)
        return self._files[file]

    def _choose_name(self, file: str) -> str:
        short = shorten(file)
        path = Path(file)
        if short == path.name and path.is_absolute() and path.is_relative_to(self._root):
            return path.relative_to(self._root).as_posix()
        return short


class LineTimes:
    """When each line of a step began, by the clock of traces: so what a trace has is placed."""

    def __init__(self, places: Places) -> None:
        self._places, self._module = places, ""
        self._known: dict[tuple[CodeType, int, str], Place] = {}
        self._times_ns: list[int] = []
        self._lines: list[tuple[Place, bool]] = []  # whether a backward pass ran from there

    def enter(self, module: str) -> None:
        """From now on it is the ``module`` of this path that runs, called or gone on."""
        self._module = module
        self._note(sys._getframe(1))

    def watch(self, call: Callable[[], Any]) -> Any:
        """``call()``, line by line; a debugger is told of no line meanwhile."""
        before = sys.gettrace()
        sys.settrace(self._see)
        try:
            return call_model(call)
        finally:
            sys.settrace(before)

    def find(self, time_ns: int, *, in_other_thread: bool = False) -> Place:
        """Where the step was. Of another thread that is known while it runs a backward pass, for
        which the line waits that began it."""
        index = bisect_right(self._times_ns, time_ns) - 1
        if index < 0:
            return Place()
        place, is_backward = self._lines[index]
        return place if is_backward or not in_other_thread else Place()

    def _see(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "return":
            self._note(frame.f_back)
        elif is_own_line(frame):
            self._note(frame)
        else:
            if frame.f_code.co_name == "_engine_run_backward":
                self._note(frame, is_backward=True)
            return None  # of its lines nothing is to be known
        return self._see

    def _note(self, frame: FrameType | None, *, is_backward: bool = False) -> None:
        line = self._find(frame), is_backward
        if not self._lines or line != self._lines[-1]:
            self._times_ns.append(time.monotonic_ns())
            self._lines.append(line)

    def _find(self, frame: FrameType | None) -> Place:
        if frame is None or not is_own_line(frame):
            return self._places.find(frame, self._module)
        key = (frame.f_code, frame.f_lineno, self._module)
        if key not in self._known:
            self._known[key] = self._places.find(frame, self._module)
        return self._known[key]
