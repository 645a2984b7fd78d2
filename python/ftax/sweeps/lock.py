"""One sweep at a time may write to a folder.

The lock is the kernel's on an open file, so a process that dies, however it dies, holds it no
longer; the file that stays behind is not the lock and says only who had it last. It is not
filelock's, which until its latest releases empties the file of whoever holds the lock, and so
forgets who that is.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ftax.errors import ResultsError

LOCK_FILE = "lock"


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make the folder, and hold its lock inside. A folder that was made for nothing goes again.

    Raises ResultsError if another process holds it, with its pid, or the folder cannot be made.
    """
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise ResultsError(
            f"{folder}: {error.strerror}; choose a folder that can be written"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise ResultsError(
                f"another sweep (process {owner}) is writing to {folder}; wait for it, end it, or "
                "choose another folder"
            ) from None
        _write_pid(folder, descriptor)
        yield
        is_new = False
    finally:
        if is_new and os.listdir(folder) == [LOCK_FILE]:
            (folder / LOCK_FILE).unlink()
            folder.rmdir()
        os.close(descriptor)


def _write_pid(folder: Path, descriptor: int) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        raise ResultsError(
            f"{folder / LOCK_FILE}: {error.strerror}; free space on the disk, or choose another "
            "folder"
        ) from error
