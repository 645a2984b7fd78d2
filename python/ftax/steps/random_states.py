"""Has a run read and set the state of torch's generator on the host by operators of ftax.

Activation checkpointing keeps the state of the forward pass and draws from it again in the backward
pass. As operators, a tape holds both, and a replay draws anew what eager would.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ftax import _core  # noqa: F401  (which has the operators)


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
