"""Loads and runs an AOTInductor package in a process that may die of it.

The surprising choice: the process says each call before it makes it. The last one that it said is
the call that it died in, whatever a dying process says.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from ftax.errors import UnsupportedError
from ftax.runtimes.disk import write_through_memory
from ftax.workers.child import Line
from ftax.workers.process import WorkerDied, run_task
from ftax.workers.time_limit import default_seconds


def try_package(package: Path, inputs: Sequence[torch.Tensor]) -> dict[str, object]:
    """Load and run ``package`` in a worker.

    Raises UnsupportedError, naming the call and the signal or the error, if the worker fails.
    """
    calls: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ftax-") as folder:
        path = Path(folder) / "inputs.pt"
        write_through_memory(path, lambda file: torch.save(list(inputs), file))
        job = {"package": str(package), "inputs": str(path)}
        task = "ftax.runtimes.compilers.aoti_trial:load_and_run"
        try:
            for answer in run_task(task, job, limit_s=default_seconds()):
                calls.append(answer["name"])
        except WorkerDied as death:
            call = calls[-1] if calls else "import torch"
            raise UnsupportedError(f"{call} fails in a process of its own: {death}") from death
    return {"calls": calls}


def load_and_run(job: Mapping[str, str], line: Line) -> None:
    """The task of the worker."""
    # On the CPU first: weights_only loads tensors and nothing else.
    tensors = torch.load(job["inputs"], weights_only=True)
    line.say("call", name="torch._inductor.aoti_load_package")
    device = next((tensor.device for tensor in tensors if tensor.is_cuda), torch.device("cpu"))
    index = -1 if device.index is None else device.index
    model = torch._inductor.aoti_load_package(job["package"], device_index=index)
    line.say("call", name="AOTICompiledModel.__call__")
    with torch.inference_mode():
        model(*tensors)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
