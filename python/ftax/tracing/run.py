"""Traces prepared runtimes through CUPTI, after they have been timed.

The surprising choice: in a process of its own wherever the model can be built again from its name.
A trace leaves CUPTI initialised in its process, and torch.profiler, used there later over replays
of a CUDA graph, has crashed; a notebook should not.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftax import _core
from ftax.environment import collect_environment
from ftax.errors import FtaxError, RunnerError, UnavailableError
from ftax.faults import describe, is_out_of_memory
from ftax.measure import Progress, quiet
from ftax.tracing.records import Trace

if TYPE_CHECKING:
    from ftax.models import LoadedModel
    from ftax.runtimes import Prepared

ITERATIONS = 20
WARMUP = 3
KINDS = ("runtime", "driver")  # beside kernels, copies and fills

_TRACES, _ERRORS = "traces.jsonl", "errors.json"  # what a worker leaves in its folder


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """What to trace, in JSON: a model by name or folder, and (runtime, host) pairs."""

    model: str
    runtimes: tuple[tuple[str, str], ...]
    model_options: Mapping[str, Any] = field(default_factory=dict)
    no_grad: bool = False
    transfers: bool = False
    iterations: int = ITERATIONS
    kinds: tuple[str, ...] = KINDS


def trace_prepared(
    loaded: LoadedModel,
    prepared: Prepared,
    *,
    iterations: int = ITERATIONS,
    kinds: Sequence[str] = KINDS,
) -> Trace:
    """Trace ``iterations`` synchronised inferences of one runtime, in this process.

    Args:
        kinds: "runtime" and "driver" add API calls, "overhead" CUPTI's own; kernels, copies and
            fills are always recorded.

    Raises:
        UnavailableError: no CUDA build or device, no CUPTI, or another profiler is using it.
        RunnerError: the runtime failed.
    """
    require_tracer()
    with quiet():
        raw = _core.trace_runner(
            prepared.runner, iterations=iterations, warmup=WARMUP, kinds=list(kinds)
        )
    return Trace.from_raw(
        raw,
        model=loaded.name,
        runtime=prepared.runtime,
        host=prepared.host,
        device=loaded.device,
        environment=collect_environment(device=loaded.device),
    )


def require_tracer() -> None:
    """Raise UnavailableError if this build of ftax has no CUPTI part."""
    if not hasattr(_core, "trace_runner"):
        raise UnavailableError(
            "kernels are traced through CUPTI, which this build of ftax lacks: reinstall it where "
            "a CUDA torch, nvcc and cupti.h are"
        )


def trace_all(
    loaded: LoadedModel,
    prepared: Sequence[Prepared],
    *,
    iterations: int = ITERATIONS,
    kinds: Sequence[str] = KINDS,
    progress: Progress | None = None,
) -> list[Trace | FtaxError]:
    """Trace each runtime in turn; one that cannot be traced leaves its error in its place."""
    traces: list[Trace | FtaxError] = []
    for place, item in enumerate(prepared):
        if progress:
            progress("tracing kernels", place, len(prepared))
        try:
            traces.append(trace_prepared(loaded, item, iterations=iterations, kinds=kinds))
        except FtaxError as error:
            traces.append(error)
        except RuntimeError as error:  # torch's and CUDA's own
            traces.append(RunnerError(describe(error)))
    return traces


def trace_in_worker(job: TraceJob) -> list[Trace | FtaxError]:
    """`trace_all` in a fresh process, for a model that can be built there again.

    A worker that dies costs all of its traces, and nothing else. It answers in files: whatever the
    model prints is nobody's answer.
    """
    with tempfile.TemporaryDirectory(prefix="ftax-trace-") as folder:
        worker = subprocess.run(
            [sys.executable, "-m", "ftax.tracing.run", folder],
            input=json.dumps(asdict(job)),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        try:
            if worker.returncode != 0:
                raise RunnerError(_explain_death(worker.returncode, worker.stderr))
            return _read_answer(Path(folder), len(job.runtimes))
        except (FtaxError, OSError, ValueError) as error:
            reason = f"the tracing process failed: {describe(error)}"
            return [RunnerError(reason)] * len(job.runtimes)


def _read_answer(folder: Path, count: int) -> list[Trace | FtaxError]:
    errors = json.loads((folder / _ERRORS).read_text())
    traces = Trace.load(folder / _TRACES) if (folder / _TRACES).exists() else ()
    if len(errors) != count or errors.count(None) != len(traces):
        raise RunnerError(f"it left {len(traces)} traces and {len(errors)} of {count} answers")
    found = iter(traces)
    return [next(found) if error is None else RunnerError(error) for error in errors]


def _explain_death(code: int, stderr: str) -> str:
    lines = stderr.strip().splitlines()
    if code < 0:
        names = {item.value: item.name for item in signal.Signals}
        return f"it was ended by {names.get(-code, f'signal {-code}')}"
    reason = lines[-1] if lines else f"exit code {code}"
    if is_out_of_memory(reason):
        return f"{describe(reason)}, or trace='here', which needs no second copy of the model"
    return reason


def _work(folder: Path) -> None:
    from ftax.models import load_model
    from ftax.runtimes import Workspace, check_host, find_runtime

    data = json.load(sys.stdin)
    loaded = load_model(data["model"], **data["model_options"])
    workspace = Workspace(loaded, no_grad=data["no_grad"], transfers=data["transfers"])
    errors: list[str | None] = []
    for runtime, host in data["runtimes"]:
        try:
            prepared = find_runtime(runtime).prepare(workspace, check_host(host))
            trace = trace_prepared(
                loaded, prepared, iterations=data["iterations"], kinds=data["kinds"]
            )
        except (FtaxError, RuntimeError) as error:
            errors.append(describe(error))
        else:
            trace.save(folder / _TRACES)
            errors.append(None)
    (folder / _ERRORS).write_text(json.dumps(errors))


if __name__ == "__main__":
    _work(Path(sys.argv[1]))
