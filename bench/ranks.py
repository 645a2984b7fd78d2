"""Captures of calls that communicate, on two ranks: their bits, their time, and how the other rank
ends where one is refused, raises or dies. The ranks are of gloo, or on two GPUs of NCCL.

Each training runs 100 steps twice on both ranks, eager and captured, from the same weights, and all
losses, gradients, weights and buffers are compared. Then both are timed by turns, between barriers;
on GPUs also a CUDA graph of the whole call, made by hand, with its collectives inside.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import ftax
from ftax.machines.environment import collect_environment
from record import Figure, figure, finish, make_parser, progress

_RANKS, _STEPS, _TURNS, _CALLS = 2, 100, 9, 20
_FAULTS = ("is refused", "raises", "dies")
_LIMIT_S = 60.0
_TIMEOUT = {"cpu": timedelta(minutes=5), "cuda": timedelta(seconds=15)}  # of a collective
_WARMUP = 12  # of a graph by hand: DistributedDataParallel settles

Call = Callable[[Tensor], Tensor]


class Net(nn.Module):
    """Layers of which each is a bucket."""

    def __init__(self, width: int) -> None:
        super().__init__()
        parts = [nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()]
        self.layers = nn.Sequential(*parts * 3, nn.Linear(width, 4))

    def forward(self, x: Tensor) -> Tensor:
        """Of rows of ``width`` numbers."""
        return self.layers(x)  # type: ignore[no-any-return]


def make_training(
    width: int, *, accumulates: bool = False, views: bool = False, by_hand: bool = False
) -> tuple[nn.Module, Call]:
    """A whole step with DistributedDataParallel, from weights that are the same each time.
    ``by_hand``: torch wants to be told that a graph will be captured."""
    torch.manual_seed(0)
    model = Net(width).to(find_device())
    layer_mb = width * width * 4 / 2**20
    wrapped = nn.parallel.DistributedDataParallel(
        model, bucket_cap_mb=0.6 * layer_mb, gradient_as_bucket_view=views
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=by_hand)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        if accumulates:
            with wrapped.no_sync():
                wrapped(x).square().mean().backward()
        loss = wrapped(x + 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, step


def make_tensor_parallel(width: int, *, by_hand: bool = False) -> tuple[nn.Module, Call]:
    """Two layers whose middle is shared out, and one sum of all ranks."""
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(8))).to(find_device())

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        for first, second in zip(model[::2], model[1::2], strict=True):
            y = second(torch.relu(first(x)))
            dist.all_reduce(y)
            x = y / _RANKS
        return x

    return model, forward


def find_device() -> torch.device:
    """Of this rank."""
    on_gpu = dist.get_backend() == "nccl"
    return torch.device(f"cuda:{dist.get_rank()}" if on_gpu else "cpu")


def wait() -> None:
    """For this rank's device."""
    if find_device().type == "cuda":
        torch.cuda.synchronize()


def draw(seed: int, width: int) -> Tensor:
    """Rows of this rank."""
    own = torch.Generator().manual_seed(1000 * dist.get_rank() + seed)
    return torch.randn(8, width, generator=own).to(find_device())


def graph_by_hand(make: Callable[[], tuple[nn.Module, Call]], x: Tensor) -> Call:
    """As torch's manual has it: all of it is made on the stream of the graph."""
    own, stream = x.clone(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        _, call = make()
        for _ in range(_WARMUP):
            call(own)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        result = call(own)

    def replay(x: Tensor) -> Tensor:
        own.copy_(x)
        graph.replay()
        return result.clone()

    return replay


def read(model: nn.Module) -> list[Tensor]:
    """All that training leaves."""
    grads = [item.grad for item in model.parameters() if item.grad is not None]
    return [item.clone() for item in (*model.parameters(), *model.buffers(), *grads)]


def compare(make: Callable[..., tuple[nn.Module, Call]], width: int) -> dict[str, Any]:
    """Whether a capture has eager's bits, and all times."""
    (eager, run_eager), (captured, run) = make(), make()
    fast = ftax.capture(run, (draw(0, width),))
    other = 0
    for seed in range(_STEPS):
        x = draw(seed, width)
        wanted, found = [run_eager(x), *read(eager)], [fast(x), *read(captured)]
        other += not all(map(torch.equal, wanted, found))
    x = draw(0, width)
    calls: dict[str, Call] = {"eager": run_eager, "capture": fast}
    if find_device().type == "cuda":
        calls["by hand"] = graph_by_hand(partial(make, by_hand=True), x)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_TURNS):
        for name, call in calls.items():
            dist.barrier()
            wait()
            begin = time.perf_counter()
            for _ in range(_CALLS):
                call(x)
            wait()
            times[name].append((time.perf_counter() - begin) / _CALLS * 1e6)
    stats = fast.stats()
    return {
        "other": other, "replayed": stats.replayed, "checked": stats.checked,
        "kinds": sorted({program.kind for program in fast.explain().programs}),
        "times_us": {name: statistics.median(values) for name, values in times.items()},
    }  # fmt: skip


def compare_all(width: int) -> dict[str, Any]:
    """Each kind of call."""
    return {
        "ddp": compare(partial(make_training, width), width),
        "ddp, no_sync": compare(partial(make_training, width, accumulates=True), width),
        "ddp, views": compare(partial(make_training, width, views=True), width),
        "tensor parallel": compare(partial(make_tensor_parallel, width), width),
    }


def meet_fault(fault: str) -> dict[str, Any]:
    """On rank 0, what the fault of rank 1 is to it, and after how many seconds."""
    is_faulty = [False]

    def call(x: Tensor) -> Tensor:
        y = x + 1
        if dist.get_rank() == 1 and fault == "is refused":
            y = y + 0 * y.sum().item()
        dist.all_reduce(y)
        if dist.get_rank() == 1 and is_faulty[0] and fault != "is refused":
            if fault == "dies":
                os._exit(3)
            raise ValueError("planted")
        return y * 2

    with torch.no_grad():
        x = torch.ones(8, device=find_device())
        fast = ftax.capture(call, (x,), on_refusal="eager")
        wanted = torch.full((8,), 8.0, device=x.device)
        right = all(torch.equal(fast(x), wanted) for _ in range(5))
        is_faulty[0] = True
        begin = time.monotonic()
        # NCCL's watchdog ends the process where a rank is gone.
        print(json.dumps({"right": right}), flush=True)
        try:
            right &= all(torch.equal(fast(x), wanted) for _ in range(5))
        except (RuntimeError, ValueError):
            return {"right": right, "ended_s": time.monotonic() - begin}
    return {"right": right, "ended_s": 0.0}


def run_rank(task: str, rank: int, store: str, width: int, device: str) -> None:
    """What one process of a group does."""
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo", store=dist.FileStore(store, _RANKS), rank=rank,
        world_size=_RANKS, timeout=_TIMEOUT[device],
        device_id=torch.device("cuda", rank) if device == "cuda" else None,
    )  # fmt: skip
    found = compare_all(width) if task == "compare" else meet_fault(task)
    print(json.dumps(found), flush=True)
    os._exit(0)  # one process in 50 aborts when it exits with a process group, without ftax too


def run_ranks(task: str, width: int, device: str) -> dict[str, Any]:
    """What rank 0 found; ``ended_s`` and ``error`` where it was ended. Raises if it does not end in
    time."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, __file__, "--worker", "--task", task, "--width", str(width),
            "--device", device,
        ]  # fmt: skip
        ranks = [
            subprocess.Popen(
                [*command, "--rank", str(rank), "--store", str(Path(folder, "store"))],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for rank in range(_RANKS)
        ]  # fmt: skip
        try:
            if task in _FAULTS[1:]:
                ranks[1].wait(600)
            begin = time.monotonic()
            output, errors = ranks[0].communicate(timeout=600)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    if not output:
        raise RuntimeError(f"rank 0 of '{task}' found nothing: {errors[-500:]}")
    found = dict(json.loads(output.splitlines()[-1]))
    if ranks[0].returncode:
        found |= {"ended_s": time.monotonic() - begin, "error": choose_reason(errors)}
    return found


def choose_reason(errors: str) -> str:
    """The last line of an output that says why, without frames of C++ and without folders."""
    lines = [line for line in errors.splitlines() if not line.lstrip().startswith("frame #")]
    reasons = [line for line in lines if "imeout" in line or "Error" in line]
    return re.sub(r"(/[^\s/]+)+/", "", (reasons or lines or [""])[-1])[-300:]


def main() -> None:
    """Run, print, save."""
    parser = make_parser(__doc__)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--starts", type=int, default=10, help="of each fault; 0: none")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--at-once", type=int, default=1, help="starts beside each other")
    for name in ("--task", "--store"):
        parser.add_argument(name, default="", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        run_rank(options.task, options.rank, options.store, options.width, options.device)
    progress("ranks: bits and times")
    kinds = run_ranks("compare", options.width, options.device)
    environment = collect_environment(device=options.device).to_dict()
    finish(__file__, options, list_compared(kinds), raw=kinds, environment=environment)
    count = 2 if options.quick else options.starts
    if count == 0:
        return
    progress(f"ranks: {count} starts each with a rank that is refused, raises or dies")
    with ThreadPoolExecutor(options.at_once) as pool:
        runs = {
            fault: [
                pool.submit(run_ranks, fault, options.width, options.device) for _ in range(count)
            ]
            for fault in _FAULTS
        }
        starts = {fault: [run.result() for run in some] for fault, some in runs.items()}
    figures = []
    for fault, ends in starts.items():
        figures += [
            figure(f"one rank {fault}: starts with wrong results",
                   sum(not item["right"] for item in ends), at_most=0),
            figure(f"one rank {fault}: the other ends, latest",
                   max(item["ended_s"] for item in ends), "s", at_most=_LIMIT_S),
        ]  # fmt: skip
    finish(__file__, options, figures, raw=starts, environment=environment)


def list_compared(kinds: dict[str, dict[str, Any]]) -> list[Figure]:
    """Bits and times of each kind of call."""
    figures = [
        figure("steps with other bits", sum(item["other"] for item in kinds.values()), at_most=0)
    ]
    for name, item in kinds.items():
        times = item["times_us"]
        figures.append(figure(f"{name}, eager over capture", times["eager"] / times["capture"]))
        if "by hand" in times:
            ratio = times["capture"] / times["by hand"]
            figures.append(figure(f"{name}, capture over a graph by hand", ratio, at_most=1.1))
    return figures


if __name__ == "__main__":
    main()
