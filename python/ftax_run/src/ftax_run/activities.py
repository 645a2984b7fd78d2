"""What the watched process's driver recorded, read from the files that csrc/watch writes."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

import numpy as np

RECORD = np.dtype(
    [
        ("start", "<u8"), ("end", "<u8"), ("correlation", "<u4"), ("stream", "<u4"),
        ("symbol", "<u4"), ("kind", "<u2"), ("reserved", "<u2"),
    ]
)  # fmt: skip
KERNEL, COPY, FILL, GRAPH, CALL, PHASE, LOST = range(1, 8)
DEVICE_KINDS = (KERNEL, COPY, FILL, GRAPH)
_MOST_MARKS = 1 << 16
_BLOCK_BYTES = 1 << 20  # of a file, that is given back at once
ALL, LAUNCHES, NOTHING = 1, 2, 3  # what a phase records


class GrowingFile:
    """A file that another process appends items of one size to."""

    def __init__(self, path: Path, item_bytes: int) -> None:
        self._path, self._item_bytes = path, item_bytes
        self._offset = 0

    def read(self) -> bytes:
        """The whole items since the last call. What was read takes no room on the disk any more,
        where the file system can do that."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        whole = content[: len(content) // self._item_bytes * self._item_bytes]
        before = self._offset // _BLOCK_BYTES
        self._offset += len(whole)
        if self._offset // _BLOCK_BYTES > before:
            with suppress(OSError):
                _punch(self._path, self._offset // _BLOCK_BYTES * _BLOCK_BYTES)
        return whole


class ActivityReader:
    """Reads on in the files of one process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records = GrowingFile(path, RECORD.itemsize)
        self._names_offset = 0
        self.names: dict[int, str] = {}

    def read(self) -> np.ndarray:
        """The records since the last call, in the order in which CUPTI handed them over."""
        self._read_names()
        return np.frombuffer(self._records.read(), dtype=RECORD)

    def _read_names(self) -> None:
        path = self._path.with_suffix(".names")
        if not path.is_file():
            return
        with path.open("rb") as file:
            file.seek(self._names_offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._names_offset += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            number, _, name = line.partition(" ")
            self.names[int(number)] = name

    @property
    def problem(self) -> str:
        """Why nothing or not all is recorded; "" where all is well."""
        marks = ("problem: ", "note: ")
        found = (name for name in self.names.values() if name.startswith(marks))
        return next(found, "").partition(": ")[2]


def _punch(path: Path, count: int) -> None:
    """Gives the first bytes of a file back to the file system; its length stays."""
    keep_size, punch_hole = 1, 2
    library = ctypes.CDLL(None, use_errno=True)
    library.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    file = os.open(path, os.O_RDWR)
    try:
        library.fallocate(file, keep_size | punch_hole, 0, count)
    finally:
        os.close(file)


class MarkReader:
    """Reads where the program says that its iterations begin and end (`ftax_run.iteration`)."""

    def __init__(self, path: Path) -> None:
        self._records = GrowingFile(path, 24)
        self._spans = np.empty((0, 3), dtype=np.int64)

    def read(self) -> np.ndarray:
        """Start, end and thread of each iteration that came since the last call; times in ns."""
        spans = np.frombuffer(self._records.read(), dtype="<u8").astype(np.int64).reshape(-1, 3)
        self._spans = np.concatenate([self._spans, spans])[-_MOST_MARKS:]
        return spans

    @property
    def last_end(self) -> int:
        """When the last iteration that was read ended."""
        return int(self._spans[-1, 1]) if len(self._spans) else 0

    def list_starts(self, start: int, end: int) -> np.ndarray:
        """When those between two times begin."""
        starts = self._spans[:, 0]
        chosen: np.ndarray = starts[(starts >= start) & (starts < end)]
        return chosen

    def find_inside(self, times: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """Of each time of a thread whether it lies in an iteration of that thread."""
        place = np.searchsorted(self._spans[:, 0], times, side="right") - 1
        inside: np.ndarray = place >= 0
        spans = self._spans[place[inside]]
        inside[inside] = (times[inside] < spans[:, 1]) & (threads[inside] == spans[:, 2])
        return inside
