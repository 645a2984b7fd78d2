"""Progress for whoever waits: a bar in a terminal, a line in a notebook, and nothing in a pipe."""

import os
import pty
import select
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

import ftax.reports.progress as place
from ftax import InvalidArgumentError, Plan
from ftax.reports.progress import is_watched, show_progress
from ftax.timing.watched import tell_interrupted, watched
from support.forks import run_python

SCRIPT = """
import time
from ftax.timing.watched import watched
with watched({progress}, "bert-base") as tell:
    print(tell is None, flush=True)
    for place in range(3):
        tell and tell("round", place, 3)
"""


def run_in_terminal(script):
    """What a script shows on a terminal of its own, and what it prints to a pipe."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=theirs,
        stdin=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    seen, end = b"", time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    printed = process.communicate(timeout=30)[0].decode()
    os.close(ours)
    return seen.decode(), printed


def test_a_terminal_gets_a_bar_from_python_too():
    seen, printed = run_in_terminal(SCRIPT.format(progress=None))
    assert printed == "False\n"
    assert "bert-base: round" in seen and "2/3" in seen and "at most 0 s left" in seen


def test_false_is_silence_and_a_pipe_gets_nothing():
    assert run_in_terminal(SCRIPT.format(progress=False)) == ("", "True\n")
    done = run_python(SCRIPT.format(progress=None))
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_true_is_a_line_a_phase_where_nobody_sees_what_moves(capsys):
    assert not is_watched()
    with watched(True, "bert-base") as tell:
        for done in range(3):
            tell("warmup", done, 3)
        tell("round", 0, 9)
    assert capsys.readouterr().err == "bert-base: warmup\nbert-base: round\n"


def test_a_callback_is_the_callers_own_business(capsys):
    told = []
    with watched(lambda *what: told.append(what), "bert-base") as tell:
        tell("round", 1, 2)
    assert told == [("round", 1, 2)] and capsys.readouterr() == ("", "")


@pytest.mark.parametrize("progress", ["yes", 3])
def test_anything_else_is_refused(progress):
    said = f"progress is {progress!r}; give a function"
    with pytest.raises(InvalidArgumentError, match=said), watched(progress, "bert-base"):
        pass


@pytest.fixture
def notebook(monkeypatch):
    """A kernel whose display keeps what it was given."""
    shown = []

    def display(data, *, raw, display_id):
        assert raw and display_id
        shown.append(data)
        return SimpleNamespace(update=lambda data, raw: shown.append(data))

    module = type(sys)("IPython")
    module.get_ipython = lambda: SimpleNamespace(kernel=object())
    module.display = type(sys)("IPython.display")
    module.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", module.display)
    return shown


def test_a_notebook_gets_a_line_that_is_gone_afterwards(notebook, capsys):
    with watched(None, type("Net", (), {})(), Plan(duration_s=60.0)) as tell:
        tell("preparing\x1b[2J", 0, 1)
        tell("round", 0, 200)
    texts = [data["text/plain"] for data in notebook]
    assert texts[0] == texts[-1] == ""
    assert texts[1] == r"Net: preparing\x1b[2J  0/1"
    assert texts[2].startswith("Net: round  0/200  at most ") and texts[2].endswith(" s left")
    assert capsys.readouterr() == ("", "")


def test_a_prompt_of_ipython_is_no_notebook(monkeypatch):
    module = type(sys)("IPython")
    module.get_ipython = SimpleNamespace
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert not is_watched()


def test_the_time_left_is_the_less_of_what_the_limit_and_the_rounds_leave(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(place.time, "monotonic", lambda: clock[0])
    left = place._Left(30.0)
    assert left.tell("preparing", 0, 1) == ""
    clock[0] = 5.0
    assert left.tell("warmup", 0, 2) == "at most 30 s left"
    clock[0] = 9.0
    assert left.tell("warmup", 1, 2) == "at most 4 s left"  # as long again
    clock[0] = 10.0
    assert left.tell("round", 0, 200) == "at most 25 s left"  # warm-up counts
    clock[0] = 20.0
    assert left.tell("round", 10, 200) == "at most 15 s left"
    clock[0] = 21.0
    assert left.tell("round", 199, 200) == "at most 0 s left"
    clock[0] = 40.0
    assert left.tell("round", 199, 2000) == "at most 0 s left"  # the last round ends later
    assert left.tell("tracing", 0, 5) == ""
    assert place._Left(None).tell("round", 0, 5) == ""


def test_what_other_phases_did_says_nothing_of_how_long_this_one_takes(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(place.time, "monotonic", lambda: clock[0])
    left = place._Left(30.0)
    assert left.tell("preparing compile", 0, 7) == ""
    clock[0] = 60.0
    assert left.tell("preparing inductor-call", 1, 7) == ""
    assert left.tell("cells", 3, 9) == ""  # resumed: three were there
    clock[0] = 70.0
    assert left.tell("cells", 5, 9) == "at most 20 s left"


@pytest.mark.parametrize(
    ("progress", "is_told"), [(None, True), (True, True), (False, False), (print, False)]
)
def test_ctrl_c_is_told_to_who_brings_no_callback(progress, is_told, capsys):
    tell_interrupted(progress, "interrupted", "12 rounds")
    tell_interrupted(progress, "precise", "12 rounds")
    said = "interrupted after 12 rounds: the result is of these; call again for all of them\n"
    assert capsys.readouterr().err == said * is_told


def test_lines_of_the_command_line_come_without_a_terminal(capsys):
    with show_progress("sweep") as tell:
        tell("cells", 1, 3)
    assert capsys.readouterr().err == "sweep: cells\n"
