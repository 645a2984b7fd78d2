"""`ftax --version`, and the versions that a report of a fault names.

Torch's kind and ftax's are said apart. An ftax whose build found no nvcc has no CUDA parts,
whatever torch has.
"""

from __future__ import annotations

import platform

import typer

from ftax.reports.terminal import say


def describe_versions() -> str:
    """``ftax 0.1.0 (CPU build), torch 2.13.0+cpu (CPU build), Python 3.11.7, Linux x86_64``."""
    import torch

    from ftax import _build_info as built

    return (
        f"ftax {built.VERSION} ({_describe(built.TORCH_CUDA if built.WITH_CUDA else None)}), "
        f"torch {torch.__version__} ({_describe(torch.version.cuda)}), "
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )


def _describe(cuda: str | None) -> str:
    return f"CUDA {cuda} build" if cuda else "CPU build"


def show_version(given: bool) -> None:
    """The callback of ``--version``: print and end."""
    if given:
        say(describe_versions(), error=False)
        raise typer.Exit
