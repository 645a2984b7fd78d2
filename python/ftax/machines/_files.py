"""Reads the small text files of /proc and /sys, where a missing file is an answer: unknown."""

import os
from pathlib import Path

# Replaced in tests by a directory that describes another machine.
SYSTEM_ROOT = Path("/")


def read_text(path: str) -> str | None:
    """Return the stripped content of `path` (relative to the root), None if it cannot be read."""
    try:
        return (SYSTEM_ROOT / path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_number(path: str) -> int | None:
    """Return the integer that `path` holds, None if it holds none."""
    text = read_text(path)
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def read_cpu_fields() -> list[dict[str, str]]:
    """Return the fields of each CPU in /proc/cpuinfo that this process may run on."""
    usable = os.sched_getaffinity(0)
    cpus = []
    for block in (read_text("proc/cpuinfo") or "").split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {name.strip(): value.strip() for name, _, value in pairs}
        if fields.get("processor", "").isdigit() and int(fields["processor"]) in usable:
            cpus.append(fields)
    return cpus
