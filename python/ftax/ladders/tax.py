"""The public functions that measure receipts: every rung and every alternative in the same rounds.

They load the model and say what a receipt shall hold; `ftax.ladders.run` measures it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ftax.errors import InvalidArgumentError
from ftax.ladders.receipt import Receipt
from ftax.runtimes.prepare import Model, load, use_threads
from ftax.runtimes.workspace import Workspace
from ftax.steps.state import leave_as_found
from ftax.timing.session import Plan, Progress

if TYPE_CHECKING:
    from ftax.instruments.trace.records import Trace
    from ftax.ladders.runtime_comparison import RuntimeComparison

TraceChoice = Literal["auto", "worker", "here", "none"]


def tax(
    model: Model,
    inputs: Any = None,
    *,
    runtimes: str | Sequence[str] = "quick",
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
    rehearse: bool = False,
    progress: Progress | None = None,
    **model_options: Any,
) -> Receipt:
    """Measure the ladder and, beside it, the alternatives; see docs/receipt.md.

    Args:
        runtimes: "quick" (one or two of a family, ready in seconds), "available" (all that can run
            on this machine; compilers take minutes), "all" (the rest too, with the reasons why
            not), "none", or names of runtimes.
        hosts: who drives the alternatives; the ladder has its own hosts.
        operators: also time each operator of the tape, after the rounds.
        trace: on a GPU, where the kernels of each runtime are traced, after the rounds: "worker", a
            disposable process; "here"; "none"; or "auto": a worker for models by name, here for
            modules, which a worker could not build.
        energy: on a GPU, also read energy, utilisation and memory: some 5 s a runtime.
        throughput: also time requests back to back, in ten rounds of their own.
        cold: flush the GPU's L2 before each request, outside its time.
        transfers: copy inputs from and outputs to pinned host memory in every request.
        rehearse: first try each alternative in a process of its own, several side by side, and
            leave out what takes its process down; for models by name or path.

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
        rehearse=rehearse,
        progress=progress,
        **model_options,
    )
    return receipt


def tax_with_traces(
    model: Model,
    inputs: Any = None,
    *,
    runtimes: str | Sequence[str] = "quick",
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
    rehearse: bool = False,
    progress: Progress | None = None,
    keep: Callable[[Receipt], None] | None = None,
    **model_options: Any,
) -> tuple[Receipt, tuple[Trace, ...]]:
    """`tax`, and the traces behind its evidence: none on a CPU.

    ``keep`` is given the receipt of the rounds as soon as they are over, before anything looks
    closer: a runtime that faults on the GPU while it is traced here ends the process.
    """
    from ftax.ladders.options import TaxOptions
    from ftax.ladders.run import run_tax

    name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else None
    where = _choose_trace(trace, can_be_built_again=name is not None)
    with use_threads(threads), leave_as_found(model, inputs, model_options):
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
            rehearse=rehearse,
            keep=keep,
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
    from ftax.ladders.runtime_comparison import RuntimeComparison

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
