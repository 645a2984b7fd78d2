"""When a recording is checked against the original, and what checks have found of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ftax.tape.equality import Spread

_SHARE = 0.01  # of the time of replays that checks may take in the long run
_FIRST = 2
_TIMED_ENOUGH = 4


@dataclass(slots=True)
class Schedule:
    """The 2nd, 4th, 8th ... call of a recording, and then as many as take 1 % of the time.

    Attributes:
        unsteady: elements of results that the original does not give twice, by place.
        unchecked: replays since the last check that found no difference.
    """

    unsteady: dict[int, Spread] = field(default_factory=dict)
    unchecked: int = 0
    _calls: int = 0
    _next: int = _FIRST
    _timed: int = 0
    _replay_ns: int = 0  # the shortest
    _original_ns: int = 0

    def is_due(self) -> bool:
        """Count a call; whether it is to be checked."""
        self._calls += 1
        self.unchecked += 1
        return self._calls >= self._next

    def check_first(self) -> None:
        """Have the first call checked too."""
        self._next = 1

    def plan_next(self, replay_ns: int, extra_ns: int) -> None:
        """The check of this call took ``extra_ns`` beside its replay."""
        spacing = math.ceil(extra_ns / (_SHARE * max(replay_ns, 1)))
        self._next = self._calls + max(1, min(self._calls, spacing))
        self.unchecked = 0

    def time(self, replay_ns: int, original_ns: int) -> None:
        """A check has timed both: the whole of a call that is replayed, and the original."""
        first = not self._timed
        self._replay_ns = replay_ns if first else min(self._replay_ns, replay_ns)
        self._original_ns = original_ns if first else min(self._original_ns, original_ns)
        self._timed += 1

    @property
    def replay_ns(self) -> int:
        """What a replay takes, in the fastest of the calls that were checked; 0 before."""
        return self._replay_ns

    @property
    def saving_ns(self) -> int:
        """What a replay saves, in the fastest of the calls that were checked."""
        return self._original_ns - self._replay_ns

    @property
    def is_no_faster(self) -> bool:
        """Whether the fastest of several replays took as long as the fastest original."""
        return self._timed >= _TIMED_ENOUGH and self._replay_ns >= self._original_ns
