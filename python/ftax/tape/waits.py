"""Where a step waits for the device: which operator, at which line of Python, how often.

A trace counts waits and times them, and knows no line; here one run is watched under a dispatch
mode, which sees each operator with Python's stack above it. The line is the first one outside
torch, since that is the one that somebody can change.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ftax.records.record import Count, Name, Record
from ftax.steps.echoes import PlainMode
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model
from ftax.steps.reach import is_library
from ftax.steps.train import train
from ftax.tape.recording import is_tagged_as_sized, operator_name
from ftax.tape.tape import preserve_state

READS = ("aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::equal",
         "aten::allclose")  # fmt: skip
_COPIES = ("aten::_to_copy", "aten::copy_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Record):
    """``count`` times in one run of the first rung ``operator`` waits; ``place`` is the line that
    asks for it, ``generation/utils.py:123 in sample``, or "backward pass"."""

    operator: Name
    place: Name
    count: Count


def find_waits(loaded: LoadedModel) -> tuple[Wait, ...]:
    """The waits of one run as people run it, by the library if there is one, the most frequent
    first."""
    log = _WaitLog(torch.device(loaded.device))
    with preserve_state(loaded), loaded.guard(), log:
        call_model(loaded.through_library or loaded.call)
    return tuple(
        Wait(operator=operator, place=place, count=count)
        for (operator, place), count in log.found.most_common()
    )


class _WaitLog(PlainMode):
    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self.found: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._waits(func, args, kwargs):
            self.found[operator_name(func), find_line(sys._getframe(1))] += 1
        return func(*args, **kwargs)

    def _waits(self, func: Any, args: Any, kwargs: Any) -> bool:
        name = func._schema.name
        if name in _COPIES:
            return self._crosses(name, args, kwargs)
        if name in READS:
            return self._is_here(args[0])
        return is_tagged_as_sized(func, args) and self._is_here(args[0])

    def _crosses(self, name: str, args: Any, kwargs: Any) -> bool:
        """Whether a copy is one between host and device, in whichever direction, that torch waits
        for: it does unless it is told not to."""
        if name == "aten::_to_copy":
            target, source, rest = kwargs.get("device"), args[0].device, ()
        else:
            target, source, rest = args[0].device, args[1].device, args[2:]
        if target is None or kwargs.get("non_blocking", any(rest)):
            return False
        return {torch.device(target).type, source.type} == {"cpu", self.device.type}

    def _is_here(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == self.device.type


def find_line(frame: FrameType | None) -> str:
    """``model.py:12 in forward``: the first line outside of torch and Python's own library, from
    ``frame`` up; of a step that ftax wrote, its function."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file == train.__code__.co_filename:
            return "ftax.train"
        if is_own_line(frame):
            return f"{shorten(file)}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return "backward pass"


def is_own_line(frame: FrameType) -> bool:
    """Whether a file that somebody can change holds it: none of torch's, ftax's or Python's."""
    file = frame.f_code.co_filename
    return not file.startswith("<") and not is_library(file)


def shorten(file: str) -> str:
    """Without the folders of this machine, since a record may be published."""
    _, _, inside = file.rpartition("site-packages/")
    return inside if inside != file else Path(file).name
