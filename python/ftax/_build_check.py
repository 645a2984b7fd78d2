"""Checks that the torch at hand is the torch that the compiled core was built for, and ends the
`ftax` command where ftax cannot be imported: 3, it is not available here; 130 for Ctrl-C.

It runs before the core is loaded: against another torch, loading fails with an undefined C++ symbol
at best and crashes later at worst. Whether this is the command is asked while `import ftax` fails.
Python would end with 1, which a gate around `ftax compare` takes for slower, on the day that
somebody updates torch.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

_REBUILD = (
    "or build ftax for this one: `pip install --no-build-isolation --force-reinstall --no-deps .` "
    "in its source folder"
)

_LACKING = 3
_INTERRUPTED = 130


def check_build() -> None:
    """Raise ImportError with the remedy unless torch's major.minor version and CUDA match."""
    import torch  # may be missing, which is for `refuse` to say

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
        raise ImportError(f"{problem}, {_REBUILD}")


def describe_mismatch(
    *, built_version: str, built_cuda: str | None, version: str, cuda: str | None
) -> str | None:
    """Say how the build and the torch at hand differ, and which torch would do; None when they
    agree."""
    minor = built_version.split(".")[:2]
    if minor != version.split(".")[:2]:
        return (
            f"ftax was built for torch {built_version}, but this is torch {version}: "
            f"`pip install 'torch=={'.'.join(minor)}.*'`"
        )
    if built_cuda != cuda:
        return (
            f"ftax was built for {_describe_kind(built_cuda)} of torch, but this is "
            f"{_describe_kind(cuda)}: install the other one"
        )
    return None


def _describe_kind(cuda: str | None) -> str:
    return f"the CUDA {cuda} build" if cuda else "the CPU build"


def is_command() -> bool:
    """Whether this process was started as ``ftax`` or ``python -m ftax``."""
    if sys.argv[:1] == ["-m"]:  # as long as Python looks for the module
        given = sys.orig_argv
        return "-m" in given and given[given.index("-m") + 1 :][:1] == ["ftax"]
    return bool(sys.argv) and os.path.basename(sys.argv[0]) == "ftax"


def is_run() -> bool:
    """Whether this process is `ftax run`, which needs neither torch nor the core."""
    return is_command() and sys.argv[1:2] == ["run"]


def refuse(error: ImportError | KeyboardInterrupt) -> NoReturn:
    """End this process with a sentence and an exit code."""
    if isinstance(error, KeyboardInterrupt):
        sys.exit(_INTERRUPTED)
    print(f"ftax: {error}", file=sys.stderr)
    sys.exit(_LACKING)
