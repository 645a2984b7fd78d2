"""Odd programs of modules under autograd; importing this enters all of them into the table."""

from hostile.followed import (
    functions,
    inputs,
    layers,
    losses,
    modes,
    numbers,
    results,
    training,
    weights,
)

__all__ = [
    "functions",
    "inputs",
    "layers",
    "losses",
    "modes",
    "numbers",
    "results",
    "training",
    "weights",
]
