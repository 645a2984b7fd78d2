"""What is looked at once the rounds are over: a list of instruments, and the one loop that runs it.

Whatever looks disturbs what comes after it, so the order of such a list is forced. The surprising
choice: an instrument is a generator. It hands over the scene with what it has found as soon as it
has found it; a fault, or Ctrl-C, costs what was not found yet, and a warning that says what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from ftax.errors import FAULTS, describe, is_out_of_memory, release


class Scene(Protocol):
    """What instruments look at, with all that was found so far. It is never changed: what is found
    makes another one."""

    def tell(self, phase: str, done: int = 0, total: int = 1) -> None:
        """Report progress."""

    def warn(self, *texts: str) -> Self:
        """With what a reader has to know."""

    def interrupt(self, text: str) -> Self:
        """With what a reader has to know after Ctrl-C."""


SceneType = TypeVar("SceneType", bound=Scene)


@dataclass(frozen=True, slots=True)
class Instrument(Generic[SceneType]):
    """One kind of look.

    Attributes:
        phase: what the progress calls it: "timing operators".
        missing: how the warning begins where it fails: "operators were not timed".
        is_wanted: whether it is asked for, and can be had of this scene.
        look: the scene with what was found, as often as something was.
    """

    phase: str
    missing: str
    is_wanted: Callable[[SceneType], bool]
    look: Callable[[SceneType], Iterator[SceneType]]


def look_closer(instruments: Sequence[Instrument[SceneType]], scene: SceneType) -> SceneType:
    """The scene with all that the instruments, in this order, find of it."""
    for place, instrument in enumerate(instruments):
        if not instrument.is_wanted(scene):
            continue
        try:
            scene.tell(instrument.phase)
            for found in instrument.look(scene):
                scene = found
        except FAULTS as error:
            if is_out_of_memory(error):
                release(error)
            scene = scene.warn(f"{instrument.missing}: {describe(error)}")
        except KeyboardInterrupt:
            left = [item.missing for item in instruments[place:] if item.is_wanted(scene)]
            return scene.interrupt(f"interrupted after the rounds: {'; '.join(left)}")
    return scene
