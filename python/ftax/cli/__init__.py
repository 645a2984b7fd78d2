"""The command line: `ftax tax bert-base`, `ftax run train.py`, `ftax compare`, ...

Exit codes: 0 done, 1 a comparison says slower, a step is over its budget or a library does not
conform, 2 wrong usage or input, 3 this machine lacks something, 4 what is measured failed, 5 it
cannot be told, 70 a fault of ftax itself, 130 interrupted, 141 whoever read the output has gone.
Nothing is imported before `main`, since a failing import would end with 1.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the ``ftax`` command: errors become one sentence and an exit code."""
    if sys.argv[1:2] == ["run"]:  # it watches a program: torch is that one's affair
        from ftax_run.cli import main as run_program

        run_program(sys.argv[2:])
    try:
        from ftax.cli.commands import app
        from ftax.cli.ending import run
    except (ImportError, KeyboardInterrupt) as error:
        from ftax._build_check import refuse

        refuse(error)
    sys.exit(run(app, sys.argv[1:]))
