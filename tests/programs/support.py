"""What the programs of this folder share: a layer, options, delays, a clock and the last line."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

WARM_UP = 20  # iterations
_planted: int | None = None
_delay_s = 0.0
_delays_s: list[float] = []  # as long as they were


def parse() -> argparse.Namespace:
    """The options of the command line, already in force."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0, help="how long, after the warm-up")
    parser.add_argument("--iterations", type=int, help="so many, after the warm-up, of any length")
    parser.add_argument("--plant", type=int, choices=range(5), help="which place gets a delay")
    parser.add_argument("--delay-us", type=float, default=1000.0, help="of what length")
    parser.add_argument("--stamps", help="write when each began, 8 bytes each, in FILE.<pid>")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    apply(options)
    return options


def apply(options: argparse.Namespace) -> None:
    """Put the options in force: seeds, and the planted place. A spawned process calls it too."""
    global _planted, _delay_s
    options.device = torch.device(options.device)
    _planted, _delay_s = options.plant, options.delay_us / 1e6
    torch.manual_seed(0)


def plant(place: int) -> None:
    """Lose time here, if this is the place that was chosen."""
    if place == _planted:
        start = time.perf_counter()
        spin(_delay_s)
        _delays_s.append(time.perf_counter() - start)


class Block(nn.Module):
    """A layer of a transformer, its attention spelled out."""

    def __init__(self, width: int, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).unbind(2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(dim=-1)
        x = x + self.out((weights.to(v.dtype) @ v).transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def spin(seconds: float) -> None:
    """Keep one core, and Python's lock, busy for so long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Clock:
    """Counts iterations, and times those that follow the warm-up."""

    def __init__(self, options: argparse.Namespace, warm_up: int = WARM_UP) -> None:
        self.device, self.warm_up = options.device, warm_up
        self.wanted = options.iterations
        self.limit_ns = int(options.seconds * 1e9)
        self.stamps: int | None = None
        if options.stamps:
            self.stamps = os.open(f"{options.stamps}.{os.getpid()}", os.O_WRONLY | os.O_CREAT)
        self.count = 0  # of the timed ones
        self.start_ns = self.end_ns = 0
        self.done = False

    def iterations(self) -> Iterator[int]:
        """The number of each iteration, from zero, the warm-up included."""
        yield from range(self.warm_up)
        self._synchronize()
        self.start_ns = time.monotonic_ns()
        while self._goes_on():
            if self.stamps is not None:
                os.write(self.stamps, time.monotonic_ns().to_bytes(8, "little"))
            yield self.warm_up + self.count
            self.count += 1
        self._synchronize()
        self.end_ns = time.monotonic_ns()
        self.done = True

    def _goes_on(self) -> bool:
        if self.wanted is not None:
            return self.count < self.wanted
        return time.monotonic_ns() - self.start_ns < self.limit_ns

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def summary(clock: Clock, output: Any) -> dict[str, Any]:
    """What the clock measured, and a number that any change of the last output changes."""
    values = torch.as_tensor(output).detach().cpu().double().flatten()
    weights = torch.arange(len(values), dtype=torch.float64).cos()
    return {
        "program": Path(sys.argv[0]).stem,
        # None if the delays were in other processes, or none was planted.
        "delay_us": round(1e6 * fmean(_delays_s), 2) if _delays_s else None,
        "iterations": clock.count,
        "iteration_us": round((clock.end_ns - clock.start_ns) / 1e3 / max(clock.count, 1), 2),
        "start_ns": clock.start_ns,
        "end_ns": clock.end_ns,
        "checksum": round((values * weights).sum().item(), 3),
    }


def finish(clock: Clock, output: Any) -> None:
    """Print the summary, as the last line."""
    print(json.dumps(summary(clock, output)), flush=True)
