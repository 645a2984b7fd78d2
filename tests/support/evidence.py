"""Rungs of a GPU ladder with given latencies, and evidence from traces made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from ftax.instruments.gate import Gated, GatedRepetition
from ftax.instruments.trace.kernel_set import KernelSet
from ftax.ladders.evidence import RungEvidence
from ftax.timing.measurement import Measurement
from support.records import make_measurement
from support.traces import make_repeated_trace

EAGER, FLAT, TAPE = ("eager", "python"), ("flat", "python"), ("eager", "cpp")
NO_READS = ("tape-without-host-reads", "cpp")
LAUNCHES, GRAPH = ("launch-replay", "cpp"), ("cuda-graph", "cpp")
LADDER = (EAGER, FLAT, TAPE, LAUNCHES, GRAPH)
KERNELS = ("a", "b")  # 50 ns each: the device is busy for 100 ns


def make_rungs(
    latencies_ns: Sequence[int], rungs: Sequence[tuple[str, str]] = LADDER
) -> list[Measurement]:
    """Five rounds without noise."""
    return [
        make_measurement([value] * 5, runtime=runtime, host=host)
        for value, (runtime, host) in zip(latencies_ns, rungs, strict=True)
    ]


def make_gate(issue_ns: int, device_ns: int = 100) -> Gated:
    repetition = GatedRepetition(issue_ns=issue_ns, device_span_ns=device_ns, drain_ns=0, cut=False)
    return Gated(repetitions=(repetition,) * 5, watchdog_ms=2000)


def make_evidence(
    rung: tuple[str, str],
    *names: str,
    reference: KernelSet | None = None,
    gate: Gated | None = None,
    **changes: object,
) -> tuple[RungEvidence, KernelSet | None]:
    """Evidence of three traced inferences with the kernels ``names``, or with `KERNELS`."""
    trace = make_repeated_trace(*(names or KERNELS), runtime=rung[0], host=rung[1], **changes)
    return RungEvidence.of(trace, reference=reference, gate=gate)


def make_all_evidence(
    rungs: Sequence[tuple[str, str]] = LADDER,
    *,
    issue_ns: Sequence[int] | None = None,
    other: tuple[str, str] | None = None,
) -> list[RungEvidence]:
    """Evidence of each rung; that of ``other`` has a kernel that Python eager has not."""
    found: list[RungEvidence] = []
    reference: KernelSet | None = None
    for place, rung in enumerate(rungs):
        names = ("a", "c") if rung == other else KERNELS
        gate = None if issue_ns is None else make_gate(issue_ns[place])
        item, kernels = make_evidence(rung, *names, reference=reference, gate=gate)
        reference = kernels if place == 0 else reference
        found.append(item)
    return found
