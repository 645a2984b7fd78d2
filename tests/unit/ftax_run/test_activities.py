"""The files that csrc/watch writes, read while they grow."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from ftax_run.activities import CALL, KERNEL, RECORD, ActivityReader, MarkReader


def pack(start: int, end: int, kind: int, symbol: int) -> bytes:
    # As `ftax::watch::Record` (csrc/watch/activity_file.h).
    return struct.pack("<QQIIIHH", start, end, 3, 7, symbol, kind, 0)


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def test_a_record_that_is_half_there_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / "12-34.activity"
    first, second = pack(1, 5, KERNEL, 1), pack(6, 9, CALL, 2)
    assert len(first) == RECORD.itemsize
    append(path, first + second[:11])
    reader = ActivityReader(path)
    (record,) = reader.read()
    assert (record["start"], record["end"], record["correlation"]) == (1, 5, 3)
    assert (record["stream"], record["symbol"], record["kind"]) == (7, 1, KERNEL)
    assert not len(reader.read())
    append(path, second[11:])
    assert reader.read()["kind"].tolist() == [CALL]


def test_a_name_that_is_half_there_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / "12-34.activity"
    append(path, b"")
    append(path.with_suffix(".names"), b"1 void f(int)\n2 cudaLau")
    reader = ActivityReader(path)
    reader.read()
    assert reader.names == {1: "void f(int)"}
    assert reader.problem == ""
    append(path.with_suffix(".names"), b"nchKernel\n3 note: a call is not recorded\n")
    reader.read()
    assert reader.names[2] == "cudaLaunchKernel"
    assert reader.problem == "a call is not recorded"


def test_what_was_read_takes_no_room(tmp_path: Path) -> None:
    path = tmp_path / "12-34.activity"
    reader = ActivityReader(path)
    append(path, b"")
    count = (4 << 20) // RECORD.itemsize
    for turn in range(3):
        append(path, pack(turn + 1, turn + 2, KERNEL, 1) * count)
        assert len(reader.read()) == count
    status = path.stat()
    assert status.st_size == 3 * count * RECORD.itemsize
    assert status.st_blocks * 512 <= 2 << 20


def test_marks_that_were_read_take_no_room(tmp_path: Path) -> None:
    path = tmp_path / "12.marks"
    append(path, struct.pack("<QQQ", 1, 2, 3) * (3 << 16))
    assert len(MarkReader(path).read()) == 3 << 16
    assert path.stat().st_blocks * 512 <= 1 << 20


def test_marks_are_of_threads(tmp_path: Path) -> None:
    path = tmp_path / "12.marks"
    append(path, struct.pack("<QQQQQQQ", 10, 14, 7, 20, 24, 8, 30))
    reader = MarkReader(path)
    assert reader.read().tolist() == [[10, 14, 7], [20, 24, 8]]
    append(path, struct.pack("<QQ", 34, 7))
    assert reader.read().tolist() == [[30, 34, 7]]
    assert reader.list_starts(10, 30).tolist() == [10, 20]
    assert reader.last_end == 34
    times = np.array([9, 10, 13, 14, 22, 24, 33, 40])
    sevens = np.full(len(times), 7)
    assert times[reader.find_inside(times, sevens)].tolist() == [10, 13, 33]
    assert times[reader.find_inside(times, sevens + 1)].tolist() == [22]
