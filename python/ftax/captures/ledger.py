"""What became of the calls of a capture, what they took, and when recording one pays.

Nothing is recorded because it is new. The original answers until it has worked for as long as
replays would have saved to make up for a recording, and recordings together take less than a tenth
of the work of all calls. Work is CPU time of the thread: how long a call takes beside busy
neighbours, or waiting for the GIL, says nothing of that.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from ftax.captures.kinds import CallKind
from ftax.captures.program import Program

_T = TypeVar("_T")
RECORDING_SHARE = 0.1  # of the work of calls
_ADVANCE = 0.01  # of the work of calls, that recording may take before replays have saved it
_REINVESTED = 0.5  # of what replays save
_ASSUMED_GAIN = 0.5  # share of the original's work that a replay saves, until checks have told


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureStats:
    """How the calls of a capture were answered.

    Attributes:
        replayed: calls that were replays.
        from_tape: of the replays, those from C++ since the CUDA graph still waited for the backward
            pass of a call before (``depth``).
        original: calls that the original answered, by why.
        recorded: calls that were recorded.
        checked: of the replays, those that were compared with the original.
        unchecked: checks that were due and not possible.
        call_seconds: that all calls took, without recording.
        record_seconds: that recording took, the first one and `warm` too.
        check_seconds: that checks took beside the replay.
        memory_bytes: that recordings hold, on a CPU about.
    """

    replayed: int
    from_tape: int
    original: dict[str, int]
    recorded: int
    checked: int
    unchecked: int
    call_seconds: float
    record_seconds: float
    check_seconds: float
    memory_bytes: int

    def __str__(self) -> str:
        waited = f" ({self.from_tape:,} from C++: see depth)" if self.from_tape else ""
        why = "".join(f"\n  {count:,}: {reason}" for reason, count in self.original.items())
        return (
            f"replayed {self.replayed:,}{waited}, original {sum(self.original.values()):,} calls "
            f"in {self.call_seconds:.3f} s; recorded {self.recorded:,} in {self.record_seconds:.3f}"
            f" s; checked {self.checked:,} in {self.check_seconds:.3f} s ({self.unchecked:,} could "
            f"not be); {self.memory_bytes:,} bytes held; the original answered{why or ' none'}"
        )


class Clock:
    """Of what a check compares: on a GPU until the device is done, on a CPU the thread's work."""

    def __init__(self, program: Program) -> None:
        self._on_gpu = program.kind == "graph"
        self._read = time.perf_counter_ns if self._on_gpu else time.thread_time_ns
        self._begun, self._begun_wall = self._read(), time.perf_counter_ns()
        self.last_ns = 0

    def time(self, run: Callable[[], _T]) -> _T:
        """What ``run`` gives; `last_ns` is what it took."""
        self._wait()
        begun = self._read()
        result = run()
        self._wait()
        self.last_ns = self._read() - begun
        return result

    def read(self) -> tuple[int, int]:
        """What all of the check took so far: as it is timed, and until now."""
        return self._read() - self._begun, time.perf_counter_ns() - self._begun_wall

    def _wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()


@dataclass(slots=True)
class Budget:
    """Work of one capture, in ns of CPU time.

    Attributes:
        worked: by calls, without recordings.
        spent: on recordings that nobody asked for.
        last: the last recording took.
        saved: by replays so far, as checks have timed them.
        replayed, original: of calls that were checked, as replays and by the original.
    """

    worked: int = 0
    spent: int = 0
    last: int = 0
    saved: int = 0
    replayed: int = 0
    original: int = 0

    @property
    def gain(self) -> float:
        """Share of the original's work that replays save."""
        return 1 - self.replayed / self.original if self.original else _ASSUMED_GAIN

    def pays(self, kind: CallKind) -> bool:
        """Whether recording this kind of call is worth its work now: replays would have made up
        for it by now, and half of what those that there are have saved pays for it, but for a small
        advance."""
        earned = _REINVESTED * self.saved + _ADVANCE * self.worked
        limit = min(RECORDING_SHARE * self.worked, earned)
        return self.spent + self.last <= limit and kind.original_ns * self.gain >= self.last


class Ledger:
    """Counts and times of one capture, which many threads write."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.budget = Budget()
        self.originals: Counter[str] = Counter()  # calls of the original, by why
        self.running = 0  # originals, now
        self.replayed = self.recorded = self.unchecked = 0
        self.new_in_a_row = 0  # calls of kinds that never came before, since the last replay
        self._checked = self._check_ns = self._call_ns = self._record_ns = 0

    def begin_original(self, why: str, kind: CallKind | None) -> int:
        """When its work began; 0 where that is not asked for: nothing is to be recorded, or the
        last of some calls stands for all, since this clock costs microseconds."""
        with self.lock:
            self.originals[why] += 1
            self.running += 1
            if kind is None or kind.why:
                return 0
            kind.untimed += 1
            if kind.skips:
                return 0
        return time.thread_time_ns()

    def end_original(self, start: int, begun: int, kind: CallKind | None) -> None:
        """It has answered a call that began at ``start``."""
        worked = time.thread_time_ns() - begun if begun else 0
        now = time.perf_counter_ns()
        with self.lock:
            self.running -= 1
            self._call_ns += now - start
            if worked and kind is not None:
                worked, kind.untimed = worked * kind.untimed, 0
                kind.original_ns += worked
                self.budget.worked += worked

    def note_replay(self, kind: CallKind, program: Program, start: int, check_ns: int = 0) -> None:
        """It has answered a call that began at ``start``; ``check_ns``: of the check beside it."""
        now = time.perf_counter_ns()
        with self.lock:
            program.replays += 1
            kind.note_replay()
            self.replayed += 1
            self.new_in_a_row = 0
            self._call_ns += now - start - check_ns
            self.budget.worked += program.schedule.replay_ns
            self.budget.saved += program.schedule.saving_ns

    def note_check(
        self,
        kind: CallKind,
        program: Program,
        start: int,
        clock: Clock,
        replay_ns: int,
        original_ns: int,
    ) -> None:
        """A check found no difference."""
        taken_ns, check_ns = clock.read()
        with self.lock:
            self._checked += 1
            self._check_ns += check_ns
            self.budget.replayed += replay_ns
            self.budget.original += original_ns
        program.schedule.plan_next(replay_ns, taken_ns - replay_ns)
        program.note_times(replay_ns, original_ns)
        self.note_replay(kind, program, start, check_ns)

    def note_recording(self, begun: int, begun_work: int, *, is_asked: bool) -> None:
        """One was made, or tried."""
        now, worked = time.perf_counter_ns(), time.thread_time_ns() - begun_work
        with self.lock:
            self._record_ns += now - begun
            self.budget.last = worked
            if not is_asked:
                self.budget.spent += worked

    def count(self) -> dict[str, int]:
        """How calls were answered: "replayed", "eager"; and "recorded"."""
        eager = sum(self.originals.values())
        found = {"replayed": self.replayed, "eager": eager, "recorded": self.recorded}
        return {how: count for how, count in found.items() if count}

    def make_stats(self, memory_bytes: int, from_tape: int) -> CaptureStats:
        """All of it, as it is now."""
        return CaptureStats(
            replayed=self.replayed,
            from_tape=from_tape,
            original=dict(self.originals),
            recorded=self.recorded,
            checked=self._checked,
            unchecked=self.unchecked,
            check_seconds=self._check_ns / 1e9,
            call_seconds=self._call_ns / 1e9,
            record_seconds=self._record_ns / 1e9,
            memory_bytes=memory_bytes,
        )
