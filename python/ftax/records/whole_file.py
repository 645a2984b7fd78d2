"""Files that are written whole or not at all: a reader never sees half of one, and what cannot be
written leaves what was there before.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: str | Path, content: bytes) -> None:
    """Write ``content`` to ``path``, in the place of what was there; what a link names is written,
    and the link stays. A device or a pipe, which cannot be replaced, is written to.

    Raises OSError, and leaves the file as it was.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:64]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # as any new file; temporary ones are for their owner only
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
