"""What is known of each kind of call: its recordings, and what the original has done of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from ftax import _core
from ftax.captures.program import Program
from ftax.steps.input_trees import is_data

MOVES = 3  # misses at one place, each with another value there, after which it is named
_MOST_SKIPS = 7
_MISSES_A_SKIP = 8  # of a kind that has recordings: one of them may fit again soon
_MOST_KINDS = 256


@dataclass(slots=True, eq=False)
class CallKind:
    """Calls of one signature.

    Attributes:
        signature: of the arguments.
        used: when it was, by a count.
        programs: recordings of it that are kept, the newest first.
        why: the original answers for good; "" where it does not.
        original_ns: work of the original since `change` was what it is.
        change: the place at which no recording fits, in words, and what is there.
        moves: how often `change` became another since the last replay.
        misses: calls since the last replay for which the recordings were compared.
        skips: calls that the original answers without more questions.
        untimed: calls of the original since one was timed.
        why_skipped: what is said of those.
        is_new: it came for the first time.
        is_first: its next call runs as it is: it makes state.
        is_settled: it has; the next call is recorded.
        settling: calls that ran as they are because the call would communicate otherwise later.
        is_renewed: its first recording had read a number that no later call did.
    """

    signature: _core.Signature
    used: int = 0
    programs: list[Program] = field(default_factory=list)
    why: str = ""
    original_ns: int = 0
    change: tuple[str, object] = ("", None)
    moves: int = 0
    misses: int = 0
    skips: int = 0
    untimed: int = 0
    why_skipped: str = ""
    is_new: bool = True
    is_first: bool = False
    is_settled: bool = False
    settling: int = 0
    is_renewed: bool = False

    def note_miss(self) -> None:
        """No recording fits: find out what is not as it was."""
        self.misses += 1
        change = self._find_change()
        if change[0] == self.change[0] and _core.is_same_value(self.change[1], change[1]):
            return
        self.moves += bool(self.change[0])
        self.change, self.original_ns = change, 0

    def note_replay(self) -> None:
        """A recording fits."""
        self.moves = self.misses = 0

    def skip(self, why: str) -> str:
        """Recording does not pay yet: do not ask again at each call. ``why`` again."""
        seldom = self.misses // _MISSES_A_SKIP if self.programs else _MOST_SKIPS
        self.skips, self.why_skipped = min(seldom, _MOST_SKIPS), why
        return why

    def _find_change(self) -> tuple[str, object]:
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
