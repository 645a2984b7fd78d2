"""Checks that the torch at hand is the torch that the compiled core was built for.

It runs before the core is loaded: against another torch, loading fails with an undefined C++ symbol
at best and crashes later at worst.
"""

from __future__ import annotations

import torch

_REBUILD = "rebuild ftax with `pip install --no-build-isolation --force-reinstall --no-deps .`"


def check_build() -> None:
    """Raise ImportError with the remedy unless torch's major.minor version and CUDA match."""
    try:
        from ftax import _build_info as built
    except ImportError:
        raise ImportError(
            "ftax is not built: run `pip install --no-build-isolation .` in its source folder"
        ) from None
    problem = describe_mismatch(
        built_version=built.TORCH_VERSION,
        built_cuda=built.TORCH_CUDA,
        version=str(torch.__version__),
        cuda=torch.version.cuda,
    )
    if problem:
        raise ImportError(f"{problem}; {_REBUILD}")


def describe_mismatch(
    *, built_version: str, built_cuda: str | None, version: str, cuda: str | None
) -> str | None:
    """Say how the build and the torch at hand differ; None when they agree."""
    if built_version.split(".")[:2] != version.split(".")[:2]:
        return f"ftax was built for torch {built_version}, but this is torch {version}"
    if built_cuda != cuda:
        built_for, at_hand = built_cuda or "no CUDA", cuda or "no CUDA"
        return f"ftax was built for a torch with {built_for}, but this one has {at_hand}"
    return None
