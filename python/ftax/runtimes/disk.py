"""Writes what torch would write to a path: it writes into memory, and Python to the disk.

The surprising choice: torch is never given the path, though a copy then passes through memory.
Where the disk is full, torch's C++ writer throws while it is being destroyed, and that ends the
process; Python raises.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ftax.errors import UnavailableError


def write_through_memory(path: Path, save: Callable[[io.BytesIO], object]) -> None:
    """Write what ``save`` writes into a buffer to ``path``.

    Raises UnavailableError, with how much is needed and how much is free, if it does not fit or
    cannot be written; nothing is left at ``path`` then.
    """
    buffer = io.BytesIO()
    save(buffer)
    content = buffer.getbuffer()
    try:
        with path.open("wb") as file:
            file.write(content)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise UnavailableError(
            f"{path} cannot be written ({error.strerror or error}): it takes {content.nbytes:,} "
            f"bytes, and {_find_free(path.parent)} are free there; make room, or choose another "
            "folder (FTAX_CACHE for what is kept, TMPDIR for what is not)"
        ) from error


def _find_free(folder: Path) -> str:
    try:
        return f"{shutil.disk_usage(folder).free:,}"
    except OSError:
        return "an unknown number"
