"""What a capture tells: warnings, each topic once, at the line that called; and in words what it
checks at each call, and what it takes as fixed.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ftax.captures.kinds import CallKind
from ftax.captures.program import Program
from ftax.errors import say_count

# Python modules through which a call passes before it warns.
_PASSED = tuple(f"ftax.captures.{name}" for name in ("captured", "entry", "notices", "recordings"))

_FEW = 12  # lines of a list that is printed
_ALWAYS_FROZEN = (
    "what C++ extensions read without an operator call",
    "functions and classes of torch and of Python's library, and what code of libraries names",
    "attributes that Python code gives to a tensor that is an argument",
    "whether an argument is the very tensor that the code finds elsewhere (x is self.weight)",
)


class Notices:
    """What the capture of ``name`` has to tell.

    Attributes:
        refusal: why it was called as it is, the last time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._told: set[str] = set()  # topics
        self.refusal = ""

    def tell_refused(self, error: Exception) -> None:
        """A call cannot be captured."""
        self.refusal = str(error) or type(error).__name__
        self._warn("refused", f"{self._name} is called as it is, without a capture: {self.refusal}")

    def tell_mode(self, mode: str) -> None:
        """A call is inside of a mode of torch."""
        self._warn("mode", f"inside of {mode} {self._name} is called as it is, uncaptured")

    def tell_threads(self, error: Exception) -> None:
        """Other threads live, beside which nothing is recorded."""
        self._warn("threads", f"{error}: it is called as it is; record it by fast.warm([...])")

    def tell_acts(self, acts: Sequence[str]) -> None:
        """What the call does beside its results, which replays leave out."""
        for text in describe_acts(self._name, acts):
            self._warn("acts", text)

    def tell_new(self, kind: CallKind, count: int) -> None:
        """Of ``count`` calls none was like one before."""
        self._warn(
            "new",
            f"{count} calls of the capture of {self._name} came with other arguments each, "
            f"now {kind.signature.describe()}, so none is recorded: give a number that changes "
            "as a tensor, pad to a few lengths",
        )

    def tell_moves(self, place: str) -> None:
        """Something of Python is another again and again."""
        self._warn(
            f"moves {place}",
            f"calls of the capture of {self._name} find {place} changed again and again, so "
            f"{self._name} is called as it is while that goes on: keep it the same from call "
            f"to call ({_name_way(place)}), or record the values that will come with "
            "fast.warm(...)",
        )

    def tell_other_numbers(self, count: int) -> None:
        """``count`` calls read other numbers than the recorded ones, which is most of them."""
        self._warn(
            "checked",
            f"{count} calls of the capture of {self._name} read other numbers than the "
            f"recorded ones, so that each was replayed and then done again: {self._name} is "
            "called as it is from now on; record it with inputs like most (with padding, if "
            "most have some)",
        )

    def tell_backward(self, error: Exception) -> None:
        """Gradients lie in a way for which no backward pass can be recorded."""
        self._warn(
            "backward",
            f"the backward pass of the capture of {self._name} could not be recorded for gradients "
            f"that lie as they do now ({error}): they are copied, and what is computed of them may "
            "differ in the last bits",
        )

    def tell_failure(self, error: Exception) -> None:
        """A replay failed."""
        self._warn(
            "replay",
            f"a replay of {self._name} failed where {self._name} itself does not, and every such "
            f"call is done by {self._name}: {error}",
        )

    def tell_difference(self, program: Program, difference: str) -> None:
        """A replay was wrong."""
        suspects = (*program.executed.changing, *program.state.frozen)
        why = f" It may depend on {suspects[0]}, which is not compared." if suspects else ""
        count = program.schedule.unchecked - 1
        earlier = (
            f" {say_count(count, 'replay')} since the last good check may be wrong too."
            if count
            else ""
        )
        self._warn(
            f"difference of {program.signature.describe()}",
            f"a check of the capture of {self._name} found that a replay is not what "
            f"{self._name} computes: {difference}.{why} {self._name} itself is called from now on "
            f"for such arguments.{earlier} (fast.explain() lists what is compared)",
        )

    def _warn(self, topic: str, text: str) -> None:
        if topic in self._told:
            return
        self._told.add(topic)
        depth, frame = 1, sys._getframe()
        while frame.f_back is not None and frame.f_globals.get("__name__") in _PASSED:
            depth, frame = depth + 1, frame.f_back
        warnings.warn(text, stacklevel=depth)


def describe_acts(name: str, acts: Sequence[str]) -> tuple[str, ...]:
    """The warning of calls that ``name`` makes beside its work; none without any."""
    more = f" and {len(acts) - 1} more" if len(acts) > 1 else ""
    return tuple(
        f"replays of the capture of {name} do not print, write, send or wait as {name} does "
        f"({first}{more}): do that outside of what is captured"
        for first in acts[:1]
    )


def _name_way(place: str) -> str:
    """How what moves there can be made to stay."""
    if "'betas'" in place or "'momentum'" in place:
        return "OneCycleLR leaves it alone with cycle_momentum=False"
    return "a number can be a tensor: a position, lr=torch.tensor(...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFacts:
    """One recorded call.

    Attributes:
        arguments: that it stands for.
        reason: why it was recorded, where others were before.
        kind: "tape" or "graph".
        operators: how many calls a replay makes; of compiled code, how many graphs it launches.
        contents: the two in words: "tape of 12 operator calls".
        guarded: what is compared before each call, by name: "model.scale".
        frozen: what it read, or could have, and is not compared.
        baked: numbers that it read of tensors and that depend on no input and no state.
        checked: how many numbers it reads that do, compared after each replay.
        warnings: of the recording.
    """

    arguments: str
    reason: str
    kind: str
    operators: int
    contents: str
    guarded: tuple[str, ...]
    frozen: tuple[str, ...]
    baked: tuple[str, ...]
    checked: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All calls that were recorded. ``calls`` counts how calls were answered: "replayed", "eager",
    "recorded"."""

    name: str
    programs: tuple[ProgramFacts, ...]
    calls: dict[str, int]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.name}: {say_count(len(self.programs), 'recorded call')}"]
        if self.calls:
            answered = ", ".join(f"{count} {how}" for how, count in sorted(self.calls.items()))
            lines.append(f"calls so far: {answered}")
        lines += self.notes
        told: set[str] = set()  # what several have in common is listed once
        for facts in self.programs:
            lines += ["", f"{facts.contents}: {facts.arguments}"]
            if facts.reason:
                lines.append(f"  recorded since {facts.reason}")
            for title, items in (
                ("compared before each call", sorted(facts.guarded, key=_is_far)),
                ("frozen: not compared", facts.frozen),
                ("read on the host and baked in", facts.baked),
            ):
                lines += _draw_list(title, [item for item in items if item not in told], len(items))
                told.update(items)
            if facts.checked:
                lines.append(f"  read on the host and compared after each replay: {facts.checked}")
            new = [warning for warning in facts.warnings if warning not in told]
            lines += [f"  ! {warning}" for warning in new]
            told.update(new)
        return "\n".join(lines)


def explain(
    name: str, programs: Iterable[Program], calls: dict[str, int], note: str
) -> Explanation:
    """Facts of each program."""
    return Explanation(
        name=name,
        programs=tuple(_describe(program) for program in programs),
        calls=calls,
        notes=(note,) if note else (),
    )


def _describe(program: Program) -> ProgramFacts:
    return ProgramFacts(
        arguments=program.signature.describe(),
        reason=program.reason,
        kind=program.kind,
        operators=program.operators,
        contents=program.contents,
        guarded=tuple(program.state.places),
        frozen=(*program.executed.changing, *program.state.frozen, *_ALWAYS_FROZEN),
        baked=program.baked,
        checked=len(program.checked),
        warnings=program.warnings,
    )


def _is_far(guarded: str) -> bool:
    """Whether a name is of the code around what was captured: those come last."""
    return guarded.startswith(("globals of ", "the code of ", "torch.")) or " of " in guarded


def _draw_list(title: str, new: Sequence[str], count: int) -> list[str]:
    """``new`` of ``count`` items; the others stand above."""
    if not count:
        return []
    shown = [f"    {item}" for item in new[:_FEW]]
    if len(new) > _FEW:
        shown.append(f"    and {len(new) - _FEW:,} more")
    return [f"  {title} ({count:,}{'' if new else ', all of them above'}):", *shown]
