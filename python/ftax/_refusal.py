"""Ends the `ftax` command if ftax cannot be imported: 3, it is not available here; 130 for Ctrl-C.

The surprising choice: this is asked while `import ftax` fails. Python would end with 1, which a
gate around `ftax compare` takes for slower, on the day that somebody updates torch.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

_LACKING = 3
_INTERRUPTED = 130


def is_command() -> bool:
    """Whether this process was started as ``ftax`` or ``python -m ftax``."""
    if sys.argv[:1] == ["-m"]:  # as long as Python looks for the module
        given = sys.orig_argv
        return "-m" in given and given[given.index("-m") + 1 :][:1] == ["ftax"]
    return bool(sys.argv) and os.path.basename(sys.argv[0]) == "ftax"


def refuse(error: ImportError | KeyboardInterrupt) -> NoReturn:
    """End this process with a sentence and an exit code."""
    if isinstance(error, KeyboardInterrupt):
        sys.exit(_INTERRUPTED)
    print(f"ftax: {error}", file=sys.stderr)
    sys.exit(_LACKING)
