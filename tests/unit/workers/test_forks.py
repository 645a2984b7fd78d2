"""Children that share what their parent imported: asked, listened to, and why they ended."""

from __future__ import annotations

import os
import signal

import pytest

from ftax.errors import InvalidArgumentError, RunnerError
from ftax.workers.forks import Fork
from support.workers import is_running, wait_until_gone


@pytest.fixture
def start():
    made = []

    def fork(work):
        made.append(Fork(work))
        return made[-1]

    yield fork
    for each in made:
        each.end()


def test_a_fork_asks_and_answers(start):
    def work(line):
        line.say("question", value=os.getppid())
        return line.hear()

    fork = start(work)
    assert fork.receive(10.0) == {"say": "question", "value": os.getpid()}
    fork.send([1, "zwei"])
    assert fork.receive(10.0) == {"say": "done", "result": [1, "zwei"]}


def test_what_it_changes_stays_in_it(start):
    here = []
    fork = start(lambda line: (here.append(1), len(here))[1])
    assert fork.receive(10.0)["result"] == 1
    assert here == []


def refuse(line):
    raise InvalidArgumentError("bad value; give another")


def fail(line):
    raise ZeroDivisionError("by nothing")


def die(line):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("work", "kind", "words"),
    [
        (refuse, InvalidArgumentError, "^bad value; give another$"),
        (fail, RunnerError, "ZeroDivisionError.*by nothing"),
        (die, RunnerError, "ended by SIGKILL"),
        (lambda line: os._exit(3), RunnerError, "exit code 3"),
    ],
)
def test_what_ends_it_is_raised_here(start, work, kind, words):
    fork = start(work)
    with pytest.raises(kind, match=words):
        fork.receive(10.0)


def test_a_silent_fork_has_a_limit_and_is_ended(start):
    fork = start(lambda line: line.hear())
    with pytest.raises(RunnerError, match=r"silent for 0\.05 s"):
        fork.receive(0.05)
    assert is_running(fork.pid)
    fork.end()
    wait_until_gone(fork.pid)
