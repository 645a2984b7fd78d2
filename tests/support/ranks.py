"""Runs a script in two processes that form a process group: of gloo, on CPUs or one GPU, or of NCCL
on two GPUs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import ftax

_BEGIN = """
import datetime, os, sys, traceback
import torch
import torch.distributed as dist
from torch import nn
import ftax

rank, backend = int(sys.argv[1]), sys.argv[4]
device = torch.device(sys.argv[3], rank if backend == "nccl" else 0)
if device.type == "cuda":
    torch.cuda.set_device(device)
dist.init_process_group(
    backend, device_id=device if backend == "nccl" else None,
    store=dist.FileStore(sys.argv[2], 2), rank=rank, world_size=2,
    timeout=datetime.timedelta(seconds=120),
)

def end(code=0):  # one process in 50 aborts when it exits with a process group, without ftax too
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

def fail(*error):
    traceback.print_exception(*error)
    end(1)

sys.excepthook = fail
"""
_END = """
dist.barrier()
end()
"""


@dataclass(frozen=True)
class Ended:
    """How a rank ended."""

    code: int
    output: str


def run_ranks(
    folder: Path,
    script: str,
    *,
    limit_s: float = 300,
    device: str = "cpu",
    backend: str = "gloo",
) -> list[Ended]:
    """How two ranks of this script ended, which has `rank`, `device`, `end` and `dist`. A rank that
    does not end within the limit is killed, and its code is negative."""
    path = folder / "rank.py"
    path.write_text(_BEGIN + script + _END, encoding="utf-8")
    outputs = [folder / f"rank{rank}.txt" for rank in range(2)]
    processes = []
    for rank, output in enumerate(outputs):
        command = [sys.executable, str(path), str(rank), str(folder / "store")]
        command += [device, backend]
        with output.open("w", encoding="utf-8") as file:
            processes.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT))
    deadline = time.monotonic() + limit_s
    try:
        while time.monotonic() < deadline and any(item.poll() is None for item in processes):
            time.sleep(0.05)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    texts = [output.read_text(encoding="utf-8") for output in outputs]
    return [Ended(item.returncode, text) for item, text in zip(processes, texts, strict=True)]


def read_receipts(rank: Ended) -> list[ftax.Receipt]:
    """What its script has printed as lines of ``RECEIPT`` and JSON."""
    lines = [line for line in rank.output.splitlines() if line.startswith("RECEIPT ")]
    return [ftax.Receipt.from_dict(json.loads(line.removeprefix("RECEIPT "))) for line in lines]


def find_waiting(receipt: ftax.Receipt) -> float:
    """How long it waits for other ranks, in ns."""
    return next(line.time_ns for line in receipt.lines if line.name == "waiting for other ranks")
