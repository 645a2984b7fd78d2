"""What has to be known of a running process before its Python stacks can be read: which Python it
runs, and where that keeps its state. Found in the symbols of its executable and libraries, without
a line of code in that process."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ftax_run.errors import UnknownPythonError
from ftax_run.layouts import find_layout

_WANTED = (b"_PyRuntime", b"Py_Version", b"PyCode_Type")
_SYMBOL_TABLES = (11, 2)  # SHT_DYNSYM, then SHT_SYMTAB of an executable that exports nothing
_LOAD = 1
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_known_files: dict[
    tuple[int, int, int], tuple[int, dict[bytes, int]]
] = {}  # by device, inode, time


@dataclass(frozen=True, slots=True)
class PythonProcess:
    """One process that runs Python."""

    pid: int
    version: tuple[int, int, int]
    runtime: int  # addresses in that process
    code_type: int
    layout: list[int]


def find_python(pid: int) -> PythonProcess | None:
    """None for a process without Python's symbols. Raises UnknownPythonError for a Python whose
    frames are not known, and OSError where the process is gone or may not be read."""
    for path, base in _list_programs(pid):
        lowest, symbols = _read_symbols(path)
        if not all(name in symbols for name in _WANTED):
            continue
        runtime, version_at, code_type = (base - lowest + symbols[name] for name in _WANTED)
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            number = struct.unpack("<Q", _read(memory.fileno(), version_at, 8))[0]
            version = (number >> 24 & 255, number >> 16 & 255, number >> 8 & 255)
            if version[0] != 3:
                raise UnknownPythonError(f"process {pid} has an unknown Python ({number:#x})")
            layout = find_layout(version[:2], partial(_read, memory.fileno(), runtime))
        _check_numbers(pid)
        return PythonProcess(pid, version, runtime, code_type, layout)
    return None


def _check_numbers(pid: int) -> None:
    """Python notes the numbers of its threads, which have to be those that are seen from here."""
    status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
    if len(numbers) > 1:
        raise UnknownPythonError(
            f"process {pid} is number {numbers[-1]} in a sandbox or container that the program "
            "starts: start `ftax run` inside it"
        )


def explain_refusal(pid: int) -> str:
    """Why the system does not let a process be read, and what to do about it."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:  # it has ended
        name, owner = "?", os.geteuid()
    said = f"process {pid} ({name}) may not be read, so it has no stacks:"
    if (scope := _read_ptrace_scope()) >= 2:
        remedy = "sudo sysctl kernel.yama.ptrace_scope=1" if scope == 2 else "boot with 1"
        return f"{said} kernel.yama.ptrace_scope is {scope}: {remedy}, or be root"
    if owner != os.geteuid():
        return f"{said} it is of user {owner}, or hides itself: run `ftax run` as that user or root"
    remedy = "allow ptrace (docker: --cap-add=SYS_PTRACE)"
    return f"{said} it hides itself, or a container or sandbox forbids it: {remedy}"


def _read_ptrace_scope() -> int:
    """0 where the system has no such setting."""
    try:
        return int(_PTRACE_SCOPE.read_text())
    except (OSError, ValueError):
        return 0


def _read(file: int, address: int, count: int) -> bytes:
    content = os.pread(file, count, address)
    if len(content) != count:
        raise OSError(f"{count} bytes at {address:#x} cannot be read")
    return content


def _list_programs(pid: int) -> Iterator[tuple[Path, int]]:
    """The executable and libraries named after Python that are mapped, with their addresses."""
    executable = os.readlink(f"/proc/{pid}/exe")
    met = set()
    # As os.readlink has it, names may be any bytes.
    for line in Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").split("\n")[:-1]:
        fields = line.split(maxsplit=5)
        name = fields[5] if len(fields) > 5 else ""
        if int(fields[2], 16) or name in met:
            continue
        if name == executable or Path(name).name.startswith("libpython"):
            met.add(name)
            # The link leads to the executable even where that has been renamed or deleted.
            link = "exe" if name == executable else f"root{name}"
            yield Path(f"/proc/{pid}/{link}"), int(fields[0].partition("-")[0], 16)


def _read_symbols(path: Path) -> tuple[int, Mapping[bytes, int]]:
    """The address that a file was linked for, and those of the symbols that are wanted."""
    status = path.stat()
    key = (status.st_dev, status.st_ino, status.st_mtime_ns)
    if key not in _known_files:
        try:
            _known_files[key] = _parse_symbols(path)
        except (struct.error, IndexError, ValueError):  # no file that the loader would take either
            _known_files[key] = (0, {})
    return _known_files[key]


def _parse_symbols(path: Path) -> tuple[int, dict[bytes, int]]:
    """An ELF file of 64 bits, least significant byte first."""
    with path.open("rb") as file:

        def read(offset: int, count: int) -> bytes:
            file.seek(offset)
            return file.read(count)

        head = read(0, 64)
        if head[:6] != b"\x7fELF\x02\x01":
            return 0, {}
        program_at, section_at = struct.unpack_from("<QQ", head, 32)
        program_size, program_count, section_size, section_count = struct.unpack_from(
            "<HHHH", head, 54
        )
        programs = read(program_at, program_size * program_count)
        loads = [
            struct.unpack_from("<Q", programs, start + 16)[0]
            for start in range(0, len(programs), program_size)
            if struct.unpack_from("<I", programs, start)[0] == _LOAD
        ]
        sections = [
            struct.unpack_from("<IIQQQQIIQQ", read(section_at, section_size * section_count), start)
            for start in range(0, section_size * section_count, section_size)
        ]
        found: dict[bytes, int] = {}
        for kind in _SYMBOL_TABLES:
            for section in sections:
                if section[1] == kind and len(found) < len(_WANTED):
                    names = sections[section[6]]
                    found |= _find_symbols(read(section[4], section[5]), read(names[4], names[5]))
    return min(loads, default=0) & ~0xFFF, found


def _find_symbols(table: bytes, names: bytes) -> dict[bytes, int]:
    places = {}
    for wanted in _WANTED:
        start = names.find(b"\0" + wanted + b"\0")
        if start >= 0:
            places[start + 1] = wanted
    found = {}
    for name, _, _, section, value, _ in struct.iter_unpack("<IBBHQQ", table):
        if name in places and section:
            found[places[name]] = value
    return found
