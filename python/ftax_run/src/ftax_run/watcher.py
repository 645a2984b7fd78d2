"""Watches a program's processes while they run: samples and records come in, windows go out, and
what was read is dropped, so that an hour takes no more memory than a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ftax_run import activities
from ftax_run.activities import ActivityReader
from ftax_run.errors import UnknownPythonError
from ftax_run.frames import Place, Places, make_table
from ftax_run.launch import list_processes, read_identity
from ftax_run.python_process import PythonProcess, find_python
from ftax_run.sampler import SAMPLE, Sampler
from ftax_run.sums import Sums
from ftax_run.window import CPP, GIL, PYTHON, WAIT, Recorded, Window, analyse

_POLL_S = 0.02
_DRAIN_EVERY = 5  # polls
_KEEP_NS = 10_000_000_000  # of samples that no window has asked for
_MOST_KINDS = 32  # of iterations that are kept apart
_TRIES = 100  # polls in which a new process may become Python


@dataclass(slots=True)
class HostTime:
    """Where the main thread of a process without a device was, in samples."""

    total: int = 0
    spent: Sums[tuple[Place, str]] = field(default_factory=Sums)  # by line and cause
    leaves: Sums[tuple[Place, Place]] = field(default_factory=Sums)
    stacks: Sums[tuple[Place, ...]] = field(default_factory=Sums)


@dataclass(slots=True)
class Process:
    """One process that was seen."""

    pid: int
    identity: tuple[int, int] | None = None
    tries: int = 0
    python: PythonProcess | None = None
    command: str = ""
    problem: str = ""
    samples: list[np.ndarray] = field(default_factory=list)
    records: list[np.ndarray] = field(default_factory=list)
    reader: ActivityReader | None = None
    host: HostTime = field(default_factory=HostTime)
    windows: list[Window] = field(default_factory=list)  # one a kind of iteration
    last_window: Recorded | None = None
    launch_rates: list[tuple[int, float]] = field(default_factory=list)  # phase, launches a second
    lost: int = 0
    first_ns: int = 0
    last_ns: int = 0


class Watcher:
    """Follows ``first`` and what it starts, until ``has_ended`` says so."""

    def __init__(self, first: int, folder: Path, sampler: Sampler) -> None:
        self._first, self._folder, self._sampler = first, folder, sampler
        self.places = Places()
        self.processes: dict[int, Process] = {}
        self._by_index: dict[int, Process] = {}
        self.torn = self.lost = self.taken = 0
        self.took_ns = 0

    def follow(self, has_ended: Callable[[], bool]) -> None:
        """Returns when the first process has ended, with all that was told."""
        count = 0
        while not has_ended():
            self._find_processes()
            if count % _DRAIN_EVERY == 0:
                self._collect()
            count += 1
            time.sleep(_POLL_S)
        self._collect(is_last=True)

    def _find_processes(self) -> None:
        for pid in list_processes(self._first):
            process = self.processes.setdefault(pid, Process(pid))
            identity = read_identity(pid)
            if identity is None:
                continue
            if identity != process.identity:  # a new one, or it has become another program
                process.identity, process.python, process.tries = identity, None, 0
            if process.python is None and process.tries < _TRIES and not process.problem:
                process.tries += 1
                self._attach(process)

    def _attach(self, process: Process) -> None:
        try:
            process.python = find_python(process.pid)
        except UnknownPythonError as error:
            process.problem = str(error)
        except PermissionError:
            process.problem = f"process {process.pid} may not be read"
        except OSError:  # it has ended, or is about to become something else
            return
        if process.python is None:
            return
        process.command = _read_command(process.pid)
        self._by_index[self._sampler.add(process.python)] = process

    def _collect(self, *, is_last: bool = False) -> None:
        news = self._sampler.drain()
        self.places.learn(news.stacks, news.codes)
        self.torn += news.torn
        self.lost = news.lost
        self.taken += len(news.samples)
        self.took_ns += int(news.samples["took_ns"].sum())
        for index in np.unique(news.samples["process"]):
            process = self._by_index[int(index)]
            process.samples.append(news.samples[news.samples["process"] == index])
        self._find_files()
        for process in self.processes.values():
            self._read_records(process, is_last=is_last)

    def _find_files(self) -> None:
        for path in self._folder.glob("*.activity"):
            pid = int(path.name.partition("-")[0])
            process = self.processes.setdefault(pid, Process(pid))
            if process.reader is None:
                process.reader = ActivityReader(path)

    def _read_records(self, process: Process, *, is_last: bool) -> None:
        if process.reader is None:
            self._book_host(process)
            return
        records = process.reader.read()
        process.problem = process.problem or process.reader.problem
        process.records.append(records)
        for phase in records[records["kind"] == activities.PHASE]:
            self._end_phase(process, phase)
        process.lost += int(records["symbol"][records["kind"] == activities.LOST].sum())
        if process.samples:
            newest = int(process.samples[-1]["time_ns"][-1])
            process.samples = [
                piece for piece in process.samples if piece["time_ns"][-1] > newest - _KEEP_NS
            ]

    def _end_phase(self, process: Process, phase: np.void) -> None:
        """Take out what belongs to the phase, and what is older."""
        start, end, kind = int(phase["start"]), int(phase["end"]), int(phase["symbol"])
        records = np.concatenate(process.records)
        inside = (records["end"] > start) & (records["start"] < end)
        process.records = [records[records["start"] >= end]]
        samples = np.concatenate([np.empty(0, SAMPLE), *process.samples])
        chosen = samples[(samples["time_ns"] >= start) & (samples["time_ns"] < end)]
        process.samples = [piece for piece in [samples[samples["time_ns"] >= end]] if len(piece)]
        assert process.reader is not None
        names = process.reader.names
        if kind != activities.NOTHING:
            rate = _count_launches(records[inside], names) / max(1, end - start) * 1e9
            process.launch_rates.append((kind, rate))
        if kind != activities.ALL:
            return
        table = make_table(process.python.version[:2]) if process.python else np.zeros(256, bool)
        recorded = Recorded(process.pid, start, end, records[inside], dict(names), chosen, table)
        window = analyse(recorded, self.places)
        if window is not None:
            process.last_window = recorded
            _add_window(process.windows, window)

    def _book_host(self, process: Process) -> None:
        """Of a program without a device, where its main thread is."""
        if not process.samples or process.python is None:
            return
        table = make_table(process.python.version[:2])
        samples = np.concatenate(process.samples)
        process.samples = []
        process.first_ns = process.first_ns or int(samples["time_ns"][0])
        process.last_ns = int(samples["time_ns"][-1])
        host = process.host
        for sample in samples[samples["thread"] == process.pid]:
            into_c = bool(table[sample["opcode"] & 255])
            sleeps = chr(sample["state"]) in "SD"
            cause = (WAIT if into_c else GIL) if sleeps else (CPP if into_c else PYTHON)
            stack = int(sample["stack"])
            line = self.places.find_users(stack)
            host.total += 1
            host.spent[line, cause] += 1
            host.leaves[line, self.places.find_leaf(stack)] += 1
            host.stacks[tuple(reversed(self.places.list_frames(stack)))] += 1


def _add_window(windows: list[Window], window: Window) -> None:
    like = next((known for known in windows if known.is_like(window)), None)
    if like is not None:
        like.add(window)
        return
    windows.append(window)
    if len(windows) > _MOST_KINDS:
        windows.remove(min(windows, key=lambda item: item.wall))


def _count_launches(records: np.ndarray, names: dict[int, str]) -> int:
    wanted = [number for number, name in names.items() if "Launch" in name]
    calls = records[(records["kind"] == activities.CALL) & np.isin(records["symbol"], wanted)]
    return len(np.unique(calls["correlation"]))


def _read_command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return " ".join(word.decode(errors="replace") for word in words if word)
