"""Results files under full disks, writers at the same time, and writers that are killed."""

import fcntl
import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from typing import ClassVar

import pytest

from ftax.errors import ResultsError
from ftax.records import store
from ftax.records.kinds import KINDS, Kind
from ftax.records.record import Count, Record
from ftax.records.store import append_record, read_records


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Record):
    """The smallest thing that can be stored."""

    kind: ClassVar[str] = "test-line"

    number: Count
    text: str = ""


KINDS[Line.kind] = Kind(record=f"{__name__}:Line")

# Writers are forked: they inherit a loaded torch that they never call.
fork = multiprocessing.get_context("fork")
ignore_fork_warning = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.jsonl"


def refuse_write(descriptor, line):
    raise OSError(28, "No space left on device")


def write_a_piece(descriptor, line):
    return real_write(descriptor, line[:10])


def refuse_sync(descriptor):
    raise OSError(5, "Input/output error")


real_write = os.write


def interrupt(*_arguments):
    raise KeyboardInterrupt


@pytest.mark.parametrize("before", [None, "empty", "whole", "cut"])
@pytest.mark.parametrize(
    ("name", "fault", "raised"),
    [
        ("write", refuse_write, ResultsError),
        ("write", write_a_piece, ResultsError),
        ("fsync", refuse_sync, ResultsError),
        ("write", interrupt, KeyboardInterrupt),
        ("fsync", interrupt, KeyboardInterrupt),
    ],
)
def test_a_write_that_fails_or_is_interrupted_leaves_what_was_there(
    path, monkeypatch, name, fault, raised, before
):
    """A file that was made for it stayed, empty."""
    if before is not None:
        append_record(path, Line(number=0))
        os.truncate(path, {"empty": 0, "whole": path.stat().st_size, "cut": 40}[before])
    content = [found.read_bytes() for found in path.parent.iterdir()]
    with monkeypatch.context() as patch:
        patch.setattr(store.os, name, fault)
        with pytest.raises(raised) as caught:
            append_record(path, Line(number=1))
    assert raised is KeyboardInterrupt or "choose a path that can be written" in str(caught.value)
    assert [found.read_bytes() for found in path.parent.iterdir()] == content


def test_a_link_to_nothing_stays_one_where_its_file_cannot_be_written(path, monkeypatch):
    target = path.with_name("target")
    path.symlink_to(target)
    with monkeypatch.context() as patch:
        patch.setattr(store.os, "write", refuse_write)
        with pytest.raises(ResultsError):
            append_record(path, Line(number=1))
    assert path.is_symlink() and not target.exists()
    append_record(path, Line(number=2))
    assert read_records(target).records == (Line(number=2),)


@ignore_fork_warning
def test_a_writer_that_waited_for_one_that_failed_loses_nothing(path, monkeypatch):
    """The first makes the file, fails and removes it, while the second has it open."""
    writer = fork.Process(target=append_record, args=(path, Line(number=2)))

    def wait_and_fail(descriptor, line):
        writer.start()
        time.sleep(0.3)  # until it waits for the lock
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store.os, "write", wait_and_fail)
        patch.setattr(writer, "_target", write_really)
        with pytest.raises(ResultsError):
            append_record(path, Line(number=1))
    writer.join()
    assert read_records(path).records == (Line(number=2),)


def write_really(path, line):
    store.os.write = real_write  # in the forked child only
    append_record(path, line)


def write_many(path, start, count):
    for number in range(start, start + count):
        append_record(path, Line(number=number, text="x" * 3000))


@ignore_fork_warning
def test_writers_at_the_same_time_lose_and_mix_nothing(path):
    writers = [fork.Process(target=write_many, args=(path, start, 50)) for start in (0, 1000)]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        if path.exists() and path.stat().st_size:
            records = read_records(path).records  # a reader never sees half a line
            assert len(records) >= seen
            seen = len(records)
    for writer in writers:
        writer.join()
    numbers = [line.number for line in read_records(path).records]
    assert sorted(numbers) == [*range(50), *range(1000, 1050)]
    assert [number for number in numbers if number < 1000] == [*range(50)]


@ignore_fork_warning
def test_a_writer_waits_for_the_lock(path):
    path.touch()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        writer = fork.Process(target=write_many, args=(path, 0, 1))
        writer.start()
        time.sleep(0.2)
        assert path.stat().st_size == 0
        fcntl.flock(file, fcntl.LOCK_UN)
    writer.join()
    assert read_records(path).records[0].number == 0


def die_in_the_middle_of_a_write(path, bytes_written):
    def write_and_die(descriptor, line):
        real_write(descriptor, line[:bytes_written])
        os.kill(os.getpid(), signal.SIGKILL)

    store.os.write = write_and_die  # in the forked child only
    append_record(path, Line(number=1))


@ignore_fork_warning
@pytest.mark.parametrize("bytes_written", [0, 1, 40])
def test_a_killed_writer_leaves_the_file_usable(path, bytes_written):
    append_record(path, Line(number=0))
    writer = fork.Process(target=die_in_the_middle_of_a_write, args=(path, bytes_written))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    append_record(path, Line(number=2))
    result = read_records(path, skip_bad=True)
    assert result.records == (Line(number=0), Line(number=2))
    assert len(result.problems) == (bytes_written > 0)


@ignore_fork_warning
def test_writers_killed_at_any_moment_cost_at_most_the_line_they_were_writing(path):
    append_record(path, Line(number=0))
    for turn in range(1, 6):
        writer = fork.Process(target=write_many, args=(path, turn * 10**6, 10**6))
        writer.start()
        size = path.stat().st_size
        while path.stat().st_size == size:
            time.sleep(0.001)
        time.sleep(0.003 * turn)
        writer.kill()
        writer.join()
    append_record(path, Line(number=1))
    result = read_records(path, skip_bad=True)
    assert len(result.problems) <= 5
    numbers = [line.number for line in result.records]
    assert numbers[0] == 0
    assert numbers[-1] == 1
    for turn in range(1, 6):
        written = [number for number in numbers if number // 10**6 == turn]
        assert written == [*range(turn * 10**6, turn * 10**6 + len(written))]
        assert written
