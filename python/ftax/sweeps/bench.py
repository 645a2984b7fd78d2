"""The public functions that measure one runtime.

All of them go through the same C++ loop; they differ in what they hand to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ftax.runtimes.prepare import Model, prepare, use_threads
from ftax.steps.state import leave_as_found
from ftax.timing.candidate import Host
from ftax.timing.measurement import Measurement
from ftax.timing.session import Plan, Progress, measure, require

if TYPE_CHECKING:
    from ftax.timing.host_comparison import HostComparison


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
) -> HostComparison:
    """Time a runtime under both hosts in the same interleaved rounds.

    Returns:
        Both measurements, and what the host language costs; it unpacks as ``python, cpp``.

    Arguments and errors are those of `cpp_bench`.
    """
    from ftax.timing.host_comparison import HostComparison

    with use_threads(threads), leave_as_found(model, inputs, model_options):
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
    return HostComparison(python=python, cpp=cpp)


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
    with use_threads(threads), leave_as_found(model, inputs, model_options):
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
