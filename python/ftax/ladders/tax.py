"""The public functions that measure receipts: every rung and every alternative in the same rounds.

They load the model and say what a receipt shall hold; `ftax.ladders.measure_receipt` measures
it. Their keywords stand in `TaxKeywords` for who calls, and with their defaults in `TaxOptions`,
which is what measuring is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

import torch

from ftax.captures.captured import Captured
from ftax.errors import InvalidArgumentError
from ftax.ladders.receipt import FIRST, Receipt
from ftax.runtimes.prepare import open_capture
from ftax.runtimes.workspace import Workspace
from ftax.steps.collectives import explain_unanswered
from ftax.steps.given import Model, as_step, load, measuring, use_threads
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import SettingOptions, read_setting
from ftax.timing.interrupts import hold, interruptible, take
from ftax.timing.plan import Plan, Progress, check_label, choose_plan
from ftax.timing.ranks import Ranks, join_ranks
from ftax.timing.watched import ProgressChoice, name_model, tell_interrupted, watched

if TYPE_CHECKING:
    from ftax.instruments.trace.records import Trace
    from ftax.ladders.choice import TaxOptions

TraceChoice = Literal["auto", "worker", "here", "none"]


class TaxKeywords(SettingOptions, total=False):
    """Keywords of `tax` and of its kin."""

    check_inputs: Any
    runtimes: str | Sequence[str]
    hosts: Sequence[str]
    plan: Plan | None
    ladder: str
    operators: bool
    trace: TraceChoice
    energy: bool
    throughput: bool
    progress: ProgressChoice
    label: str


def tax(model: Model | Captured, inputs: Any = None, **options: Unpack[TaxKeywords]) -> Receipt:
    """Measure the ladder and, beside it, the alternatives; see docs/receipt.md.

    Args:
        model, inputs: as for `ftax.cpp_bench`; or what `ftax.capture` gave, whose original is then
            measured with a capture beside it.
        options:
            runtimes: "quick", the default (one or two of a family, ready in seconds), "available"
                (all that can run on this machine; compilers take minutes), "all" (the rest too,
                with the reasons why not), "none", or names of runtimes.
            hosts: who drives the alternatives, both if left out; the ladder has its own hosts.
            ladder: "compile" takes `torch.compile` apart (docs/compile.md); left out, the one that
                fits, from Python eager down.
            operators: also time each operator of the tape, and sample which lines of Python take
                time, after the rounds; True if left out.
            trace: on a GPU, where the kernels of each runtime are traced, after the rounds:
                "worker", a disposable process; "here"; "none"; or "auto", the default: a worker
                for models that it can build again, by name or path, and here for others.
            energy: on a GPU, also read energy, utilisation and memory: some 5 s a runtime.
            throughput: also time requests back to back, in ten rounds of their own.
            plan: `usual_plan` of the device if left out.
            check_inputs, progress, label, and the fields of `ftax.Setting`: as for
                `ftax.cpp_bench`.

    A step that communicates by `torch.distributed` is measured where every rank calls this
    (docs/ranks.md).

    The errors are those of `cpp_bench`. A rung or an alternative that cannot be measured is listed
    in the receipt with the reason; only a model that does not run at all raises.
    """
    model, inputs, _ = open_capture(model, inputs, "")
    return tax_with_traces(model, inputs, **options)[0]


def usual_plan(device: str) -> Plan:
    """A receipt's, unless one is given: on a GPU much is looked at after the rounds."""
    return Plan(duration_s=25.0 if device == "cpu" else 10.0)


def tax_with_traces(
    model: Model,
    inputs: Any = None,
    *,
    check_inputs: Any = None,
    plan: Plan | Callable[[str], Plan] | None = None,  # of this device
    trace: TraceChoice = "auto",
    progress: ProgressChoice = None,
    label: str = "",
    keep: Callable[[Receipt], None] | None = None,
    **options: Any,
) -> tuple[Receipt, tuple[Trace, ...]]:
    """`tax`, and the traces behind its evidence: none on a CPU.

    ``keep`` is given the receipt of the rounds as soon as they are over, before anything looks
    closer: a runtime that faults on the GPU while it is traced here ends the process.
    """
    from ftax.ladders.choice import TaxOptions

    wanted = {name: options.pop(name) for name in TaxOptions.__slots__ if name in options}
    setting = read_setting(options, TaxKeywords.__optional_keys__)
    found = TaxOptions(**wanted, keep=keep)
    check_label(label)
    model, inputs, check_inputs = as_step(model, inputs, check_inputs, setting)
    plan = plan or usual_plan
    shown = choose_plan(plan("cpu") if callable(plan) else plan)
    with hold():
        with (
            measuring(model, setting, inputs, check_inputs),
            watched(progress, model, shown) as tell,
            join_ranks(name_model(model)) as ranks,
        ):
            with explain_unanswered(name_model(model)):
                loaded = interruptible(load, model, inputs, check_inputs, setting)
            where = _choose_trace(trace, can_be_built_again=loaded.reproducible)
            if found.energy and loaded.device == "cpu":
                raise InvalidArgumentError(
                    "energy is asked for, but the device is 'cpu'; give device='cuda'"
                )
            chosen = choose_plan(plan(loaded.device)) if callable(plan) else shown
            receipt, traces = _run(loaded, replace(found, trace=where), chosen, tell, ranks)
        if take():  # too late to cost anything
            receipt = receipt.with_preparation(interrupted=True)
        top = receipt.rungs[0]
        tell_interrupted(progress, top.stop_reason, f"{len(top.samples_ns)} rounds")
        return receipt.with_label(label), traces


def _run(
    loaded: LoadedModel, options: TaxOptions, plan: Plan, tell: Progress | None, ranks: Ranks
) -> tuple[Receipt, tuple[Trace, ...]]:
    """The receipt; of a CPU on which requests of several threads waited for CPUs, that of one
    thread, unless the user has asked for a number of threads."""
    from ftax.ladders.measure_receipt import run_tax

    with explain_unanswered(loaded.name):
        workspace = Workspace(loaded)
    if (others := ranks.find()) is not None:
        found = run_tax(workspace, options, plan, tell, others)
        assert found is not None  # since it may wait
        return found
    threads = torch.get_num_threads()
    is_free = loaded.setting.threads is None and loaded.device == "cpu" and threads > 1
    found = run_tax(workspace, replace(options, may_wait=not is_free), plan, tell)
    if found is not None:
        return found
    with use_threads(1):
        again = run_tax(Workspace(loaded), options, plan, tell)
    assert again is not None  # since it may wait
    receipt, traces = again
    note = (
        f"Measured on one thread: on {threads}, requests waited for CPUs that other programs used. "
        "--threads chooses."
    )
    return receipt.with_preparation(**{FIRST: note}), traces


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
