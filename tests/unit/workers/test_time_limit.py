"""A limit on the time of a step: it ends the step, whatever the step catches, and nothing else."""

import signal
import threading
import time

import pytest

from ftax.errors import InvalidArgumentError, UnsupportedError
from ftax.workers.time_limit import default_seconds, time_limit


def test_a_step_that_runs_too_long_is_ended_in_words() -> None:
    start = time.monotonic()
    with (
        pytest.raises(UnsupportedError, match=r"compiling ran past 0\.05 s; set FTAX_PREPARE_SEC"),
        time_limit(0.05, "compiling"),
    ):
        time.sleep(30)
    assert time.monotonic() - start < 5


def test_a_step_that_is_quick_is_left_alone_and_leaves_no_timer() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(30, "compiling"):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def sleep_despite(kind: type[BaseException], caught: list[BaseException]) -> None:
    try:
        time.sleep(30)
    except kind as error:
        caught.append(error)


def test_a_step_that_catches_exceptions_is_ended_too() -> None:
    caught: list[BaseException] = []
    with pytest.raises(UnsupportedError, match="ran past"), time_limit(0.05, "compiling"):
        sleep_despite(Exception, caught)
    assert caught == []


def test_a_step_that_swallows_everything_is_refused_when_it_ends() -> None:
    caught: list[BaseException] = []
    with pytest.raises(UnsupportedError, match="ran past"), time_limit(0.05, "compiling"):
        sleep_despite(BaseException, caught)
    assert len(caught) == 1


def test_what_the_step_raises_in_time_is_passed_on() -> None:
    with pytest.raises(ValueError, match="its own"), time_limit(30, "compiling"):
        raise ValueError("its own")


def test_an_outer_limit_still_counts_after_an_inner_one() -> None:
    def step() -> None:
        with time_limit(30, "inner"):
            pass
        time.sleep(30)

    with pytest.raises(UnsupportedError, match="outer ran past"), time_limit(0.1, "outer"):
        step()


def test_another_thread_has_no_limit() -> None:
    done = []

    def step() -> None:
        with time_limit(0.01, "compiling"):
            time.sleep(0.05)
            done.append(True)

    thread = threading.Thread(target=step)
    thread.start()
    thread.join()
    assert done == [True]


def test_the_default_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FTAX_PREPARE_SECONDS", raising=False)
    assert default_seconds() == 600
    monkeypatch.setenv("FTAX_PREPARE_SECONDS", "0.05")
    with pytest.raises(UnsupportedError, match=r"ran past 0\.05 s"), time_limit(None, "compiling"):
        time.sleep(30)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_limit_that_is_no_number_above_zero_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FTAX_PREPARE_SECONDS", text)
    with pytest.raises(InvalidArgumentError, match=f"FTAX_PREPARE_SECONDS is '{text}'"):
        default_seconds()
