"""Runs a program a second time, until its hottest call, which ftax then measures in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ftax_run.errors import RunError
from ftax_run.launch import add_hook, list_processes, pass_signals, read_identity
from ftax_run.target import Target

_POLL_S = 0.05
_GRACE_S = 5.0  # for other processes than those that are measured
_PATIENCE_S = 60.0  # after a call that could not be measured, for one that can


def require_ftax(command: list[str]) -> None:
    """Raises RunError where the Python that is started has no ftax."""
    if not Path(command[0]).name.startswith("python"):
        return  # it is said when the call is reached
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ftax') is None)"
    with suppress(OSError):  # which is said where the program is started
        if subprocess.run([command[0], "-c", look], check=False).returncode == 1:
            raise RunError(f"--receipt needs ftax in the program's environment: "
                           f"{command[0]} -m pip install ftax")  # fmt: skip


def measure(
    command: list[str], targets: list[Target], path: Path | None, plan: dict[str, float]
) -> str:
    """The receipt of the best of these calls is printed, and written to ``path``. Says why there is
    none, or nothing."""
    if not targets:
        return "No receipt: no function of the program was seen to run"
    folder = Path(tempfile.mkdtemp(prefix="ftax-run-"))
    try:
        environment = _prepare(folder, targets, path, plan)
        with pass_signals() as pass_to:
            # Its output has been seen, and its input is used up; errors are shown.
            program = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            pass_to(program)
            while program.poll() is None:
                if _is_over(folder):
                    _end_all(program.pid, _find_measured(folder))
                time.sleep(_POLL_S)
        return _explain(folder, targets, program.returncode)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(
    folder: Path, targets: list[Target], path: Path | None, plan: dict[str, float]
) -> dict[str, str]:
    """What is read inside, and the environment with which Python finds it."""
    hook = folder / "python"
    hook.mkdir()
    order = {
        "targets": [
            (target.file, target.line, target.name, target.is_module, target.caller)
            for target in targets
        ],
        "path": None if path is None else str(path.absolute()),
        "plan": plan,
        "python_path": os.environ.get("PYTHONPATH"),
    }
    (folder / "order.json").write_text(json.dumps(order))
    return add_hook(hook, {**os.environ, "FTAX_RUN_TARGETS": str(folder)})


def _find_measured(folder: Path) -> int:
    """The process in which the call was measured; 0 while there is none."""
    try:
        return int((folder / "measured").read_text())
    except (OSError, ValueError):  # not yet, or not yet written
        return 0


def _is_over(folder: Path) -> bool:
    """Whether there is a receipt, or what could be measured was refused and nothing else comes."""
    if _find_measured(folder):
        return True
    refused = folder / "refused"
    if not refused.exists() or (folder / "claimed").exists():
        return False
    return time.time() - refused.stat().st_mtime > _PATIENCE_S


def _end_all(first: int, measured: int) -> None:
    """End a program whose call was measured: at once, before it does what it has done already.
    Other processes are asked to end, since some put away what all have shared."""
    everyone = {*list_processes(first), *([measured] if measured else [])}
    for pid in everyone:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if pid in (first, measured) else signal.SIGTERM)
    end = time.monotonic() + _GRACE_S
    others = everyone - {first, measured}
    while others and time.monotonic() < end:
        others = {pid for pid in others if read_identity(pid) is not None}
        time.sleep(_POLL_S)
    for pid in others:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _explain(folder: Path, targets: list[Target], exit_code: int) -> str:
    if _find_measured(folder):
        return ""
    problems = folder / "problems"
    passed = problems.read_text().splitlines() if problems.exists() else []
    if (folder / "refused").exists():
        return "\n  ".join(["No receipt: nothing that takes the time could be measured", *passed])
    best = targets[0]
    ended = (f"No receipt: the program ended (exit code {exit_code}) before {best.name}, called at "
             f"{best.caller}, was called 20 times")  # fmt: skip
    return "\n  ".join([ended, *passed])
