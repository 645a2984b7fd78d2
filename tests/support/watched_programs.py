"""What `ftax run` found of programs, made by hand."""

from __future__ import annotations

from ftax_run.account import Account, Event, HostTime, ProcessAccount
from ftax_run.causes import CPP, PYTHON
from ftax_run.frames import Place
from ftax_run.sums import Sums
from ftax_run.window import Window

MAIN, STEP = ("train.py", 80, "<module>"), ("train.py", 41, "step")
LOSS = ("/env/site-packages/torch/nn/loss.py", 7, "Loss.forward")
IMPORT = ("<frozen importlib._bootstrap>", 1176, "_find_and_load")


def make_window(step: Place = STEP) -> Window:
    return Window(
        count=10, wall=1e7, busy=3e6, gaps=1e6,
        idle=Sums({(step, CPP): 4e6, (MAIN, PYTHON): 2e6}),
        leaves=Sums({(step, LOSS): 3e6, (step, step): 1e6, (MAIN, MAIN): 2e6}),
        stacks=Sums({(MAIN, step, LOSS): 3e6, (MAIN, step): 1e6, (MAIN,): 1e6}),
        syncs=Sums({step: 10.0}), sync_idle=Sums({step: 1e5}),
        work=Sums({"kernels": 200.0, "launches": 200.0, "copies": 0.0}),
        launched=Sums({(step, CPP): 1.0, (MAIN, PYTHON): 0.0}),
    )  # fmt: skip


def make_account(window: Window | None = None, command: str = "train.py") -> Account:
    events = [
        Event("iterations", "iteration", 0.0, 100.0),
        Event("Python thread 7", "train.py:41 step", 0.0, 100.0),
        Event("device stream 13", "gemm", 10.0, 40.0),
        Event("device stream 7", "add", 30.0, 60.0),
        Event("calls of thread 7", "cudaLaunchKernel", 5.0, 9.0),
    ]
    process = ProcessAccount(7, command, windows=[window or make_window()], timeline=events)
    return Account(["python", command], 0, 100, 20.0, processes=[process])


def make_host(pid: int = 8) -> ProcessAccount:
    host = HostTime(
        4, 2e9, Sums({(STEP, PYTHON): 3.0, (MAIN, CPP): 1.0}), Sums({(STEP, LOSS): 3.0}),
        Sums({(MAIN, STEP, IMPORT, LOSS): 3.0, (MAIN,): 1.0}),
    )  # fmt: skip
    return ProcessAccount(pid, "python train.py", host=host)
