"""The one loop for what follows the rounds: order, faults, and Ctrl-C in the middle."""

from dataclasses import dataclass, replace
from typing import Self

import pytest
import torch

from ftax.errors import UnavailableError
from ftax.instruments.instrument import Instrument, look_closer


@dataclass(frozen=True, kw_only=True)
class Notes:
    found: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    interrupted: bool = False

    def tell(self, phase: str, done: int = 0, total: int = 1) -> None:
        TOLD.append(phase)

    def warn(self, *texts: str) -> Self:
        return replace(self, warnings=(*self.warnings, *texts))

    def interrupt(self, text: str) -> Self:
        return replace(self.warn(text), interrupted=True)


TOLD: list[str] = []


def make(name, *found, error=None, wanted=True):
    """Finds these one after the other, and then fails."""

    def look(scene):
        for item in found:
            scene = replace(scene, found=(*scene.found, item))
            yield scene
        if error is not None:
            raise error

    return Instrument(name, f"no {name}", lambda scene: wanted, look)


def test_what_is_wanted_is_looked_at_in_order_and_told():
    TOLD.clear()
    instruments = [make("first", "a"), make("unwanted", "b", wanted=False), make("last", "c")]
    scene = look_closer(instruments, Notes())
    assert scene == Notes(found=("a", "c"))
    assert TOLD == ["first", "last"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UnavailableError("no counter"), "no energy: no counter"),
        (RuntimeError("a kernel\nfailed"), "no energy: a kernel failed"),
        (torch.OutOfMemoryError("CUDA out of memory"), "no energy: CUDA out of memory; choose"),
    ],
)
def test_a_fault_costs_what_was_not_found_yet_and_a_warning(error, reason):
    scene = look_closer([make("energy", "one runtime", error=error), make("trace", "t")], Notes())
    assert scene.found == ("one runtime", "t")
    (warning,) = scene.warnings
    assert warning.startswith(reason) and not scene.interrupted


def test_ctrl_c_ends_the_looks_keeps_what_was_found_and_names_the_rest():
    instruments = [
        make("energy", "a", "b", error=KeyboardInterrupt()),
        make("unwanted", wanted=False),
        make("trace", "t"),
    ]
    scene = look_closer(instruments, Notes())
    assert (scene.found, scene.interrupted) == (("a", "b"), True)
    assert scene.warnings == ("interrupted after the rounds: no energy; no trace",)


def test_a_mistake_of_ours_is_hidden_by_nothing():
    with pytest.raises(KeyError):
        look_closer([make("energy", error=KeyError("x"))], Notes())
