"""Odd programs of modules under autograd; importing this enters all of them into the table."""

from hostile.followed import inputs, layers, losses, modes, results, weights

__all__ = ["inputs", "layers", "losses", "modes", "results", "weights"]
