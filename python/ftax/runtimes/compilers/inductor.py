"""What torch.compile and AOTInductor share: own caches, a sound C++ compiler, short errors.

Where the compiler would link its static libstdc++, inductor is given a script around it that puts
the shared one first. A library with a C++ runtime of its own, loaded beside torch, shares half of
its symbols with torch's and crashes the process (see also cmake/FtaxStandardLibrary.cmake).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ftax.runtimes.cache import get_or_make
from ftax.runtimes.candidates import environment_with

_SCRIPT = """#!/bin/sh
case " $* " in *" -shared "*) set -- "$@" {flag} ;; esac
exec {compiler} "$@"
"""

# Who compiles, and the function of torch that its seconds are booked by; each calls the next one.
_PHASES = (
    ("TorchDynamo", "_compile.compile_inner"),
    ("AOTAutograd", "OutputGraph.call_user_compiler"),
    ("Inductor", "compile_fx_inner"),
    ("generated code", "GraphLowering.compile_to_module"),
)


@contextmanager
def caches_in(folder: Path) -> Iterator[None]:
    """Inside, inductor and Triton keep all that they compile in ``folder``, and know nothing else.

    What was compiled before stays usable.
    """
    with without_warnings():
        from torch._inductor.utils import clear_caches

    variables = {
        "TORCHINDUCTOR_CACHE_DIR": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
    clear_caches()
    try:
        with environment_with(variables):
            yield
    finally:
        clear_caches()


@contextmanager
def without_warnings() -> Iterator[None]:
    """Inside, Python's warnings are dropped: torch's compilers warn of torch's own code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def sound_compiler() -> Iterator[str | None]:
    """Inside, what inductor compiles links the libstdc++ that torch has loaded.

    Yields the path of that library where the compiler had to be told, None where it does so anyway.
    """
    import torch._inductor.config as config

    command = _compiler_command(config.cpp.cxx)
    library = find_library_to_link(command)
    if library is None:
        yield None
        return
    with config.patch({"cpp.cxx": (None, str(_make_script(command, library)))}):
        yield library


def find_library_to_link(command: list[str]) -> str | None:
    """The loaded libstdc++ if the compiler would link a static one, None otherwise.

    A compiler that is missing is left to inductor, which says so better.
    """
    try:
        found = subprocess.run(
            [*command, "-print-file-name=libstdc++.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    if os.path.isabs(found):  # a bare name means: not found
        return None
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "libstdc++.so.6" in path:
            return path
    return None


def read_counters() -> dict[str, dict[str, int]]:
    """A copy of dynamo's and inductor's counters."""
    from torch._dynamo.utils import counters

    return {group: dict(values) for group, values in counters.items()}


def count_since(before: Mapping[str, Mapping[str, int]], group: str) -> dict[str, int]:
    """How much the counters of ``group`` have grown since `read_counters` gave ``before``."""
    old: Mapping[str, int] = before.get(group, {})
    grown = {
        name: value - old.get(name, 0) for name, value in read_counters().get(group, {}).items()
    }
    return {name: value for name, value in grown.items() if value}


def _compiler_command(cxx: Any) -> list[str]:
    """The compiler that inductor would use: the last candidate; the one before it is Conda's."""
    candidates = cxx if isinstance(cxx, (list, tuple)) else (cxx,)
    named = [item for item in candidates if item]
    return shlex.split(str(named[-1])) if named else ["g++"]


def _make_script(command: list[str], library: str) -> Path:
    """The compiler with ``library`` ahead of its own; kept, because inductor's caches know it by
    its path. Its name is the compiler's, by which inductor tells what it can do."""
    name = Path(command[0]).name
    text = _SCRIPT.format(compiler=shlex.join(command), flag=shlex.quote(f"-Wl,{library}"))

    def make(folder: Path) -> dict[str, object]:
        script = folder / name
        script.write_text(text)
        script.chmod(0o755)
        return {}

    key = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return get_or_make(key, "compiler", make).folder / name


def name_device(device: str) -> str:
    """The device's model, for which compiled code is made."""
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else "cpu"


def start_phases() -> Callable[[], dict[str, float]]:
    """From here on it is watched who compiles. What is returned gives the seconds since, each
    without what it called; none if torch does not tell."""
    from torch._dynamo.utils import compilation_time_metrics

    def read() -> list[float]:
        return [sum(compilation_time_metrics.get(function, ())) for _, function in _PHASES]

    before = read()

    def split() -> dict[str, float]:
        # Only now is one taken from the other: AOTInductor calls the inner ones without the outer.
        taken = [now - then for now, then in zip(read(), before, strict=True)]
        if not any(taken):
            return {}
        return {
            name: max(0.0, seconds - inner)
            for (name, _), seconds, inner in zip(_PHASES, taken, [*taken[1:], 0.0], strict=True)
        }

    return split
