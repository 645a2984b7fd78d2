"""What is known of each kind of call, and when recording one pays.

The surprising choice: nothing is recorded because it is new. The original answers until it has
taken as long as replays would have saved to make up for a recording, and all recordings together
take less than a tenth of the time of all calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from ftax import _core
from ftax.runtimes.capture.program import Program
from ftax.steps.input_trees import is_data

RECORDING_SHARE = 0.1  # of the time of calls
MOVES = 3  # misses at one place, each with another value there, after which it is named
_ADVANCE = 0.02  # of the time of calls, that recording may take before replays have saved it
_ASSUMED_GAIN = 0.5  # share of the original's time that a replay saves, until checks have told
_MOST_KINDS = 256


@dataclass(slots=True, eq=False)
class CallKind:
    """Calls of one signature.

    Attributes:
        signature: of the arguments.
        used: when it was, by a count.
        programs: recordings of it that are kept, the newest first.
        why: the original answers for good; "" where it does not.
        original_ns: of calls that the original answered since `change` was what it is.
        change: the place at which no recording fits, in words, and what is there.
        moves: how often `change` became another since the last replay.
        skips: calls that the original answers without more questions.
        is_new: it came for the first time.
        is_first: its next call runs as it is: it makes state.
        is_settled: it has; the next call is recorded.
        is_renewed: its first recording had read a number that no later call did.
    """

    signature: _core.Signature
    used: int = 0
    programs: list[Program] = field(default_factory=list)
    why: str = ""
    original_ns: int = 0
    change: tuple[str, Any] = ("", None)
    moves: int = 0
    skips: int = 0
    is_new: bool = True
    is_first: bool = False
    is_settled: bool = False
    is_renewed: bool = False

    def note_miss(self) -> None:
        """No recording fits: find out what is not as it was."""
        change = self._find_change()
        if change[0] == self.change[0] and _core.is_same_value(self.change[1], change[1]):
            return
        self.moves += bool(self.change[0])
        self.change, self.original_ns = change, 0

    def _find_change(self) -> tuple[str, Any]:
        if not self.programs:
            return "", None
        state = self.programs[0].state
        place = state.guards.find_change()
        if place < 0:  # as its tensors are not those of the recording
            return "memory of its arguments", None
        value = state.guards.read(place)
        if isinstance(value, torch.Tensor):  # which is not to live longer for it
            value = id(value)
        return state.find_change() or "", value


class CallKinds:
    """The last of many, found by the types and shapes of their arguments."""

    def __init__(self) -> None:
        self._kinds: dict[object, list[CallKind]] = {}
        self._uses = itertools.count()

    def __iter__(self) -> Iterator[CallKind]:
        return itertools.chain.from_iterable(self._kinds.values())

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallKind:
        """That of a call. Raises InvalidArgumentError for arguments that have no signature."""
        key = (*map(_see, args), *kwargs, *map(_see, kwargs.values()))
        alike = self._kinds.get(key, ())
        for kind in alike:
            if kind.signature.match(args, kwargs) is not None:
                kind.used = next(self._uses)
                return kind
        kind = CallKind(_core.Signature(args, kwargs, is_data), used=next(self._uses))
        self._forget()
        self._kinds[key] = [kind, *alike]
        return kind

    def _forget(self) -> None:
        """Those that were not called for longest and have no recording, where there are many."""
        known = list(self)
        if len(known) < _MOST_KINDS:
            return
        idle = sorted((kind for kind in known if not kind.programs), key=lambda kind: kind.used)
        gone = set(map(id, idle[: _MOST_KINDS // 4]))
        kept = {
            key: [kind for kind in kinds if id(kind) not in gone]
            for key, kinds in self._kinds.items()
        }
        self._kinds = {key: kinds for key, kinds in kept.items() if kinds}

    def list_programs(self) -> list[Program]:
        """All recordings, those of the most recently used kind first."""
        kinds = sorted(self, key=lambda kind: kind.used, reverse=True)
        return [program for kind in kinds for program in kind.programs]

    @property
    def has_first(self) -> bool:
        """Whether a next call is a first one."""
        return any(kind.is_first for kind in self)


def _see(value: object) -> object:
    return value.shape if type(value) is torch.Tensor else type(value)


@dataclass(slots=True)
class Budget:
    """Times of one capture, in ns.

    Attributes:
        called: sum of the durations of its calls, without what recording took in them.
        spent: on recordings that nobody asked for.
        recorded: on all recordings.
        last: the last recording took.
        saved: by replays so far, as checks have timed them.
        replayed, original: of calls that were checked, as replays and by the original.
    """

    called: int = 0
    spent: int = 0
    recorded: int = 0
    last: int = 0
    saved: int = 0
    replayed: int = 0
    original: int = 0

    def note_recording(self, duration: int, *, is_asked: bool) -> None:
        """One was made, or tried."""
        self.recorded += duration
        self.last = duration
        if not is_asked:
            self.spent += duration

    @property
    def gain(self) -> float:
        """Share of the original's time that replays save."""
        return 1 - self.replayed / self.original if self.original else _ASSUMED_GAIN

    def pays(self, kind: CallKind) -> bool:
        """Whether recording this kind of call is worth its time now: replays would have made up
        for it by now, and those that there are have earned it, but for a small advance."""
        limit = min(RECORDING_SHARE * self.called, self.saved + _ADVANCE * self.called)
        return self.spent + self.last <= limit and kind.original_ns * self.gain >= self.last
