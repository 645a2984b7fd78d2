"""Warnings of one capture: each topic once, at the line that called."""

from __future__ import annotations

import sys
import warnings

from ftax.captures.kinds import CallKind
from ftax.captures.program import Program
from ftax.errors import say_count

# Python modules through which a call passes before it warns.
_PASSED = tuple(f"ftax.captures.{name}" for name in ("captured", "notices", "recordings"))


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


def _name_way(place: str) -> str:
    """How what moves there can be made to stay."""
    if "'betas'" in place or "'momentum'" in place:
        return "OneCycleLR leaves it alone with cycle_momentum=False"
    return "a number can be a tensor: a position, lr=torch.tensor(...)"
