"""Programs that `ftax run` might have watched."""

from __future__ import annotations

from ftax_run.account import Account, ProcessAccount
from ftax_run.causes import PYTHON
from ftax_run.sums import Sums
from ftax_run.window import Window

from ftax.ladders.runs import Run

STEP, PREPARE = ("train.py", 41, "step"), ("train.py", 17, "prepare")


def make_run(step_us: float, turns: int = 5, launches: int = 20) -> Run:
    """An iteration of 400 us busy, 100 us of idle in `prepare`, and so much in `step`."""
    count, idle = 50, Sums({(STEP, PYTHON): 50e3 * step_us, (PREPARE, PYTHON): 5e6})
    wall = 400e3 * count + sum(idle.values())
    means = {line: (amount / count) ** 2 for (line, _), amount in idle.items()}
    window = Window(
        count=count, wall=wall, busy=400e3 * count, idle=idle, parts=4,
        work=Sums({"launches": float(launches * count)}),
        squares=Sums({line: 4 * square * 1.0001 for line, square in means.items()}),
    )  # fmt: skip
    rate = launches * count * 1e9 / wall
    rates = [rate * (1 + 0.001 * (turn % 3)) for turn in range(turns)]
    return Run(Account(["train.py"], processes=[ProcessAccount(7, windows=[window], rates=rates)]))
