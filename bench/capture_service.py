"""`ftax.capture` in a service and in a loop: never slower than the original for long.

Requests of 24 lengths in random order, answered by the original and by a capture, from 1 and from 4
threads; training steps under schedulers; a call that is refused; the memory of many calls. The
surprising choice: the original answers the same requests by turns with the capture, in chunks, so
that both have the same neighbours.
"""

from __future__ import annotations

import argparse
import functools
import gc
import random
import resource
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

import ftax
from ftax.captures.ledger import CaptureStats
from record import Figure, add_part_options, finish, make_parser, take_parts

_LENGTHS = range(8, 200, 8)  # 24 of them
_CHUNK = 8  # requests that one side answers before the other has its turn
_STEPS = 300  # of training
_FIRST_STEPS = 30  # that the bar leaves out
_CALLS = 100_000
Call = Callable[..., Any]


def make_requests(count: int, device: str) -> list[torch.Tensor]:
    """Token ids, of lengths in random order."""
    order = random.Random(3)
    lengths = [order.choice(_LENGTHS) for _ in range(count)]
    return [torch.randint(0, 1000, (1, length), device=device) for length in lengths]


def load_bert(options: argparse.Namespace) -> nn.Module:
    """BERT-base; narrow on a CPU, where the host's work shows."""
    loaded = ftax.load_model("bert-base", tiny=options.tiny, device=options.device)
    assert isinstance(loaded.module, nn.Module)
    return loaded.module


def serve(call: Call, requests: Sequence[torch.Tensor], threads: int) -> tuple[float, list[float]]:
    """Seconds until all are answered, and of each."""
    found: list[float] = []
    rest = iter(requests)

    def work() -> None:
        with torch.inference_mode():
            for request in rest:  # which threads take from in turn
                start = time.perf_counter()
                call(request)
                wait_for(request)
                found.append(time.perf_counter() - start)

    start = time.perf_counter()
    if threads == 1:
        work()
    else:
        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return time.perf_counter() - start, found


def wait_for(tensor: torch.Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.current_stream().synchronize()


def serve_by_turns(
    original: Call, fast: Call, requests: Sequence[torch.Tensor], threads: int
) -> dict[str, Any]:
    """Both sides over the same requests."""
    totals = [0.0, 0.0]
    singles: tuple[list[float], list[float]] = ([], [])
    for first in range(0, len(requests), _CHUNK):
        for side in (0, 1) if (first // _CHUNK) % 2 else (1, 0):
            chunk = requests[first : first + _CHUNK]
            seconds, found = serve((original, fast)[side], chunk, threads)
            totals[side] += seconds
            singles[side].extend(found)
    medians = [statistics.median(item) for item in singles]
    return {
        "original_s": totals[0],
        "captured_s": totals[1],
        "ratio": totals[1] / totals[0],
        "original_p50_s": medians[0],
        "captured_p50_s": medians[1],
        "p50_ratio": medians[1] / medians[0],
    }


def take_service(threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """The first requests, many without warming, and many when all lengths are recorded."""
    model = load_bert(options)
    count = 600 if options.quick else 3000
    requests = make_requests(count, options.device)
    serve(model, requests[:100], threads)  # torch warms up
    with torch.inference_mode():
        fast = ftax.capture(model, requests[0])
    first = serve_by_turns(model, fast, requests[:300], threads)
    rest = serve_by_turns(model, fast, requests[300:], threads)
    unwarmed = fast.stats()
    with torch.inference_mode():
        start = time.perf_counter()
        fast.warm([torch.randint(0, 1000, (1, n), device=options.device) for n in _LENGTHS])
        warm_s = time.perf_counter() - start
    warmed = serve_by_turns(model, fast, requests, threads)
    totals = [first[side] + rest[side] for side in ("captured_s", "original_s")]
    return {
        "first": first,
        "all_ratio": totals[0] / totals[1],
        "unwarmed": describe(unwarmed),
        "warm_s": warm_s,
        "warmed": warmed,
    }


def describe(stats: CaptureStats) -> dict[str, Any]:
    """How calls were answered."""
    return {name: getattr(stats, name) for name in stats.__slots__}


OPTIMIZERS: dict[str, Call] = {
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9),
    "AdamW": lambda weights: torch.optim.AdamW(weights, lr=1e-3, fused=True),
    "Adam": lambda weights: torch.optim.Adam(weights, lr=1e-3),
}
SCHEDULERS: dict[str, Call] = {
    "OneCycleLR": lambda opt: lr_scheduler.OneCycleLR(opt, max_lr=0.01, total_steps=_STEPS + 1),
    "StepLR": lambda opt: lr_scheduler.StepLR(opt, step_size=60),
    "cosine": lambda opt: lr_scheduler.CosineAnnealingLR(opt, T_max=_STEPS),
    "warm-up": lambda opt: lr_scheduler.LinearLR(opt, start_factor=0.1, total_iters=20),
    "ReduceLROnPlateau": lambda opt: lr_scheduler.ReduceLROnPlateau(opt, patience=5),
}


class Training:
    """A model with its optimizer, its scheduler and a step, captured or not."""

    def __init__(self, optimizer: str, scheduler: str, *, captures: bool, device: str) -> None:
        torch.manual_seed(0)
        layers = [part for _ in range(12) for part in (nn.Linear(64, 64), nn.GELU())]
        self.model = nn.Sequential(*layers, nn.Linear(64, 8)).to(device)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.scheduler = SCHEDULERS[scheduler](self.optimizer)
        self.call: Call = self.step
        self.losses: list[float] = []
        self.seconds: list[float] = []
        if captures:
            x, y = make_batch(0, device)
            self.call = ftax.capture(self.step, (x, y), on_refusal="eager")

    def step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Forward, backward and the optimizer."""
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self, step: int, device: str) -> None:
        """One step, timed, and one of the scheduler."""
        x, y = make_batch(step, device)
        start = time.perf_counter()
        loss = self.call(x, y)
        wait_for(loss)
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(loss.item())
        if isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau):
            self.scheduler.step(self.losses[-1])
        else:
            self.scheduler.step()


def make_batch(step: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(32, 64, generator=generator)
    return x.to(device), torch.randn(32, 8, generator=generator).to(device)


def take_training(optimizer: str, scheduler: str, options: argparse.Namespace) -> dict[str, Any]:
    """Steps of both, by turns."""
    device = options.device
    sides = [
        Training(optimizer, scheduler, captures=captures, device=device)
        for captures in (False, True)
    ]
    for step in range(_STEPS):
        for side in sides if step % 2 else sides[::-1]:
            side.run(step, device)
    totals = [sum(side.seconds[_FIRST_STEPS:]) for side in sides]
    weights = [list(side.model.parameters()) for side in sides]
    return {
        "ratio": totals[1] / totals[0],
        "original_us": totals[0] / (_STEPS - _FIRST_STEPS) * 1e6,
        "same_bits": sides[0].losses == sides[1].losses
        and all(map(torch.equal, weights[0], weights[1])),
        "stats": describe(sides[1].call.stats()),  # type: ignore[attr-defined]
    }


def take_refused(options: argparse.Namespace) -> dict[str, Any]:
    """A model called without inference mode, which is refused once, and then runs as it is."""
    model = load_bert(options).requires_grad_()
    request = torch.randint(0, 1000, (1, 64), device=options.device)
    fast = ftax.capture(model, request, on_refusal="eager")
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(100 if options.quick else 400):
        for side in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            (model, fast)[side](request)
            wait_for(request)
            times[side].append(time.perf_counter() - start)
    original, captured = (statistics.median(item[1:]) for item in times)
    return {"ratio": captured / original, "original_us": original * 1e6}


def take_memory(options: argparse.Namespace) -> dict[str, Any]:
    """What many calls of many shapes leave behind, once a tenth of them has been answered."""
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU()).eval().to(options.device)
    calls = 10_000 if options.quick else _CALLS
    sizes = random.Random(5).choices(range(1, 400), k=calls)
    with torch.inference_mode():
        fast = ftax.capture(model, torch.randn(2, 16, device=options.device))
        fast.warm([torch.randn(n, 16, device=options.device) for n in (3, 4, 5)])
        for place, size in enumerate(sizes):
            if place == calls // 10:
                before = measure_memory()
            fast(torch.randn(size, 16, device=options.device))
    objects, resident = (now - then for now, then in zip(measure_memory(), before, strict=True))
    return {"calls": calls, "objects": objects, "resident_bytes": resident}


def measure_memory() -> tuple[int, int]:
    """Objects of Python, and the most bytes that were resident so far."""
    gc.collect()
    return len(gc.get_objects()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def list_parts(options: argparse.Namespace) -> dict[str, Callable[[], dict[str, Any]]]:
    """By name."""
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        f"service {threads}": functools.partial(take_service, threads, options)
        for threads in (1, 4)
    }
    parts |= {
        f"training {optimizer} {scheduler}": functools.partial(
            take_training, optimizer, scheduler, options
        )
        for optimizer in OPTIMIZERS
        for scheduler in SCHEDULERS
    }
    parts["refused"] = functools.partial(take_refused, options)
    parts["memory"] = functools.partial(take_memory, options)
    return parts


def list_figures(found: dict[str, dict[str, Any]]) -> list[Figure]:
    """Against the bars."""
    figures = []
    for name in ("service 1", "service 4"):
        if name in found:
            values = {
                "first 300": (found[name]["first"]["ratio"], 1.15),
                "3,000 without warm": (found[name]["all_ratio"], 1.0),
                "after warm, total": (found[name]["warmed"]["ratio"], 0.8),
                "after warm, p50": (found[name]["warmed"]["p50_ratio"], 0.8),
            }
            figures += [
                Figure(name=f"{name}: {what}", values=(value,), unit="of original", at_most=most)
                for what, (value, most) in values.items()
            ]
    trainings = {name: item for name, item in found.items() if name.startswith("training ")}
    figures += [
        Figure(name=name, values=(item["ratio"],), unit="of eager", at_most=1.1)
        for name, item in trainings.items()
    ]
    if trainings:
        other = sum(not item["same_bits"] for item in trainings.values())
        figures.append(Figure(name="other bits", values=(other,), unit="trainings", at_most=0))
    if "refused" in found:
        ratio = found["refused"]["ratio"]
        figures.append(Figure(name="refused", values=(ratio,), unit="of original", at_most=1.05))
    if "memory" in found:
        share = found["memory"]["objects"] / found["memory"]["calls"]
        figures.append(Figure(name="growth", values=(share,), unit="objects a call", at_most=0.001))
    return figures


def main() -> None:
    """Take the parts that are asked for, and show all that there are."""
    parser = make_parser(__doc__)
    add_part_options(parser, duration_s=5.0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # of one request: a service has several of its own
    warnings.simplefilter("ignore")  # that a place moves is what is tried here
    found = take_parts(__file__, list_parts(options), options)
    finish(__file__, options, list_figures(found), raw=found)


if __name__ == "__main__":
    main()
