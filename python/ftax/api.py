"""The public functions that measure.

All of them go through the same C++ loop; they differ in what they hand to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from ftax import _core
from ftax.errors import InvalidArgumentError, UnavailableError
from ftax.measure import Plan, Progress, measure, require
from ftax.models import LoadedModel, describe_path, load_model
from ftax.receipt import Receipt
from ftax.results import Measurement
from ftax.runtimes import Host, Prepared, Workspace, check_host, find_runtime
from ftax.runtimes.files import FileModel, prepare_path

if TYPE_CHECKING:
    from ftax.tracing import Trace

TraceChoice = Literal["auto", "worker", "here", "none"]
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
    runtime_options: Mapping[str, str] | None = None,
    transfers: bool = False,
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
        runtime_options: of the runtime, such as ``{"optimization": "basic"}`` of onnxruntime; see
            docs/runtimes.md.
        transfers: on a GPU, with the inputs copied from pinned host memory and the outputs copied
            back in every request.
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
        model, inputs, "cpp", runtime, plan, threads, no_grad, runtime_options, transfers,
        progress, model_options,
    )  # fmt: skip


def py_bench(
    model: Model,
    inputs: Any = None,
    *,
    runtime: str = "eager",
    plan: Plan | None = None,
    threads: int | None = None,
    no_grad: bool = False,
    runtime_options: Mapping[str, str] | None = None,
    transfers: bool = False,
    progress: Progress | None = None,
    **model_options: Any,
) -> Measurement:
    """Time a model driven from Python: the same C++ loop calls the Python callable.

    Arguments and errors are those of `cpp_bench`.
    """
    return _bench(
        model, inputs, "python", runtime, plan, threads, no_grad, runtime_options, transfers,
        progress, model_options,
    )  # fmt: skip


def compare_hosts(
    model: Model,
    inputs: Any = None,
    *,
    runtime: str = "eager",
    plan: Plan | None = None,
    threads: int | None = None,
    no_grad: bool = False,
    runtime_options: Mapping[str, str] | None = None,
    transfers: bool = False,
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
            runtime_options=runtime_options,
            transfers=transfers,
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
    trace: TraceChoice = "auto",
    energy: bool = False,
    cold: bool = False,
    transfers: bool = False,
    progress: Progress | None = None,
    **model_options: Any,
) -> Receipt:
    """Measure the ladder and, beside it, the alternatives; see docs/receipt.md.

    Args:
        runtimes: "available" (what this machine has), "none", or names of runtimes.
        operators: also time each operator of the tape, after the rounds.
        trace: on a GPU, where the kernels of each rung are traced, after the rounds: "worker", a
            disposable process; "here"; "none"; or "auto": a worker for models by name, here for
            modules, which a worker could not build.
        energy: on a GPU, also read energy, utilisation and memory: some 5 s a runtime.
        cold: flush the GPU's L2 before each request, outside its time.
        transfers: copy inputs from and outputs to pinned host memory in every request.

    The other arguments and the errors are those of `cpp_bench`. A rung or an alternative that
    cannot be measured is listed in the receipt with the reason; only a model that does not run at
    all
    raises.
    """
    receipt, _ = tax_with_traces(
        model,
        inputs,
        runtimes=runtimes,
        plan=plan,
        threads=threads,
        no_grad=no_grad,
        operators=operators,
        trace=trace,
        energy=energy,
        cold=cold,
        transfers=transfers,
        progress=progress,
        **model_options,
    )
    return receipt


def tax_with_traces(
    model: Model,
    inputs: Any = None,
    *,
    runtimes: str | Sequence[str] = "available",
    plan: Plan | None = None,
    threads: int | None = None,
    no_grad: bool = False,
    operators: bool = True,
    trace: TraceChoice = "auto",
    energy: bool = False,
    cold: bool = False,
    transfers: bool = False,
    progress: Progress | None = None,
    **model_options: Any,
) -> tuple[Receipt, tuple[Trace, ...]]:
    """`tax`, and the traces behind its evidence: none on a CPU."""
    from ftax.receipt_run import run_tax

    if trace not in ("auto", "worker", "here", "none"):
        raise InvalidArgumentError(
            f"trace is {trace!r}; it has to be 'auto', 'worker', 'here' or 'none'"
        )
    with use_threads(threads):
        loaded = _load(model, inputs, model_options)
        if loaded.device == "cpu" and (energy or cold):
            raise InvalidArgumentError(
                f"{'energy' if energy else 'cold'} is asked for, but the device is 'cpu'; give "
                "device='cuda'"
            )
        name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else None
        if trace == "worker" and name is None:
            raise InvalidArgumentError(
                "trace is 'worker', but a module cannot be built again there; give trace='here'"
            )
        if trace == "auto":
            trace = "worker" if name is not None else "here"
        return run_tax(
            Workspace(loaded, no_grad=no_grad, transfers=transfers),
            runtimes=runtimes,
            plan=plan or Plan(),
            operators=operators,
            look=trace,
            model=name,
            model_options=model_options,
            energy=energy,
            cold=cold,
            progress=progress,
        )


def trace(
    model: Model,
    inputs: Any = None,
    *,
    runtime: str = "eager",
    host: Host = "python",
    iterations: int = 20,
    kinds: Sequence[str] = ("runtime", "driver"),
    no_grad: bool = False,
    **model_options: Any,
) -> Trace:
    """Trace the kernels of one runtime on a GPU, in this process; see docs/trace.md.

    Args:
        iterations: synchronised inferences to trace, after three that are not.
        kinds: "runtime", "driver", "overhead": what to record beside kernels, copies and fills.

    The other arguments are those of `cpp_bench`. A trace slows what it traces: its times inside
    the device are good, its latencies are not.

    Raises:
        InvalidArgumentError: the device is the CPU, or an argument is wrong.
        UnavailableError: no CUPTI, or another profiler is using it.
        RunnerError: the model failed.
    """
    from ftax.tracing.run import trace_prepared

    if iterations < 1:
        raise InvalidArgumentError(f"iterations is {iterations}; give 1 or more")
    loaded, prepared = _prepare_on_gpu(model, inputs, runtime, host, no_grad, model_options)
    return trace_prepared(loaded, prepared, iterations=iterations, kinds=kinds)


def profile_once(
    model: Model,
    inputs: Any = None,
    *,
    runtime: str = "eager",
    host: Host = "python",
    no_grad: bool = False,
    **model_options: Any,
) -> None:
    """Warm one runtime up, then run one inference between cudaProfilerStart and cudaProfilerStop.

    For nsys and ncu, which can be told to look at nothing else. Arguments and errors are those of
    `trace`.
    """
    prepared = _prepare_on_gpu(model, inputs, runtime, host, no_grad, model_options)[1]
    runner = _core.NvtxRunner(prepared.runner, f"{runtime}/{host}")
    for _ in range(5):
        runner.run_once()
    _core.profile_once(runner)


def _prepare_on_gpu(
    model: Model,
    inputs: Any,
    runtime: str,
    host: Host,
    no_grad: bool,
    model_options: dict[str, Any],
) -> tuple[LoadedModel, Prepared]:
    loaded, (prepared,) = prepare(
        model, inputs, runtime=runtime, hosts=(host,), no_grad=no_grad, model_options=model_options
    )
    if not isinstance(loaded, LoadedModel) or loaded.device == "cpu":
        raise InvalidArgumentError(
            f"the device is {loaded.device!r}, which has no kernels to trace; give device='cuda'"
        )
    if not hasattr(_core, "profile_once"):
        raise UnavailableError(
            "this build of ftax has no CUDA parts: reinstall it where a CUDA torch and nvcc are"
        )
    return loaded, prepared


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
    runtime_options: Mapping[str, str] | None,
    transfers: bool,
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
            runtime_options=runtime_options,
            transfers=transfers,
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
    runtime_options: Mapping[str, str] | None = None,
    transfers: bool = False,
    model_options: dict[str, Any],
) -> tuple[LoadedModel | FileModel, list[Prepared]]:
    """Load a model and make one runtime ready under each host; what the functions above measure."""
    spec = find_runtime(runtime)
    spec.check_options(runtime_options or {})
    checked = [check_host(host) for host in hosts]
    if _is_file(model):
        path = Path(os.fspath(model))  # type: ignore[arg-type]
        if runtime_options or transfers:
            raise InvalidArgumentError(
                f"{next(iter(runtime_options or ('transfers',)))!r} is for models that ftax loads; "
                f"{path.name} is run as it is"
            )
        return prepare_path(path, inputs, runtime, checked, no_grad, model_options)
    workspace = Workspace(
        _load(model, inputs, model_options),
        no_grad=no_grad,
        runtime_options=runtime_options,
        transfers=transfers,
    )
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
