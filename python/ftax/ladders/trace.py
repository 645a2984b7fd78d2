"""Looks into one runtime on a GPU: its kernels through CUPTI, or one inference for nsys and ncu."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Unpack

import torch

from ftax import _core
from ftax.errors import InvalidArgumentError, UnavailableError, check_count
from ftax.runtimes.cuda_graph import require_cuda_build
from ftax.runtimes.prepare import prepare
from ftax.steps.given import Model, as_step, measuring
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting, SettingOptions, read_setting
from ftax.timing.candidate import Candidate, Host

if TYPE_CHECKING:
    from ftax.instruments.trace.records import Trace


def trace(
    model: Model,
    inputs: Any = None,
    *,
    check_inputs: Any = None,
    runtime: str = "eager",
    host: Host = "python",
    iterations: int = 20,
    kinds: Sequence[str] = ("runtime", "driver"),
    **options: Unpack[SettingOptions],
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
    from ftax.instruments.trace.tracer import detach, trace_prepared

    check_count("iterations", iterations)
    setting = read_setting(options, trace.__kwdefaults__)
    with _ready_on_gpu(model, inputs, check_inputs, setting, runtime, host) as (loaded, prepared):
        try:
            return trace_prepared(loaded, prepared, iterations=iterations, kinds=kinds)
        finally:
            detach()


def profile_once(
    model: Model,
    inputs: Any = None,
    *,
    check_inputs: Any = None,
    runtime: str = "eager",
    host: Host = "python",
    **options: Unpack[SettingOptions],
) -> None:
    """Warm one runtime up, then run one inference between cudaProfilerStart and cudaProfilerStop.

    For nsys and ncu, which can be told to look at nothing else. Arguments and errors are those of
    `trace`.
    """
    setting = read_setting(options, profile_once.__kwdefaults__)
    with _ready_on_gpu(model, inputs, check_inputs, setting, runtime, host) as (_, prepared):
        runner = _core.NvtxRunner(prepared.runner, f"{runtime}/{host}")
        for _ in range(5):
            runner.run_once()
        _core.profile_once(runner)


@contextmanager
def _ready_on_gpu(
    model: Model, inputs: Any, check_inputs: Any, setting: Setting, runtime: str, host: Host
) -> Iterator[tuple[LoadedModel, Candidate]]:
    model, inputs, check_inputs = as_step(model, inputs, check_inputs, setting)
    with measuring(model, setting, inputs, check_inputs):
        try:
            loaded, (prepared,) = prepare(
                model, inputs, check_inputs, setting, runtime=runtime, hosts=(host,)
            )
        except UnavailableError as error:
            if torch.cuda.is_available():
                raise
            raise UnavailableError(
                f"tracing looks at a GPU, and torch {torch.__version__} finds no CUDA device here: "
                "run it where there is one, with a CUDA build of torch"
            ) from error
        if not isinstance(loaded, LoadedModel) or loaded.device == "cpu":
            raise InvalidArgumentError(
                f"the device is {loaded.device!r}, which has no kernels to trace; give "
                "device='cuda', or a module that is on a GPU"
            )
        require_cuda_build("tracing needs")
        yield loaded, prepared
