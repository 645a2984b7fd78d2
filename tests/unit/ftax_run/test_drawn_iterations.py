"""Which events of a window are drawn on the timeline."""

from __future__ import annotations

import numpy as np
import pytest
from ftax_run import activities
from ftax_run.account import Event
from ftax_run.frames import Place, Places
from ftax_run.sampler import SAMPLE
from ftax_run.timeline import draw_iterations
from ftax_run.window import Recorded

from support.watched_programs import MAIN, STEP


class Known(Places):
    """Stack 1 is at a line, stack 2 at another."""

    def list_frames(self, stack: int) -> list[Place]:
        return [STEP if stack == 1 else MAIN]


def draw(work: list[tuple[int, int, int]], samples: list[tuple[int, int]]) -> list[Event]:
    """Of iterations that begin at 100, 200, 300 and end at 400."""
    records = np.zeros(len(work), activities.RECORD)
    for record, (start, end, kind) in zip(records, work, strict=True):
        record["start"], record["end"], record["kind"] = start, end, kind
        record["stream"], record["symbol"] = 7, 1
    seen = np.zeros(len(samples), SAMPLE)
    for sample, (time, stack) in zip(seen, samples, strict=True):
        sample["time_ns"], sample["stack"], sample["thread"] = time, stack, 9
    marks = np.array([100, 200, 300, 400], dtype=np.int64)
    into_c = np.zeros(256, dtype=bool)
    return draw_iterations(Recorded(9, 0, 500, records, {1: "gemm"}, seen, into_c, marks), Known())


def test_the_last_two_iterations_are_drawn() -> None:
    kernel, call = activities.KERNEL, activities.CALL
    work = [(110, 120, kernel), (310, 320, kernel), (190, 210, kernel), (395, 450, call)]
    samples = [(150, 1), (210, 1), (220, 1), (230, 2), (390, 1)]
    assert draw(work, samples) == [
        Event("iterations", "iteration", 0.0, 100.0),
        Event("iterations", "iteration", 100.0, 200.0),
        Event("device stream 7", "gemm", 0.0, 10.0),
        Event("device stream 7", "gemm", 110.0, 120.0),
        Event("calls of thread 7", "gemm", 195.0, 200.0),
        Event("Python thread 9", "train.py:41 step", 10.0, 30.0),
        Event("Python thread 9", "train.py:80 <module>", 30.0, 190.0),
        Event("Python thread 9", "train.py:41 step", 190.0, 200.0),
    ]


def test_a_timeline_ends_where_it_holds_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftax_run.timeline._MOST_EVENTS", 2)
    kernel = activities.KERNEL
    events = draw([(210, 220, kernel), (230, 300, kernel), (260, 300, kernel)], [(210, 1)])
    assert events == [
        Event("iterations", "iteration", 0.0, 60.0),
        Event("device stream 7", "gemm", 10.0, 20.0),
        Event("device stream 7", "gemm", 30.0, 60.0),
        Event("Python thread 9", "train.py:41 step", 10.0, 60.0),
    ]
