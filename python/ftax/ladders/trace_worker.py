"""Traces runtimes in a process of its own, which is thrown away afterwards.

A trace leaves CUPTI initialised in its process, and torch.profiler, used there later over replays
of a CUDA graph, has crashed; a notebook should not. The surprising choice: every runtime answers in
a file of its own as soon as it is done. A process that dies then costs the one runtime that it was
at, and a new process goes on with the rest.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ftax.errors import FtaxError, RunnerError, describe, is_out_of_memory
from ftax.instruments.trace.records import Trace
from ftax.instruments.trace.run import ITERATIONS, KINDS, trace_prepared
from ftax.steps.setting import Setting
from ftax.workers.death import name_signal, read_last_line

_MOST_WORKERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """What to trace: a model that `load_model` makes, and (runtime, host) pairs."""

    model: str
    runtimes: tuple[tuple[str, str], ...]
    setting: Setting = field(default_factory=Setting)
    iterations: int = ITERATIONS
    kinds: tuple[str, ...] = KINDS

    def to_dict(self) -> dict[str, Any]:
        """The job as JSON."""
        return {**asdict(self), "setting": self.setting.to_dict()}


def trace_in_worker(job: TraceJob) -> list[Trace | FtaxError]:
    """`trace_all` in a fresh process, for a model that can be built there again.

    What a worker traced before it died is kept, what it died of leaves that error, and the rest is
    given to another worker, up to four in all. Workers answer in files: whatever a model prints is
    nobody's answer.
    """
    answers: dict[int, Trace | FtaxError] = {}
    for _ in range(_MOST_WORKERS):
        left = [place for place in range(len(job.runtimes)) if place not in answers]
        found, death = _run_worker(replace(job, runtimes=tuple(job.runtimes[i] for i in left)))
        answers |= {left[place]: answer for place, answer in found.items()}
        if len(answers) == len(job.runtimes):
            break
        if not found:  # the next one would die as early
            break
    missing = RunnerError(f"the tracing process failed: {death}")
    return [answers.get(place, missing) for place in range(len(job.runtimes))]


def _run_worker(job: TraceJob) -> tuple[dict[int, Trace | FtaxError], str]:
    """Answers by place, those of a runtime that killed the worker among them, and how it ended."""
    with tempfile.TemporaryDirectory(prefix="ftax-trace-") as folder:
        try:
            worker = subprocess.run(
                [sys.executable, "-m", "ftax.ladders.trace_worker", folder],
                input=json.dumps(job.to_dict()),
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            return {}, describe(error)
        death = _explain_death(worker.returncode, worker.stderr)
        return _read_answers(Path(folder), job.runtimes, death), death


def _read_answers(
    folder: Path, runtimes: Sequence[tuple[str, str]], death: str
) -> dict[int, Trace | FtaxError]:
    answers: dict[int, Trace | FtaxError] = {}
    for place, (runtime, host) in enumerate(runtimes):
        trace, error = (folder / name for name in _name_files(place))
        try:
            if error.exists() and (text := error.read_text()):
                answers[place] = RunnerError(text)
            elif trace.exists():
                (answers[place],) = Trace.load(trace)
            elif error.exists():  # begun and not ended
                answers[place] = RunnerError(
                    f"the tracing process failed at {runtime}/{host}: {death}"
                )
        except (FtaxError, OSError, ValueError) as fault:
            answers[place] = RunnerError(f"the tracing process failed: {describe(fault)}")
    return answers


def _name_files(place: int) -> tuple[str, str]:
    """Of a trace and of an error; an empty error is there from the moment a runtime is begun."""
    return f"{place}.jsonl", f"{place}.error"


def _explain_death(code: int, stderr: str) -> str:
    if (name := name_signal(code)) is not None:
        return f"it was ended by {name}"
    if code == 0:
        return "it ended without an answer"
    reason = read_last_line(stderr) or f"exit code {code}"
    if is_out_of_memory(reason):
        return f"{describe(reason)}, or trace='here', which needs no second copy of the model"
    return reason


def _work(folder: Path) -> None:
    from ftax.runtimes.catalogue import check_host, find_runtime
    from ftax.runtimes.workspace import Workspace
    from ftax.steps.load import load_model

    data = json.load(sys.stdin)
    loaded = load_model(data["model"], **data["setting"])
    workspace = Workspace(loaded)
    for place, (runtime, host) in enumerate(data["runtimes"]):
        trace_file, error_file = (folder / name for name in _name_files(place))
        error_file.touch()
        try:
            prepared = find_runtime(runtime).prepare(workspace, check_host(host))
            trace = trace_prepared(
                loaded, prepared, iterations=data["iterations"], kinds=data["kinds"]
            )
        except (FtaxError, RuntimeError) as error:
            error_file.write_text(describe(error) or repr(error))
        else:
            trace.save(trace_file)


if __name__ == "__main__":
    _work(Path(sys.argv[1]))
