"""Who is late where a thread waits."""

from __future__ import annotations

import numpy as np
import pytest
from ftax_run.causes import CPP, GIL, PYTHON, WAIT, Others, group_alike, name_cause, weigh
from ftax_run.frames import Place, Places
from ftax_run.sampler import SAMPLE

GET = [("/usr/lib/python3.12/threading.py", 3, "wait"), ("/usr/lib/python3.12/queue.py", 9, "get")]
READ: list[Place] = [("/usr/lib/python3.12/socket.py", 7, "readinto")]
MAIN: list[Place] = [("train.py", 41, "main")]
STACKS: dict[int, list[Place]] = {
    1: [*GET, *MAIN],  # waits for another thread
    2: [*READ, *MAIN],  # waits for the network
    3: [("data.py", 5, "decode")],
    4: [("data.py", 6, "augment")],
    5: GET,  # a feeder thread, between two pieces of work
    6: MAIN,
}


class Known(Places):
    def list_frames(self, stack: int) -> list[Place]:
        return STACKS[stack]


def take(*samples: tuple[int, int, int, int, str]) -> np.ndarray:
    """Each as time in us, process, thread, stack, state."""
    found = np.zeros(len(samples), SAMPLE)
    for place, (time, process, thread, stack, state) in enumerate(samples):
        found[place]["time_ns"] = time * 1000
        found[place]["process"], found[place]["thread"] = process, thread
        found[place]["stack"], found[place]["state"] = stack, ord(state)
    return found


SAMPLES = take(
    (900, 1, 11, 3, "R"), (950, 2, 12, 4, "S"), (1000, 0, 10, 1, "S"), (1050, 0, 13, 5, "R"),
    (1900, 1, 11, 3, "R"), (1950, 2, 12, 4, "R"), (2000, 0, 10, 1, "S"), (2950, 2, 12, 4, "D"),
    (9000, 1, 11, 3, "R"),
)  # fmt: skip


def list_late(samples: np.ndarray, at: int, cause: str) -> list[int]:
    return Others(samples, Known()).list_late(samples[at], cause)


def test_a_wait_in_a_queue_is_of_what_ran_meanwhile() -> None:
    assert sorted(list_late(SAMPLES, 6, WAIT)) == [3, 4]


def test_what_waits_itself_or_ran_at_another_time_was_not_late() -> None:
    assert list_late(SAMPLES[:4], 2, WAIT) == [3]
    assert list_late(SAMPLES[[2, 8]], 0, WAIT) == [1]


def test_a_wait_for_the_network_is_its_lines() -> None:
    samples = take((900, 1, 11, 3, "R"), (1000, 0, 10, 2, "S"))
    assert list_late(samples, 1, WAIT) == [2]


def test_a_wait_for_the_gil_is_of_a_thread_of_the_process() -> None:
    samples = take((900, 1, 11, 3, "R"), (950, 0, 12, 4, "R"), (1000, 0, 10, 6, "S"))
    assert list_late(samples, 2, GIL) == [4]
    assert list_late(samples[[0, 2]], 1, GIL) == [6]


def test_work_is_its_own_lines() -> None:
    samples = take((900, 1, 11, 3, "R"), (1000, 0, 10, 6, "R"))
    assert list_late(samples, 1, PYTHON) == [6]


@pytest.mark.parametrize(
    ("opcode", "state", "may_wait", "cause"),
    [
        (1, "R", True, PYTHON), (2, "R", True, CPP), (1, "S", True, GIL), (2, "D", True, WAIT),
        (2, "G", True, GIL), (2, "G", False, CPP),
        (2, "S", False, CPP),
    ],
)  # fmt: skip
def test_what_a_thread_does(opcode: int, state: str, may_wait: bool, cause: str) -> None:
    into_c = np.zeros(256, dtype=bool)
    into_c[2] = True
    sample = take((0, 0, 0, 0, state))[0]
    sample["opcode"] = opcode
    assert name_cause(sample, into_c, may_wait=may_wait) == cause


def test_samples_are_alike_by_where_they_stand_and_those_that_wait_by_time_too() -> None:
    samples = take(
        (1, 0, 10, 3, "R"), (2, 0, 10, 4, "R"), (3, 0, 10, 3, "R"), (4, 0, 10, 3, "R"),
        (4000, 0, 10, 1, "S"), (7000, 0, 10, 1, "S"), (7001, 0, 10, 6, "G"), (8000, 0, 10, 1, "S"),
    )  # fmt: skip
    samples["opcode"][3] = 7
    weights = np.array([1, 1, 1, 1, 1, 2, 1, 4])
    found = [(int(item["time_ns"]), weight) for item, weight in group_alike(samples, weights)]
    assert sorted(found) == [
        (1000, 2), (2000, 1), (4000, 1), (4_000_000, 3), (7_001_000, 1), (8_000_000, 4)
    ]  # fmt: skip
    assert list(group_alike(samples[:0], weights[:0])) == []


def test_a_sample_stands_for_the_time_since_the_one_before_of_its_thread() -> None:
    samples = take((1, 0, 10, 3, "R"), (2, 0, 11, 4, "R"), (4, 0, 10, 3, "R"), (9, 0, 11, 4, "S"))
    before = {10: 400, 12: 100}
    assert weigh(samples, before, 5000).tolist() == [600, 0, 3000, 5000]
    assert before == {10: 4000, 11: 9000}
    assert weigh(samples[:0], before, 5000).tolist() == []
    assert before == {10: 4000, 11: 9000}
