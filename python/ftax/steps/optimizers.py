"""Optimizers whose step calls a closure (forward and backward) as often as values ask for.

They are known by their signature. An optimizer that merely takes a closure has a default for it and
calls it once, or so often each time; LBFGS has none.
"""

from __future__ import annotations

import inspect

from torch.optim.optimizer import Optimizer


def needs_closure(optimizer: Optimizer) -> bool:
    """Whether its step cannot do without a closure."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def explain_closure(optimizer: Optimizer) -> str:
    """Why no recording can stand for its step, and what can be captured in its place."""
    return (
        f"{type(optimizer).__name__} reads numbers on the host to decide how often it calls its "
        "closure, and a replay would repeat the decisions of one run; capture the closure (forward "
        "and backward): fast = ftax.capture(closure, ()), then optimizer.step(fast)"
    )
