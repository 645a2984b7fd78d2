"""The public functions that measure.

All of them go through the same C++ loop; they differ in what they hand to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ftax.errors import InvalidArgumentError
from ftax.measure import Plan, Progress, measure, require
from ftax.preparing import Model, load, prepare, use_threads
from ftax.receipt import Receipt
from ftax.results import Measurement
from ftax.runtimes import Host, Workspace

if TYPE_CHECKING:
    from ftax.host_comparison import HostComparison
    from ftax.runtime_comparison import RuntimeComparison
    from ftax.tracing import Trace

TraceChoice = Literal["auto", "worker", "here", "none"]


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
    from ftax.host_comparison import HostComparison

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
    return HostComparison(python=python, cpp=cpp)


def tax(
    model: Model,
    inputs: Any = None,
    *,
    runtimes: str | Sequence[str] = "available",
    hosts: Sequence[str] = ("python", "cpp"),
    plan: Plan | None = None,
    threads: int | None = None,
    no_grad: bool = False,
    operators: bool = True,
    trace: TraceChoice = "auto",
    energy: bool = False,
    throughput: bool = False,
    cold: bool = False,
    transfers: bool = False,
    progress: Progress | None = None,
    **model_options: Any,
) -> Receipt:
    """Measure the ladder and, beside it, the alternatives; see docs/receipt.md.

    Args:
        runtimes: "available" (what can run on this machine), "all" (the rest too, with the reasons
            why not), "none", or names of runtimes.
        hosts: who drives the alternatives; the ladder has its own hosts.
        operators: also time each operator of the tape, after the rounds.
        trace: on a GPU, where the kernels of each runtime are traced, after the rounds: "worker", a
            disposable process; "here"; "none"; or "auto": a worker for models by name, here for
            modules, which a worker could not build.
        energy: on a GPU, also read energy, utilisation and memory: some 5 s a runtime.
        throughput: also time requests back to back, in ten rounds of their own.
        cold: flush the GPU's L2 before each request, outside its time.
        transfers: copy inputs from and outputs to pinned host memory in every request.

    The other arguments and the errors are those of `cpp_bench`. A rung or an alternative that
    cannot be measured is listed in the receipt with the reason; only a model that does not run at
    all raises.
    """
    receipt, _ = tax_with_traces(
        model,
        inputs,
        runtimes=runtimes,
        hosts=hosts,
        plan=plan,
        threads=threads,
        no_grad=no_grad,
        operators=operators,
        trace=trace,
        energy=energy,
        throughput=throughput,
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
    hosts: Sequence[str] = ("python", "cpp"),
    plan: Plan | None = None,
    threads: int | None = None,
    no_grad: bool = False,
    operators: bool = True,
    trace: TraceChoice = "auto",
    energy: bool = False,
    throughput: bool = False,
    cold: bool = False,
    transfers: bool = False,
    progress: Progress | None = None,
    **model_options: Any,
) -> tuple[Receipt, tuple[Trace, ...]]:
    """`tax`, and the traces behind its evidence: none on a CPU."""
    from ftax.receipt_run import TaxOptions, run_tax

    name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else None
    where = _choose_trace(trace, can_be_built_again=name is not None)
    with use_threads(threads):
        loaded = load(model, inputs, model_options)
        if loaded.device == "cpu" and (energy or cold):
            raise InvalidArgumentError(
                f"{'energy' if energy else 'cold'} is asked for, but the device is 'cpu'; give "
                "device='cuda'"
            )
        options = TaxOptions(
            runtimes=runtimes,
            hosts=hosts,
            operators=operators,
            trace=where,
            model=name,
            model_options=model_options,
            energy=energy,
            throughput=throughput,
            cold=cold,
        )
        workspace = Workspace(loaded, no_grad=no_grad, transfers=transfers)
        return run_tax(workspace, options, plan or Plan(), progress)


def compare_runtimes(
    model: Model,
    inputs: Any = None,
    *,
    runtimes: str | Sequence[str] = "available",
    hosts: Sequence[str] = ("python", "cpp"),
    throughput: bool = True,
    **options: Any,
) -> RuntimeComparison:
    """Time every way to run a model in the same rounds, and say why the faster ones are faster.

    Returns:
        Rows sorted by latency, a recommendation, and the receipt that they are computed from.

    Arguments and errors are those of `tax`, of which this is another view: the ladder is measured
    too, since tax is defined by it.
    """
    from ftax.runtime_comparison import RuntimeComparison

    receipt = tax(
        model, inputs, runtimes=runtimes, hosts=hosts, throughput=throughput,
        **{"operators": False, **options},
    )  # fmt: skip
    return RuntimeComparison(receipt=receipt)


def _choose_trace(
    trace: TraceChoice, *, can_be_built_again: bool
) -> Literal["worker", "here", "none"]:
    if trace not in ("auto", "worker", "here", "none"):
        raise InvalidArgumentError(
            f"trace is {trace!r}; it has to be 'auto', 'worker', 'here' or 'none'"
        )
    if trace == "auto":
        return "worker" if can_be_built_again else "here"
    if trace == "worker" and not can_be_built_again:
        raise InvalidArgumentError(
            "trace is 'worker', but a module cannot be built again there; give trace='here'"
        )
    return trace


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
