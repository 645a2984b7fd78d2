"""Random numbers of what is recorded while other threads draw from torch's generators.

Checks seed a generator before each run and put its state back. Beside other threads that would give
numbers twice, so operators are given generators that are made for the recording.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ftax import _core


class _Own(threading.local):
    generators: tuple[torch.Generator, ...] = ()


_own = _Own()


@contextmanager
def beside_other_threads() -> Iterator[None]:
    """Inside, in this thread, the generators of the process are neither seeded nor put back."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    own = (torch.Generator(), *(torch.Generator(f"cuda:{index}") for index in devices))
    before, _own.generators = _own.generators, own
    try:
        with _core.OwnGenerators(own):
            yield
    finally:
        _own.generators = before


def list_own_generators() -> tuple[torch.Generator, ...]:
    """Those from which this thread draws inside of `beside_other_threads`; none outside."""
    return _own.generators


@contextmanager
def keep_drawing() -> Iterator[None]:
    """For what a mode calls, whose operators would draw from those of the process again: torch
    excludes for it all that stands above Python's modes."""
    if not _own.generators:
        yield
        return
    before = _core.exclude_own_generators(False)
    try:
        yield
    finally:
        _core.exclude_own_generators(before)
