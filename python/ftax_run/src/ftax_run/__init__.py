"""`ftax run`: what keeps a program's GPU waiting, by line, without changing the program."""

from __future__ import annotations

from ftax_run.iteration import iteration

__version__ = "0.1.0"
__all__ = ["__version__", "iteration"]
