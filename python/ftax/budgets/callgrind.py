"""Host instructions of one call, as valgrind's callgrind counts them: all those of the process, in
user space. valgrind translates the process that it runs, and shows it the same CPU on each machine;
so the count is the same in each run of the same software in the same surroundings. Elsewhere it
differs by some tenths of a percent, since what allocators and dictionaries do depends on addresses.

Only the counted call is instrumented. What switches that on is a request to valgrind: a sequence of
instructions that does nothing elsewhere. It is written here as machine code, so that neither
valgrind's headers nor a compiler is needed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath

import torch

from ftax.budgets.counts import Notes, Tally
from ftax.errors import RunnerError, UnavailableError

# mov rax, rdi; xor edx, edx; rol rdi, 3; rol rdi, 13; rol rdi, 61; rol rdi, 51; xchg rbx, rbx;
# mov rax, rdx; ret: a function of the address of a request's six words (valgrind.h).
_CODE = bytes.fromhex("4889f8 31d2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3")
_RUNNING_ON_VALGRIND = 0x1001
_DUMP, _START, _STOP = (0x43540000 + number for number in (0, 4, 5))  # of callgrind.h, "CT"
_OUTPUT = "profile"
_TUNABLES = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=65535"}
# What Python, torch and its libraries read when they are loaded.
_EARLY = re.compile(
    r"PATH|HOME|TMPDIR|LANG|(LC_|LD_|PYTHON|OMP_|KMP_|GOMP_|MKL_|DNNL_|ONEDNN_|ATEN_|PYTORCH_|TORCH).*"
)
_LEAST_SHARE = 0.01  # of all instructions: a function with fewer is not named
_NAME = re.compile(r"(?P<kind>c?(?:ob|fn)|c?f[lie])=\((?P<id>\d+)\)(?: (?P<name>.*))?")
_RECURSION = re.compile(r"'\d+$")


def make_command(folder: Path) -> list[str]:
    """What runs a program under callgrind, which writes to ``folder``. Raises UnavailableError
    where there is none."""
    valgrind = shutil.which("valgrind")
    if platform.machine() != "x86_64":
        raise UnavailableError(f"callgrind is used on x86_64, and this is {platform.machine()}")
    if valgrind is None:
        raise UnavailableError(
            "valgrind, whose callgrind counts, is not installed: `apt-get install valgrind`, or "
            "the package of that name elsewhere"
        )
    output = folder / f"{_OUTPUT}.%p"
    return [
        *(valgrind, "--quiet", "--tool=callgrind", "--instr-atstart=no"),
        f"--callgrind-out-file={output}",
    ]


def split_environment(variables: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """With which variables the program starts, and which it is given once it has imported torch: by
    then it has most of the memory in which a step works, so they change less where that lies."""
    early = {name: value for name, value in variables.items() if _EARLY.fullmatch(name)}
    late = {name: value for name, value in variables.items() if name not in early}
    return early | _TUNABLES, late


class Callgrind:
    """Counts calls of this process, which runs under `make_command` of ``folder``. Raises
    UnavailableError if it does not."""

    def __init__(self, folder: Path) -> None:
        memory = mmap.mmap(
            -1, len(_CODE), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
            mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC,
        )  # fmt: skip
        memory.write(_CODE)
        self._code = ctypes.c_char.from_buffer(memory)
        self._call = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(
            ctypes.addressof(self._code)
        )
        self._words = (ctypes.c_uint64 * 6)()
        self._folder, self._dumps = folder, 0
        if not self._ask(_RUNNING_ON_VALGRIND):
            raise UnavailableError("this process does not run under valgrind")

    def _ask(self, request: int) -> int:
        self._words[0] = request
        return int(self._call(ctypes.addressof(self._words)))

    def count(self, call: Callable[[], object]) -> Path:
        """Where the profile of one call is."""
        self._ask(_START)
        try:
            call()
        finally:
            self._ask(_STOP)
        self._ask(_DUMP)
        self._dumps += 1
        return self._folder / f"{_OUTPUT}.{os.getpid()}.{self._dumps}"


def sum_profile(lines: Iterable[str]) -> Counter[tuple[str, str]]:
    """The instructions of a profile (callgrind's format, one event, positions by line), by library
    and function. What a function calls is not its own."""
    names: dict[tuple[str, str], str] = {}
    library = function = ""
    found: Counter[tuple[str, str]] = Counter()
    is_inclusive = False
    for line in lines:
        if line[0].isdigit() or line[0] in "+-*":
            if not is_inclusive:
                _, _, cost = line.partition(" ")
                found[library, function] += int(cost or 0)
            is_inclusive = False
        elif line.startswith("calls="):
            is_inclusive = True
        elif match := _NAME.fullmatch(line.rstrip("\n")):
            kind = match["kind"]
            key = (kind[-2:] if kind[-2:] in ("ob", "fn") else "file", match["id"])
            name = names.setdefault(key, match["name"] or "")
            if kind == "ob":
                library = PurePath(name).name
            elif kind == "fn":
                function = _RECURSION.sub("", name)
    return found


def read_profiles(paths: Sequence[Path]) -> tuple[Tally, str]:
    """The call with the fewest instructions, since what else happens in one only adds to it: one
    fact for each function that ran many of them, and for the rest of each library; and callgrind's
    version, "callgrind-3.19.0". Raises RunnerError where there is no profile."""
    read = [_read(path) for path in paths]
    found, version = min(read, key=lambda each: each[0].total())
    least = _LEAST_SHARE * found.total()
    notes = Notes()
    for (library, function), number in found.items():
        is_named = number >= least and not function.startswith("0x")
        notes.add(function if is_named else "other functions", f"in {library}", count=number)
    return notes.to_tally(), version


def _read(path: Path) -> tuple[Counter[tuple[str, str]], str]:
    try:
        with path.open(errors="replace") as lines:
            found = sum_profile(lines)
            lines.seek(0)
            version = next((line[9:].strip() for line in lines if line.startswith("creator: ")), "")
    except OSError as error:
        raise RunnerError(f"callgrind wrote no {path.name}: {error.strerror}") from error
    return found, version


def describe_software() -> str:
    """All that the count depends on beside the step."""
    libc = " ".join(platform.libc_ver())
    return (
        f"Python {platform.python_version()}, torch {torch.__version__}, {libc}, "
        f"{torch.backends.cpu.get_cpu_capability()} under valgrind"
    )
