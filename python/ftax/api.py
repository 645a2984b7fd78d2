"""The public functions that measure.

All of them go through the same C++ loop; they differ in what they hand to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ftax.errors import InvalidArgumentError
from ftax.measure import Plan, Progress, measure, require
from ftax.models import LoadedModel, describe_path, load_model
from ftax.receipt import Receipt
from ftax.results import Measurement
from ftax.runtimes import Host, Prepared, Workspace, check_host, find_runtime
from ftax.runtimes.files import FileModel, prepare_path

Model = str | os.PathLike[str] | nn.Module | LoadedModel

_MODEL_OPTIONS = frozenset(
    {
        "dtype",
        "device",
        "batch",
        "sequence",
        "seed",
        "attention",
        "use_cache",
        "tiny",
        "check_inputs",
    }
)


def cpp_bench(
    model: Model,
    inputs: Any = None,
    *,
    runtime: str = "eager",
    plan: Plan | None = None,
    threads: int | None = None,
    no_grad: bool = False,
    progress: Progress | None = None,
    **model_options: Any,
) -> Measurement:
    """Time a model inside C++, with no Python in the loop.

    Args:
        model: a zoo name (`ftax models`), an ``nn.Module``, a Hugging Face folder, or a ``.pt`` or
            ``.onnx`` file.
        inputs: for a module or a file: a tensor, a tuple of arguments, a dict of keyword arguments,
            or ``(args, kwargs)``. Zoo models bring their own.
        runtime: `ftax runtimes`; "eager" replays the model's operator calls from a tape.
        plan: rounds, precision, time limit, seed.
        threads: torch's and onnxruntime's intra-op threads; None leaves torch's setting.
        no_grad: measure under torch.no_grad instead of inference mode.
        progress: called between rounds as ``progress(phase, done, total)``.
        model_options: dtype, device, batch, sequence, seed, attention, use_cache, tiny,
            check_inputs; see `ftax.load_model`.

    Returns:
        The measurement; ``latency_ns`` is the mean over rounds of each round's median.

    Raises:
        InvalidArgumentError, UnsupportedError, UnavailableError: as the message says.
        RunnerError: the model failed while it was measured.
    """
    return _bench(
        model, inputs, "cpp", runtime, plan, threads, no_grad, progress, model_options
    )  # fmt: skip


def py_bench(
    model: Model,
    inputs: Any = None,
    *,
    runtime: str = "eager",
    plan: Plan | None = None,
    threads: int | None = None,
    no_grad: bool = False,
    progress: Progress | None = None,
    **model_options: Any,
) -> Measurement:
    """Time a model driven from Python: the same C++ loop calls the Python callable.

    Arguments and errors are those of `cpp_bench`.
    """
    return _bench(
        model, inputs, "python", runtime, plan, threads, no_grad, progress, model_options
    )  # fmt: skip


def compare_hosts(
    model: Model,
    inputs: Any = None,
    *,
    runtime: str = "eager",
    plan: Plan | None = None,
    threads: int | None = None,
    no_grad: bool = False,
    progress: Progress | None = None,
    **model_options: Any,
) -> tuple[Measurement, Measurement]:
    """Time a runtime under both hosts in the same interleaved rounds: (python, cpp).

    `ftax.compare` tells whether they differ, by the rounds they share. Arguments and errors are
    those of `cpp_bench`.
    """
    with use_threads(threads):
        loaded, preparations = prepare(
            model,
            inputs,
            runtime=runtime,
            hosts=("python", "cpp"),
            no_grad=no_grad,
            model_options=model_options,
        )
        session = measure(loaded, preparations, plan or Plan(), progress)
    python, cpp = require(session)
    return python, cpp


def tax(
    model: Model,
    inputs: Any = None,
    *,
    runtimes: str | Sequence[str] = "available",
    plan: Plan | None = None,
    threads: int | None = None,
    no_grad: bool = False,
    operators: bool = True,
    progress: Progress | None = None,
    **model_options: Any,
) -> Receipt:
    """Measure the ladder and, beside it, the alternatives; see docs/receipt.md.

    Args:
        runtimes: "available" (what this machine has), "none", or names of runtimes.
        operators: also time each operator of the tape, after the rounds.

    The other arguments and the errors are those of `cpp_bench`. A rung or an alternative that
    cannot be measured is listed in the receipt with the reason; only a model that does not run at
    all
    raises.
    """
    from ftax.receipt_run import run_tax

    with use_threads(threads):
        loaded = _load(model, inputs, model_options)
        return run_tax(
            Workspace(loaded, no_grad=no_grad),
            runtimes=runtimes,
            plan=plan or Plan(),
            operators=operators,
            progress=progress,
        )


@contextmanager
def use_threads(threads: int | None) -> Iterator[None]:
    """Torch's intra-op threads inside, restored afterwards; None leaves them."""
    if threads is None:
        yield
        return
    if threads < 1:
        raise InvalidArgumentError(f"threads is {threads}; give 1 or more")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _bench(
    model: Model,
    inputs: Any,
    host: Host,
    runtime: str,
    plan: Plan | None,
    threads: int | None,
    no_grad: bool,
    progress: Progress | None,
    model_options: dict[str, Any],
) -> Measurement:
    with use_threads(threads):
        loaded, preparations = prepare(
            model,
            inputs,
            runtime=runtime,
            hosts=(host,),
            no_grad=no_grad,
            model_options=model_options,
        )
        (measurement,) = require(measure(loaded, preparations, plan or Plan(), progress))
    return measurement


def prepare(
    model: Model,
    inputs: Any,
    *,
    runtime: str,
    hosts: Sequence[str],
    no_grad: bool,
    model_options: dict[str, Any],
) -> tuple[LoadedModel | FileModel, list[Prepared]]:
    """Load a model and make one runtime ready under each host; what the functions above measure."""
    spec = find_runtime(runtime)
    checked = [check_host(host) for host in hosts]
    if _is_file(model):
        path = Path(os.fspath(model))  # type: ignore[arg-type]
        return prepare_path(path, inputs, runtime, checked, no_grad, model_options)
    workspace = Workspace(_load(model, inputs, model_options), no_grad=no_grad)
    return workspace.loaded, [spec.prepare(workspace, host) for host in checked]


def _load(model: Model, inputs: Any, model_options: dict[str, Any]) -> LoadedModel:
    unknown = sorted(set(model_options) - _MODEL_OPTIONS)
    if unknown:
        raise InvalidArgumentError(
            f"unknown option {unknown[0]!r}; there are {', '.join(sorted(_MODEL_OPTIONS))}"
        )
    if isinstance(model, LoadedModel):
        if inputs is not None or model_options:
            raise InvalidArgumentError(
                "a LoadedModel brings its inputs and options; pass them to ftax.load_model instead"
            )
        return model
    return load_model(model, inputs=inputs, **model_options)


def _is_file(model: Model) -> bool:
    if not isinstance(model, (str, os.PathLike)):
        return False
    text = os.fspath(model)
    looks_like_file = text.endswith((".pt", ".onnx")) or Path(text).is_file()
    return looks_like_file and describe_path(text) in ("torchscript", "onnx")
