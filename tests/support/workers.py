"""Shell scripts in the place of a worker's interpreter, and tasks for real ones.

A script is ready at once and is given its job as the variable $job.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ftax.errors import InvalidArgumentError
from ftax.workers.child import Line

HERE = {"PYTHONPATH": str(Path(__file__).parents[1])}  # the environment of a worker that has these


def use_script(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Let ``script`` be what every worker runs."""
    interpreter = folder / "worker"
    ready = say("ready")
    interpreter.write_text(f"#!/bin/sh\n{ready}\nread job\n{script}\n")
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))


def say(what: str, **fields: Any) -> str:
    """A line of a script that answers."""
    return f"echo '{json.dumps({'say': what, **fields})}'"


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_until_gone(pid: int, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


class LostContextError(InvalidArgumentError):
    """Known here alone."""


def obey(job: Mapping[str, Any], line: Line) -> Any:
    """A task that does what it is told to."""
    name, value = job["do"], job.get("value")
    if name == "echo":
        return {"value": value, "pid": os.getpid(), "seen": os.environ.get("FTAX_TEST_SEEN")}
    if name == "print":
        print("not an answer")
        os.write(1, b'{"say": "done", "result": "forged"}\n')
        subprocess.run(["echo", "nor this"], check=True)
        return sys.stdin.read()
    if name == "ask":
        line.say("question", value=value)
        return line.hear()
    if name == "refuse":
        raise LostContextError("bad value; give another")
    if name == "answer, then die":
        line.say("found", value=value)
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "die of ending":
        line.say("found", value=value)
        atexit.register(os._exit, 9)
    return None
