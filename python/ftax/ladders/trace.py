"""Looks into one runtime on a GPU: its kernels through CUPTI, or one inference for nsys and ncu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ftax import _core
from ftax.errors import InvalidArgumentError, UnavailableError
from ftax.runtimes.prepare import Model, prepare
from ftax.steps.loaded import LoadedModel
from ftax.steps.state import leave_as_found
from ftax.timing.candidate import Candidate, Host

if TYPE_CHECKING:
    from ftax.instruments.trace.records import Trace


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
    from ftax.instruments.trace.run import detach, trace_prepared

    if iterations < 1:
        raise InvalidArgumentError(f"iterations is {iterations}; give 1 or more")
    with leave_as_found(model, inputs, model_options):
        loaded, prepared = _prepare_on_gpu(model, inputs, runtime, host, no_grad, model_options)
        try:
            return trace_prepared(loaded, prepared, iterations=iterations, kinds=kinds)
        finally:
            detach()


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
    with leave_as_found(model, inputs, model_options):
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
) -> tuple[LoadedModel, Candidate]:
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
