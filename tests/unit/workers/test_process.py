"""Processes beside this one: asked, listened to, ended, and why they ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from ftax.errors import InvalidArgumentError, RunnerError
from ftax.workers import process as process_module
from ftax.workers.process import Stop, Stopped, Worker, WorkerDied, run_task, work_side_by_side
from support.workers import HERE, is_running, say, use_script, wait_until_gone

OBEY = "support.workers:obey"


@pytest.fixture(scope="module")
def worker():
    made = Worker(OBEY, environment={**HERE, "FTAX_TEST_SEEN": "yes"})
    yield made
    made.end()


def ask(worker, do, value=None):
    worker.send({"do": do, "value": value})
    return worker.receive(60.0)


# --- real processes ------------------------------------------------------------------------------


def test_a_worker_is_asked_several_times_in_the_environment_that_it_was_given(worker):
    answers = [ask(worker, "echo", value)["result"] for value in (1, "zwei", [None])]
    assert [answer["value"] for answer in answers] == [1, "zwei", [None]]
    assert {answer["pid"] for answer in answers} == {worker.pid}
    assert {answer["seen"] for answer in answers} == {"yes"}


def test_what_is_printed_is_no_answer_and_there_is_nothing_to_read(worker):
    assert ask(worker, "print") == {"say": "done", "result": ""}


def test_a_worker_may_ask_back(worker):
    assert ask(worker, "ask", 3) == {"say": "question", "value": 3}
    worker.send(["four"])
    assert worker.receive(60.0)["result"] == ["four"]


def test_an_error_of_ftax_is_raised_here_and_the_worker_goes_on(worker):
    """Of the nearest kind that this process knows."""
    worker.send({"do": "refuse"})
    with pytest.raises(InvalidArgumentError, match=r"^bad value; give another$") as caught:
        worker.receive(60.0)
    assert type(caught.value) is InvalidArgumentError
    assert ask(worker, "echo", 1)["say"] == "done"


def test_answers_that_were_given_before_a_death_are_kept():
    job = {"do": "answer, then die", "value": 7}
    answers = run_task(OBEY, job, limit_s=60.0, environment=HERE)
    assert next(answers) == {"say": "found", "value": 7}
    with pytest.raises(WorkerDied, match="was ended by SIGSEGV"):
        next(answers)


def test_a_task_that_does_not_end_well_has_died_of_it():
    answers = run_task(OBEY, {"do": "die of ending"}, limit_s=60.0, environment=HERE)
    assert next(answers)["say"] == "found"
    with pytest.raises(WorkerDied, match="exit code 9"):
        next(answers)


def test_a_worker_dies_with_its_parent():
    script = (
        "import os, signal\nfrom ftax.workers.process import Worker\n"
        f"worker = Worker({OBEY!r})\nworker.wait_until_ready()\n"
        "print(worker.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **HERE}, capture_output=True, text=True
    )
    assert parent.returncode == -signal.SIGKILL
    assert wait_until_gone(int(parent.stdout))


# --- scripts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "reason", "killed"),
    [
        ("kill -9 $$", "was ended by SIGKILL, as when the machine is out of memory", True),
        ("echo oh >&2; kill -SEGV $$", "was ended by SIGSEGV: oh", False),
        ("echo one >&2; echo two >&2; exit 3", "ended with exit code 3: two", False),
        ("echo 'CUDA out of memory. Tried 3 GiB' >&2; exit 1", "smaller batch", False),
        ("exit 0", "ended without an answer", False),
        ("echo hello", "answered what is no answer: 'hello'", False),
        ("echo '[1]'", "answered what is no answer: '[1]'", False),
        (say("refused", error="Popen", reason=""), "answered what is no answer", False),
        ("sleep 60", "ran past 0.2 s and was ended", False),
    ],
)
def test_why_a_worker_died_is_told(script, reason, killed, monkeypatch, tmp_path):
    use_script(monkeypatch, tmp_path, script)
    with pytest.raises(WorkerDied) as caught:
        list(run_task("any", {}, limit_s=0.2 if script == "sleep 60" else 30.0))
    assert reason in str(caught.value) and caught.value.killed is killed
    assert isinstance(caught.value, RunnerError)


def test_a_process_that_cannot_be_started_is_a_death_too(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    with pytest.raises(WorkerDied, match="no worker process could be started"):
        Worker("any")


def test_starting_is_not_counted_but_has_a_limit_of_its_own(monkeypatch, tmp_path):
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\nsleep 0.5\n{say('ready')}\nread job\n{say('done', result=1)}\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    assert list(run_task("any", {}, limit_s=0.4)) == []
    monkeypatch.setattr(process_module, "_START_S", 0.1)
    with pytest.raises(WorkerDied, match=r"was not ready after 0\.1 s"):
        list(run_task("any", {}, limit_s=60.0))


def test_what_a_process_waits_for_a_cpu_is_not_counted(monkeypatch, tmp_path):
    waits = iter([0.0, 0.0, 60.0])
    monkeypatch.setattr(process_module, "_read_queued_s", lambda pid: next(waits))
    use_script(monkeypatch, tmp_path, f"sleep 0.5; {say('done', result=1)}; sleep 60")
    worker = Worker("any")
    worker.send({})
    assert worker.receive(0.1)["result"] == 1
    worker.end()


def test_the_kernel_tells_how_long_a_process_waited():
    assert process_module._read_queued_s(os.getpid()) >= 0.0
    assert process_module._read_queued_s(1 << 30) == 0.0


def test_with_a_worker_go_the_processes_that_it_started(monkeypatch, tmp_path):
    script = """sleep 60 & printf '{"say": "it", "pid": %d}\\n' $!; wait"""
    use_script(monkeypatch, tmp_path, script)
    worker = Worker("any")
    worker.send({})
    child = worker.receive(30.0)["pid"]
    assert is_running(child)
    worker.end()
    assert wait_until_gone(child)


def test_a_stop_wakes_who_listens(monkeypatch, tmp_path):
    use_script(monkeypatch, tmp_path, "sleep 60")
    with closing(Stop()) as stop:
        worker = Worker("any", stop)
        worker.send({})
        stop.set()
        with pytest.raises(Stopped):
            worker.receive(30.0)
        worker.end()
    assert not is_running(worker.pid)


def test_the_first_error_of_several_ends_the_others_and_is_raised():
    ended = threading.Event()

    def wait() -> None:
        while not stop.is_set:
            pass
        ended.set()

    def fail() -> None:
        raise KeyError("it")

    with closing(Stop()) as stop, pytest.raises(KeyError, match="it"):
        work_side_by_side([wait, fail], stop)
    assert ended.is_set()
