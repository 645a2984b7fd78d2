"""The public functions that time one runtime: `cpp_bench`, `py_bench` and `compare_hosts`.

All go through the same C++ loop; they differ in what they hand to it. Their keywords stand in
`BenchOptions` for the caller, and in `_measure` with their defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from ftax.runtimes.prepare import open_capture, prepare
from ftax.steps.given import Model, as_step, measuring
from ftax.steps.setting import SettingOptions, read_setting
from ftax.timing.interrupts import hold, interruptible, take
from ftax.timing.measurement import Measurement
from ftax.timing.plan import Plan, check_label, choose_plan
from ftax.timing.session import measure, require
from ftax.timing.watched import ProgressChoice, tell_interrupted, watched

if TYPE_CHECKING:
    from ftax.timing.differences import HostComparison


class BenchOptions(SettingOptions, total=False):
    """Keywords of `cpp_bench` and of its kin."""

    check_inputs: Any
    runtime: str
    plan: Plan | None
    progress: ProgressChoice
    label: str


def cpp_bench(model: Model, inputs: Any = None, **options: Unpack[BenchOptions]) -> Measurement:
    """Time a model inside C++, with no Python in the loop.

    Args:
        model: a zoo name (`ftax models`), an ``nn.Module``, a Hugging Face folder, or a ``.pt`` or
            ``.onnx`` file.
        inputs: for a module or a file: a tensor, a tuple of arguments, a dict of keyword arguments,
            or ``(args, kwargs)``. Zoo models bring their own.
        options:
            check_inputs: others like ``inputs``, on which programs are checked; left out, drawn.
            runtime: `ftax runtimes`; left out, "eager", which replays the model's operator calls
                from a tape, and of a capture "capture".
            plan: an `ftax.Plan`: rounds, precision, time limit, seed.
            progress: called between rounds as ``progress(phase, done, total)``; left out, a bar
                where standard error is a terminal, and in a notebook; False: nothing.
            label: what to call the result; `ftax.compare` reads it.
            dtype, device and the other fields of `ftax.Setting`, no_grad; or ``setting=`` one.

    Returns:
        The measurement; ``latency_ns`` is the mean over rounds of each round's median.

    Raises:
        InvalidArgumentError, UnsupportedError, UnavailableError: as the message says.
        RunnerError: the model failed while it was measured.
    """
    (measurement,) = _measure(model, inputs, ("cpp",), **options)
    return measurement


def py_bench(model: Model, inputs: Any = None, **options: Unpack[BenchOptions]) -> Measurement:
    """Time a model driven from Python: the same C++ loop calls the Python callable.

    Arguments and errors are those of `cpp_bench`.
    """
    (measurement,) = _measure(model, inputs, ("python",), **options)
    return measurement


def compare_hosts(
    model: Model, inputs: Any = None, **options: Unpack[BenchOptions]
) -> HostComparison:
    """Time a runtime under both hosts in the same interleaved rounds.

    Returns:
        Both measurements, and what the host language costs; it unpacks as ``python, cpp``.

    Arguments and errors are those of `cpp_bench`.
    """
    from ftax.timing.differences import HostComparison

    python, cpp = _measure(model, inputs, ("python", "cpp"), **options)
    return HostComparison(python=python, cpp=cpp)


def _measure(
    model: Model,
    inputs: Any,
    hosts: Sequence[str],
    *,
    check_inputs: Any = None,
    runtime: str = "",
    plan: Plan | None = None,
    progress: ProgressChoice = None,
    label: str = "",
    **options: Unpack[SettingOptions],
) -> tuple[Measurement, ...]:
    setting = read_setting(options, _measure.__kwdefaults__)
    check_label(label)
    model, inputs, runtime = open_capture(model, inputs, runtime)
    model, inputs, check_inputs = as_step(model, inputs, check_inputs, setting)
    plan = choose_plan(plan)
    with hold():
        with (
            measuring(model, setting, inputs, check_inputs),
            watched(progress, model, plan) as tell,
        ):
            loaded, prepared = interruptible(
                prepare, model, inputs, check_inputs, setting, runtime=runtime, hosts=hosts
            )
            found = require(measure(loaded, prepared, plan, tell))
        if take():  # too late to cost anything
            found = tuple(replace(item, stop_reason="interrupted") for item in found)
        tell_interrupted(progress, found[0].stop_reason, f"{len(found[0].samples_ns)} rounds")
        return tuple(item.with_label(label) for item in found)
