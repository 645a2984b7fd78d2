"""What follows the rounds of a receipt, interrupted and failing at each place; the one loop that
runs it."""

from dataclasses import dataclass, replace

import pytest
import torch

import ftax
from ftax.errors import UnavailableError
from ftax.instruments.phases import time_phases
from ftax.ladders.after import AFTER, AfterRounds, Instrument, look_closer
from ftax.ladders.choice import TaxOptions
from ftax.ladders.evidence import RungEvidence
from ftax.runtimes.workspace import Workspace
from ftax.timing.plan import Plan
from support.runtimes_receipt import make_cpu_receipt
from support.small_models import load_function

QUICK = Plan(rounds=3, warmup=2, round_ms=1.0)
RUNGS = [("eager", "python"), ("flat", "python"), ("eager", "cpp")]


def interrupt(*_arguments, **_options):
    raise KeyboardInterrupt


def take(**options):
    return ftax.tax(load_function(torch.exp), runtimes="none", plan=QUICK, **options)


@pytest.mark.parametrize(
    ("where", "missing"),
    [
        ("check_crowd", "whether runners disturb each other was not tested"),
        ("measure", "throughput was not measured"),
        ("OperatorCost", "operators were not timed"),
        ("measure_floors", "the floors of this machine were not timed"),
    ],
)
def test_ctrl_c_after_the_rounds_keeps_them_and_says_what_is_missing(where, missing, monkeypatch):
    monkeypatch.setattr(f"ftax.ladders.after.{where}", interrupt)
    receipt = take(throughput=True)
    assert [rung.place for rung in receipt.rungs] == RUNGS
    assert receipt.interrupted
    assert any(
        text.startswith("interrupted after the rounds: ") and missing in text
        for text in receipt.warnings
    )
    assert ftax.Receipt.from_dict(receipt.to_dict()).interrupted
    order = [item.missing for item in AFTER]
    has_timed = order.index(missing) > order.index("operators were not timed")
    assert bool(receipt.operator_costs) is has_timed  # what came before it is kept
    assert not receipt.floors_ns


def test_a_receipt_that_nobody_interrupted_does_not_say_so():
    receipt = take()
    assert not receipt.interrupted
    assert receipt.operator_costs and receipt.floors_ns and receipt.throughputs == ()
    assert "interrupted" not in receipt.preparation


def test_back_to_back_requests_that_are_interrupted_are_kept_and_end_the_looks(monkeypatch):
    from ftax.ladders import after

    whole = after.measure

    def measure_half(*arguments, **options):
        session = whole(*arguments, **options)
        return type(session)(
            measurements=session.measurements,
            errors=session.errors,
            stop_reason="interrupted",
            elapsed_s=session.elapsed_s,
            gc_ms=session.gc_ms,
        )

    monkeypatch.setattr(after, "measure", measure_half)
    receipt = take(throughput=True)
    assert len(receipt.throughputs) == 3 and receipt.interrupted
    assert not receipt.operator_costs


# --- the loop ------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Notes:
    found: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    interrupted: bool = False

    def tell(self, phase: str, done: int = 0, total: int = 1) -> None:
        TOLD.append(phase)

    def warn(self, *texts: str) -> None:
        self.warnings += texts

    def interrupt(self, text: str) -> None:
        self.warn(text)
        self.interrupted = True


TOLD: list[str] = []


def make(name, *found, error=None, wanted=True):
    """Finds these one after the other, and then fails."""

    def look(notes):
        notes.found += found
        if error is not None:
            raise error

    return Instrument(name, f"no {name}", lambda _: wanted, look)


def look_closer_at_notes(*instruments):
    notes = Notes()
    look_closer(instruments, notes)
    return notes


def test_what_is_wanted_is_looked_at_in_order_and_told():
    TOLD.clear()
    instruments = [make("first", "a"), make("unwanted", "b", wanted=False), make("last", "c")]
    assert look_closer_at_notes(*instruments) == Notes(found=("a", "c"))
    assert TOLD == ["first", "last"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UnavailableError("no counter"), "no energy: no counter"),
        (RuntimeError("a kernel\nfailed"), "no energy: a kernel failed"),
        (torch.OutOfMemoryError("CUDA out of memory"), "no energy: CUDA out of memory; choose"),
    ],
)
def test_a_fault_costs_what_was_not_found_yet_and_a_warning(error, reason):
    instruments = [make("energy", "one runtime", error=error), make("trace", "t")]
    notes = look_closer_at_notes(*instruments)
    assert notes.found == ("one runtime", "t")
    (warning,) = notes.warnings
    assert warning.startswith(reason) and not notes.interrupted


def test_ctrl_c_ends_the_looks_keeps_what_was_found_and_names_the_rest():
    instruments = [
        make("energy", "a", "b", error=KeyboardInterrupt()),
        make("unwanted", wanted=False),
        make("trace", "t"),
    ]
    notes = look_closer_at_notes(*instruments)
    assert (notes.found, notes.interrupted) == (("a", "b"), True)
    assert notes.warnings == ("interrupted after the rounds: no energy; no trace",)


def test_a_model_that_raises_after_the_rounds_costs_what_it_was_asked_for(monkeypatch):
    layer, is_late = torch.nn.Linear(4, 4), False

    def train(x):
        if is_late:
            raise ValueError("tried to step 52 times")  # as a scheduler does
        layer.zero_grad()
        layer(x).square().mean().backward()
        return layer.bias.detach() * 1

    def time_late(*given):
        nonlocal is_late
        is_late = True
        try:
            return time_phases(*given)
        finally:
            is_late = False

    monkeypatch.setattr("ftax.ladders.after.time_phases", time_late)
    step = ftax.step(train, (torch.ones(2, 4),))
    receipt = ftax.tax(step, plan=QUICK, runtimes="none", progress=False)
    assert receipt.rungs and not receipt.work_problem
    (told,) = (text for text in receipt.warnings if "phases of the step were not timed" in text)
    assert "the model raised ValueError: tried to step 52 times" in told


def test_a_mistake_of_ours_is_hidden_by_nothing():
    with pytest.raises(KeyError):
        look_closer_at_notes(make("energy", error=KeyError("x")))


def test_what_was_found_of_a_gpu_before_a_fault_is_kept(monkeypatch):
    """The trace of a rung replaces what the gate alone said of it."""
    gated = RungEvidence(runtime="eager", host="python")
    traced = replace(gated, kernels=3)

    def trace(*_arguments, **_options):
        yield traced, "a trace"
        raise RuntimeError("an illegal access")

    monkeypatch.setattr("ftax.ladders.after.gate_runners", lambda *_: iter([gated]))
    monkeypatch.setattr("ftax.ladders.after.trace_runners", trace)
    after = AfterRounds(
        workspace=Workspace(load_function(torch.exp)),
        runners=(),
        options=TaxOptions(),
        plan=QUICK,
        progress=None,
        receipt=make_cpu_receipt(),
    )
    look_closer([replace(item, is_wanted=lambda _: True) for item in AFTER[-2:]], after)
    assert after.receipt.evidence == (traced,) and after.traces == ("a trace",)
    assert after.receipt.warnings == ("the runtimes were not traced: an illegal access",)
