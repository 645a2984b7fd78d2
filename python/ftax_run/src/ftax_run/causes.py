"""What a thread does at a sample, and who was late where it waits.

A thread that waits in Python's queues and locks, or in multiprocessing, waits for another thread or
process of the program; one that waits for the GIL, for a thread of its process. Then what those ran
meanwhile was late.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from ftax_run.frames import Places, is_users

PYTHON, CPP, GIL, SYNC, WAIT, COPY, BLOCKED, GAP, UNSEEN = (
    "Python", "C++ below Python", "waiting for the GIL", "waiting in a synchronisation",
    "waiting for input or another thread", "copies", "launched work that waits",
    "gaps between kernels", "not sampled",
)  # fmt: skip
CAUSES = (PYTHON, CPP, GIL, SYNC, WAIT, COPY, BLOCKED, GAP, UNSEEN)
OF_THE_DEVICE = (BLOCKED, GAP)  # the host is not late
_HANDS_OVER = re.compile(
    r"/(multiprocessing|concurrent/futures|torch/utils/data|torch/multiprocessing)/"
    r"|/(queue|threading)\.py$"
)
_NEAR_NS = 3_000_000
_ALIKE_NS = 4_000_000  # in which samples of one wait are as good as one
_RUNNING = tuple(b"RD")  # states, as in /proc
_WAITING = tuple(b"GSD")  # G: for the GIL
STOPPED = tuple(b"Tt")  # by a signal or a debugger


def weigh(samples: np.ndarray, before: dict[int, int], most_ns: int) -> np.ndarray:
    """The time in ns that each sample stands for, since the one before of its thread; at most so
    much, as after a pause in which nothing was sampled. ``before`` has, by thread, the times of the
    last samples, and is brought up to date."""
    weights = np.zeros(len(samples))
    known = dict(before)
    if len(samples):
        before.clear()
    for thread in np.unique(samples["thread"]).tolist():
        own = samples["thread"] == thread
        times = samples["time_ns"][own]
        first = known.get(thread, int(times[0]))
        weights[own] = np.minimum(np.diff(times, prepend=first), most_ns)
        before[thread] = int(times[-1])
    return weights


def group_alike(samples: np.ndarray, weights: np.ndarray) -> Iterator[tuple[np.void, float]]:
    """Each with the weight of all that are like it; of those that wait, at about that time."""
    waits = np.isin(samples["state"], _WAITING)
    place = samples["stack"].astype(np.int64) << 16 | samples["opcode"]
    keys = np.stack([place, np.where(waits, samples["state"], 0),
                     np.where(waits, samples["time_ns"] // _ALIKE_NS, 0)])  # fmt: skip
    _, first, number = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    sums = np.bincount(number.ravel(), weights)
    yield from zip(samples[first], sums.tolist(), strict=True)


def name_cause(sample: np.void, into_c: np.ndarray, *, may_wait: bool = True) -> str:
    """What a thread does that is in no call of CUDA."""
    is_in_c = bool(into_c[sample["opcode"] & 255])
    if may_wait and sample["state"] in _WAITING:
        # Where the system does not tell that it waits for the GIL, it does if it is not in C.
        return WAIT if is_in_c and sample["state"] != _WAITING[0] else GIL
    return CPP if is_in_c else PYTHON


class Others:
    """``samples`` are those of all threads and processes of the program."""

    def __init__(self, samples: np.ndarray, places: Places) -> None:
        self._samples, self._places = samples, places
        self._handing: dict[int, bool] = {}

    @cached_property
    def _running(self) -> dict[tuple[int, int], tuple[list[int], list[int]]]:
        """Of each process and thread that ran, when, and its stacks then. Most ask for none."""
        running = self._samples[np.isin(self._samples["state"], _RUNNING)]
        running = running[np.argsort(running["time_ns"], kind="stable")]
        found = {}
        for process, thread in np.unique(running[["process", "thread"]]).tolist():
            own = running[(running["process"] == process) & (running["thread"] == thread)]
            found[process, thread] = own["time_ns"].tolist(), own["stack"].tolist()
        return found

    def list_late(self, sample: np.void, cause: str) -> list[int]:
        """The stacks that the time of a sample is booked to: that of its thread, or of those that
        it waited for."""
        own = int(sample["stack"])
        late: list[int] = []
        if cause == GIL:
            late = self._list_running(sample, int(sample["process"]))
        elif cause == WAIT and self._hands_over(own):
            late = self._list_running(sample)
        return late or [own]

    def _hands_over(self, stack: int) -> bool:
        """Whether a frame below the program's own line is of what hands work over."""
        if stack not in self._handing:
            files = (file for file, _, _ in self._places.list_frames(stack))
            below = itertools.takewhile(lambda file: not is_users(file), files)
            self._handing[stack] = any(map(_HANDS_OVER.search, below))
        return self._handing[stack]

    def _list_running(self, sample: np.void, wanted: int | None = None) -> list[int]:
        """Of each other thread that ran at about that time, the nearest stack; not of those that
        wait for others themselves. Of one process, or of all."""
        time, found = int(sample["time_ns"]), []
        for (process, thread), (times, stacks) in self._running.items():
            if thread == sample["thread"] or wanted not in (None, process):
                continue
            after = bisect.bisect_left(times, time)
            near = [place for place in (after - 1, after) if 0 <= place < len(times)]
            nearest = min(near, key=lambda place: abs(times[place] - time))
            if abs(times[nearest] - time) <= _NEAR_NS and not self._hands_over(stacks[nearest]):
                found.append(stacks[nearest])
        return found
