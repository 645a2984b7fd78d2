"""Watches a program's processes while they run: samples and records come in, windows are added up,
and what was read is dropped, so that an hour takes no more memory than a minute."""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ftax_run import activities
from ftax_run.account import Account, HostTime, ProcessAccount
from ftax_run.activities import ActivityReader, MarkReader
from ftax_run.causes import STOPPED, WAIT, Others, group_alike, name_cause, weigh
from ftax_run.errors import UnknownPythonError
from ftax_run.frames import REST, Place, Places, make_table
from ftax_run.launch import list_processes, read_identity, uses_gpu
from ftax_run.python_process import PythonProcess, explain_refusal, find_python
from ftax_run.sampler import SAMPLE, Sampler
from ftax_run.sums import Sums
from ftax_run.timeline import draw_iterations
from ftax_run.window import LAUNCH, Recorded, Window, analyse

_POLL_S = 0.02
_DRAIN_EVERY = 5  # polls
_ASK_EVERY = 100  # polls, whether a process uses a GPU that nothing is recorded of; 2 s
_KEEP_NS = 3_000_000_000  # of samples, for the next window
_WAIT_NS = 10_000_000_000  # of samples, for an iteration that has not ended
_WARM_UP_NS = 2e9  # of what was recorded of one kind of iteration, at most
_MOST_GAP_NS = 100_000_000  # that one sample stands for
_TRIES = 100  # polls in which a new process may become Python
_MOST_WAITING = 1 << 20  # samples of an iteration that has not ended
_MOST_KINDS = 32  # of iterations that are kept apart
_MOST_ENDED = 200  # processes without a device
_MOST_KEYS = 1000  # of stacks and lines that are kept apart
_UNRECORDED = (
    "process {pid} uses a GPU, and its driver did not load what records it: another profiler "
    "(nsys, ncu) is in its place, or the process was started without the environment of its parent"
)


@dataclass(slots=True)
class Process:
    """One process that was seen, and what of it is not added up yet."""

    account: ProcessAccount
    identity: tuple[int, ...] | None = None
    tries: int = 0
    python: PythonProcess | None = None
    samples: list[np.ndarray] = field(default_factory=list)  # of a process without a device
    records: list[np.ndarray] = field(default_factory=list)
    reader: ActivityReader | None = None
    last_window: Recorded | None = None
    marks: MarkReader | None = None
    last_ns: dict[int, int] = field(default_factory=dict)  # of samples, by thread
    indices: list[int] = field(default_factory=list)  # by which the sampler names it
    uses_gpu: bool = False  # which was asked while no driver had written anything

    @property
    def into_c(self) -> np.ndarray:
        """Of each bytecode of its Python whether C may run there."""
        if self.python is None:
            return np.zeros(256, dtype=bool)
        return make_table(self.python.version[:2])


class Watcher:
    """Follows the process ``first`` and what it starts; ``folder`` is where drivers write."""

    def __init__(self, first: int, folder: Path, sampler: Sampler) -> None:
        self._first, self._folder, self._sampler = first, folder, sampler
        self.places = Places()
        self._processes: dict[int, Process] = {}
        self._recent: list[np.ndarray] = []  # samples of all processes
        self._forgotten = (0, 0)
        self._taken = self._torn = self._lost = self._took_ns = 0

    def follow(self, has_ended: Callable[[], bool]) -> None:
        """Returns when the first process has ended, with all that was told."""
        count = 0
        while not has_ended():
            drains = count % _DRAIN_EVERY == 0
            self._find_processes(by_all_threads=drains)
            if drains:
                self._collect()
            if count % _ASK_EVERY == _ASK_EVERY - 1:
                self._find_unrecorded()
                give_back_memory()
            count += 1
            time.sleep(_POLL_S)
        self._collect()

    def make_account(self, command: list[str], exit_code: int) -> Account:
        """What was found; of processes that ran no Python and no device there is nothing."""
        # A fork has the device open that its parent had, and cannot use it.
        known = {item.identity for item in self._processes.values() if item.reader is not None}
        for process in self._processes.values():
            for window in process.account.windows:
                window.place_waits()
                if process.account.lost:  # which leaves holes
                    window.gaps, window.blocked = window.gaps + window.blocked, 0.0
            if process.last_window is not None:
                process.account.timeline = draw_iterations(process.last_window, self.places)
            if process.uses_gpu and not process.account.problem and process.identity not in known:
                process.account.problem = _UNRECORDED.format(pid=process.account.pid)
                known.add(process.identity)
        found = [
            process.account
            for process in self._processes.values()
            if process.python or process.account.windows or process.account.problem
        ]
        return Account(
            command, exit_code, self._taken, self._took_ns / max(1, self._taken) / 1e3, self._torn,
            self._lost, found,
        )  # fmt: skip

    def _find_processes(self, *, by_all_threads: bool) -> None:
        """Most are started by main threads: others are looked for less often, and so is whether a
        process that runs Python has become something else."""
        found = set(list_processes(self._first, by_all_threads=by_all_threads))
        for pid in found:
            process = self._processes.setdefault(pid, Process(ProcessAccount(pid)))
            if process.python and not by_all_threads:
                continue
            try:
                self._look_at(process)
            except UnknownPythonError as error:
                process.account.problem = str(error)
            except PermissionError:
                process.account.problem = process.account.problem or explain_refusal(pid)
            except OSError:  # it has ended, or is about to become something else
                continue
        if by_all_threads:
            self._forget_ended(found)

    def _forget_ended(self, alive: set[int]) -> None:
        """Those that ran neither Python nor a device; of many others those that were sampled
        least."""
        ended = [item for pid, item in self._processes.items() if pid not in alive]
        without = [item for item in ended if not item.reader]
        known = [item for item in without
                 if item.python or item.account.problem or item.uses_gpu]  # fmt: skip
        known.sort(key=lambda item: -item.account.host.total)
        kept = {item.account.pid for item in known[:_MOST_ENDED]}
        for process in without:
            if (pid := process.account.pid) not in kept:
                del self._processes[pid]
                (self._folder / f"{pid}.marks").unlink(missing_ok=True)

    def _find_unrecorded(self) -> None:
        """Those whose drivers have loaded nothing of ours, or do so just now: the end tells."""
        for pid, process in self._processes.items():
            if process.reader is None and not process.uses_gpu:
                process.uses_gpu = uses_gpu(pid)

    def _look_at(self, process: Process) -> None:
        """Sample it as soon as it is Python. What says now that it cannot be is asked again: its
        libraries may just be loaded, and their memory be that of a file so far."""
        account = process.account
        identity = read_identity(account.pid)
        if identity is None:
            return
        if identity != process.identity:  # a new one, or it has become another program
            process.identity, process.python, process.tries = identity, None, 0
            account.problem, process.uses_gpu = "", False
        if process.python or process.tries == _TRIES:
            return
        process.tries += 1
        process.python = find_python(account.pid)
        if process.python is not None:
            account.problem = ""
            account.command = _read_command(account.pid)
            process.indices.append(self._sampler.add(process.python))

    def _collect(self) -> None:
        news = self._sampler.drain()
        self.places.learn(news.stacks, news.codes)
        if news.forgotten != self._forgotten:
            self._forgotten = news.forgotten
            self.places.forget(*news.forgotten, self._list_waiting(news.samples))
        self._torn += news.torn
        self._lost += news.lost
        self._taken += len(news.samples)
        self._took_ns += int(news.samples["took_ns"].sum())
        if len(news.samples):
            oldest = self._find_oldest(int(news.samples["time_ns"][-1]))
            kept = (piece for piece in self._recent if piece["time_ns"][-1] > oldest)
            self._recent = [*kept, news.samples]
        for name in self._list_files():
            path, pid = self._folder / name, int(re.split(r"[-.]", name)[0])
            process = self._processes.setdefault(pid, Process(ProcessAccount(pid)))
            if path.suffix == ".activity" and process.reader is None:
                process.reader = ActivityReader(path)
            elif path.suffix == ".marks" and process.marks is None:
                process.marks = MarkReader(path)
        for process in self._processes.values():
            if process.reader is not None:
                self._read_records(process, process.reader)
            elif process.indices:
                process.samples.append(_select(news.samples, process))
                self._book_host(process)

    def _list_files(self) -> list[str]:
        with suppress(FileNotFoundError):  # the program has emptied its TMPDIR
            return os.listdir(self._folder)
        return []

    def _find_oldest(self, newest: int) -> int:
        """The time before which no sample is asked for any more."""
        waiting = [int(process.samples[0]["time_ns"][0]) for process in self._processes.values()
                   if process.samples and len(process.samples[0])]  # fmt: skip
        return max(newest - _WAIT_NS, min([newest - _KEEP_NS, *waiting]))

    def _list_waiting(self, samples: np.ndarray) -> list[int]:
        """The stacks of samples that are not added up yet."""
        pieces = [samples, *self._recent]
        for process in self._processes.values():
            pieces += process.samples
            if process.last_window is not None:
                pieces.append(process.last_window.samples)
        waiting: list[int] = np.unique(np.concatenate([p["stack"] for p in pieces])).tolist()
        return waiting

    def _read_records(self, process: Process, reader: ActivityReader) -> None:
        records = reader.read()
        account = process.account
        account.problem = account.problem or reader.problem
        process.records.append(records)
        if process.marks is not None:
            account.add_marks(process.marks.read())
        for phase in records[records["kind"] == activities.PHASE]:
            self._end_phase(process, reader, phase)
        account.lost += int(records["symbol"][records["kind"] == activities.LOST].sum())

    def _end_phase(self, process: Process, reader: ActivityReader, phase: np.void) -> None:
        """Take out what belongs to the phase, and what is older."""
        start, end, kind = int(phase["start"]), int(phase["end"]), int(phase["symbol"])
        records = np.concatenate(process.records)
        process.records = [records[records["start"] >= end]]
        records = records[(records["end"] > start) & (records["start"] < end)]
        account = process.account
        if kind == activities.LAUNCHES:
            rate = _count_launches(records, reader.names) / max(1, end - start) * 1e9
            account.rates.append(rate)
        elif kind == activities.ALL:
            account.recorded += end - start
            marks = process.marks.list_starts(start, end) if process.marks else np.empty(0, int)
            samples = self._list_samples(start, end)
            recorded = Recorded(
                account.pid, start, end, records, dict(reader.names), _select(samples, process),
                process.into_c, marks, samples,
            )  # fmt: skip
            window = analyse(recorded, self.places)
            if window is not None:
                process.last_window = recorded
                add_window(account, window)

    def _list_samples(self, start: int, end: int) -> np.ndarray:
        """Those of all processes between two times."""
        pieces = [
            piece for piece in self._recent
            if piece["time_ns"][-1] >= start and piece["time_ns"][0] < end
        ]  # fmt: skip
        samples = np.concatenate([np.empty(0, SAMPLE), *pieces])
        chosen: np.ndarray = samples[(samples["time_ns"] >= start) & (samples["time_ns"] < end)]
        return chosen

    def _book_host(self, process: Process) -> None:
        """Of a program without a device, where its main thread is; where it marks iterations, the
        threads that are in one."""
        samples = np.concatenate(process.samples)
        process.samples = []
        account, marks = process.account, process.marks
        spans = np.empty((0, 3), dtype=np.int64) if marks is None else marks.read()
        if len(spans) and not account.marked:
            account.host = HostTime()  # what came before the first iteration is left out
        account.add_marks(spans)
        if marks is not None and account.marked:
            waits = samples["time_ns"] >= marks.last_end
            process.samples = [samples[waits][-_MOST_WAITING:]]
            samples = samples[~waits]
        weights = weigh(samples, process.last_ns, max(_MOST_GAP_NS, 3 * self._sampler.period_ns))
        if marks is not None and account.marked:
            account.host.wall += float((spans[:, 1] - spans[:, 0]).sum())
            chosen = marks.find_inside(samples["time_ns"], samples["thread"])
        else:
            chosen = (samples["thread"] == account.pid) & ~np.isin(samples["state"], STOPPED)
            account.host.wall += float(weights[chosen].sum())
        if chosen.any():
            near = self._list_samples(int(samples["time_ns"][0]), int(samples["time_ns"][-1]) + 1)
            self._add_host(process, samples[chosen], weights[chosen], Others(near, self.places))

    def _add_host(
        self, process: Process, samples: np.ndarray, weights: np.ndarray, others: Others
    ) -> None:
        host, into_c = process.account.host, process.into_c
        host.total += len(samples)
        for sample, weight in group_alike(samples, weights):
            cause = name_cause(sample, into_c)
            stacks = others.list_late(sample, cause)
            if cause == WAIT and stacks != [int(sample["stack"])]:
                host.late += weight
            for stack in stacks:
                line, share = self.places.find_users(stack), weight / len(stacks)
                host.spent[line, cause] += share
                host.leaves[line, self.places.find_leaf(stack)] += share
                host.stacks[self.places.list_outer(stack)] += share
        _keep_largest((host.spent,), host.leaves, host.stacks)


def give_back_memory() -> None:
    """What was freed goes back to the system. Without, glibc keeps what lies between things that
    stay, which is more with each peak. Other C libraries have no such call."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _select(samples: np.ndarray, process: Process) -> np.ndarray:
    """Those of one process."""
    chosen: np.ndarray = samples[np.isin(samples["process"], process.indices)]
    return chosen


def add_window(account: ProcessAccount, window: Window) -> None:
    """To the iterations that do the same work. Those of before were warm-up where this one is much
    faster, as long as there are few."""
    account.rest.add(window.beside)
    window.beside = Sums()
    windows = account.windows
    like = next((known for known in windows if known.is_like(window)), None)
    if like is not None and like.wall < _WARM_UP_NS and window.is_faster(like):
        account.left_out += like.count
        account.rest.add(like.leaves)
        windows.remove(like)
        like = None
    account.rest.keep_largest(_MOST_KEYS, lambda _: (REST, REST))
    if like is None:
        windows.append(window)
        if len(windows) > _MOST_KINDS:
            least = min(windows, key=lambda item: item.wall)
            account.left_out += least.count
            account.rest.add(least.leaves)
            windows.remove(least)
        return
    like.add(window)
    _keep_largest((like.idle, like.launched), like.leaves, like.stacks)
    of_waits = (sums for waits in like.waits.values() for sums in (waits.within, waits.near))
    for counts in (like.syncs, like.sync_idle, *of_waits):
        counts.keep_largest(_MOST_KEYS, lambda _: REST)


def _keep_largest(
    causes: Iterable[Sums[tuple[Place, str]]],
    leaves: Sums[tuple[Place, Place]],
    stacks: Sums[tuple[Place, ...]],
) -> None:
    """A program that makes new code all the time has new lines for ever."""
    for sums in causes:
        sums.keep_largest(_MOST_KEYS, lambda key: (REST, key[1]))
    leaves.keep_largest(_MOST_KEYS, lambda _: (REST, REST))
    stacks.keep_largest(_MOST_KEYS, lambda _: (REST,))


def _count_launches(records: np.ndarray, names: dict[int, str]) -> int:
    wanted = [number for number, name in names.items() if LAUNCH in name]
    calls = records[(records["kind"] == activities.CALL) & np.isin(records["symbol"], wanted)]
    return len(np.unique(calls["correlation"]))


def _read_command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return " ".join(word.decode(errors="replace") for word in words if word)[:200]
