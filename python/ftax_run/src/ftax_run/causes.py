"""What a thread does at a sample, and who was late where it waits.

A thread that waits in Python's queues and locks, or in multiprocessing, waits for another thread or
process of the program; one that waits for the GIL, for a thread of its process. Then what those ran
meanwhile was late.
"""

from __future__ import annotations

import re

import numpy as np

from ftax_run.frames import Places, is_users

PYTHON, CPP, GIL, SYNC, WAIT, COPY, GAP, UNSEEN = (
    "Python", "C++ below Python", "waiting for the GIL", "waiting in a synchronisation",
    "waiting for input or another thread", "copies", "gaps between kernels", "not sampled",
)  # fmt: skip
CAUSES = (PYTHON, CPP, GIL, SYNC, WAIT, COPY, GAP, UNSEEN)
_HANDS_OVER = re.compile(
    r"/(multiprocessing|concurrent/futures|torch/utils/data|torch/multiprocessing)/"
    r"|/(queue|threading)\.py$"
)
_NEAR_NS = 3_000_000


def name_cause(sample: np.void, into_c: np.ndarray, *, may_wait: bool = True) -> str:
    """What a thread does that is in no call of CUDA."""
    is_in_c = bool(into_c[sample["opcode"] & 255])
    if may_wait and chr(sample["state"]) in "SD":
        return WAIT if is_in_c else GIL
    return CPP if is_in_c else PYTHON


class Others:
    """``samples`` are those of all threads and processes of the program."""

    def __init__(self, samples: np.ndarray, places: Places) -> None:
        running = samples[np.isin(samples["state"], [ord("R"), ord("D")])]
        self._running = np.sort(running, order="time_ns")
        self._places = places

    def list_late(self, sample: np.void, cause: str) -> list[int]:
        """The stacks that the time of a sample is booked to: that of its thread, or of those that
        it waited for."""
        own = int(sample["stack"])
        late: list[int] = []
        if cause == GIL:
            late = self._list_running(sample, self._running["process"] == sample["process"])
        elif cause == WAIT and self._hands_over(own):
            late = self._list_running(sample, np.ones(len(self._running), dtype=bool))
        return late or [own]

    def _hands_over(self, stack: int) -> bool:
        """Whether a frame below the program's own line is of what hands work over."""
        for file, _, _ in self._places.list_frames(stack):
            if is_users(file):
                return False
            if _HANDS_OVER.search(file):
                return True
        return False

    def _list_running(self, sample: np.void, is_meant: np.ndarray) -> list[int]:
        """Of each other thread that ran at about that time, the nearest stack; not of those that
        wait for others themselves."""
        running, time = self._running, int(sample["time_ns"])
        first, last = np.searchsorted(running["time_ns"], [time - _NEAR_NS, time + _NEAR_NS])
        near = running[first:last][is_meant[first:last]]
        near = near[near["thread"] != sample["thread"]]
        near = near[np.argsort(np.abs(near["time_ns"] - time), kind="stable")]
        _, nearest = np.unique(near["thread"], return_index=True)
        return [int(stack) for stack in near["stack"][nearest] if not self._hands_over(int(stack))]
