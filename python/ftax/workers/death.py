"""What a worker process died of, in the words that its parent passes on."""

from __future__ import annotations

import signal

_NAMES = {item.value: item.name for item in signal.Signals}


def name_signal(code: int) -> str | None:
    """The signal that ended a process of this exit status; None if it ended by itself."""
    return None if code >= 0 else _NAMES.get(-code, f"signal {-code}")


def read_last_line(stderr: str) -> str:
    """The last line that says something; Python's own is the error."""
    lines = stderr.strip().splitlines()
    return lines[-1] if lines else ""
