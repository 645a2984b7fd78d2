"""Random numbers of a recorded run: generators that are made for it, and states as operators.

Checks seed a generator before each run and put its state back. Beside other threads that would give
numbers twice, so operators are given generators that are made for the recording.

Activation checkpointing keeps the state of the forward pass and draws from it again in the backward
pass. As operators, a tape holds both, and a replay draws anew what eager would.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ftax import _core  # which has the operators


class Calls:
    """``count``: how many there were."""

    count = 0


@contextmanager
def random_states_as_operators() -> Iterator[Calls]:
    """Inside, in this thread, `torch.get_rng_state` and `set_rng_state` are operator calls."""
    thread, calls = threading.get_ident(), Calls()
    get_state, set_state = torch.get_rng_state, torch.set_rng_state

    def get() -> torch.Tensor:
        if threading.get_ident() != thread:
            return get_state()
        calls.count += 1
        state: torch.Tensor = torch.ops.ftax.get_rng_state()
        return state

    def put(new_state: torch.Tensor) -> None:
        if threading.get_ident() != thread:
            set_state(new_state)
            return
        calls.count += 1
        torch.ops.ftax.set_rng_state(new_state)

    torch.get_rng_state, torch.set_rng_state = get, put
    try:
        yield calls
    finally:
        torch.get_rng_state, torch.set_rng_state = get_state, set_state


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
