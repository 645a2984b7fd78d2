"""Loads and runs an AOTInductor package in a process that may die of it.

The worker is started with `python -m` this module, PACKAGE and INPUTS, and prints the call that it
is about to make. The surprising choice: these lines are all that is believed of its output;
the last of them is the call that it died in, whatever a dying process says.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from ftax.errors import UnsupportedError
from ftax.runtimes.disk import write_through_memory
from ftax.workers.time_limit import default_seconds


def try_package(package: Path, inputs: Sequence[torch.Tensor]) -> dict[str, object]:
    """Load and run ``package`` in a worker.

    Raises UnsupportedError, naming the call and the signal or the error, if the worker fails.
    """
    with tempfile.TemporaryDirectory(prefix="ftax-") as folder:
        path = Path(folder) / "inputs.pt"
        write_through_memory(path, lambda file: torch.save(list(inputs), file))
        try:
            worker = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "ftax.runtimes.compilers.aoti_trial",
                    str(package),
                    str(path),
                ],
                capture_output=True,
                text=True,
                check=False,
                timeout=default_seconds(),
            )
        except subprocess.TimeoutExpired as error:
            raise UnsupportedError(
                f"an AOTInductor package was not loaded and run within {error.timeout:g} s"
            ) from error
    if worker.returncode != 0:
        calls = worker.stdout.split() or ["import torch"]
        lines = worker.stderr.strip().splitlines()
        raise UnsupportedError(
            f"{calls[-1]} fails in a process of its own: "
            f"{_describe_end(worker.returncode, lines[-1] if lines else '')}"
        )
    return {"calls": worker.stdout.split()}


def _describe_end(code: int, last_words: str) -> str:
    if code >= 0:
        return last_words or f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"the process died of {name}"


def _work(package: str, inputs: str) -> None:
    # On the CPU first: weights_only loads tensors and nothing else.
    tensors = torch.load(inputs, weights_only=True)
    print("torch._inductor.aoti_load_package", flush=True)
    device = next((tensor.device for tensor in tensors if tensor.is_cuda), torch.device("cpu"))
    index = -1 if device.index is None else device.index
    model = torch._inductor.aoti_load_package(package, device_index=index)
    print("AOTICompiledModel.__call__", flush=True)
    with torch.inference_mode():
        model(*tensors)
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    _work(*sys.argv[1:])
