"""Receipts with alternatives, made of given numbers: latencies, busy times, outputs, costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ftax.ladders.evidence import RungEvidence
from ftax.ladders.receipt import Receipt
from ftax.timing.measurement import Measurement
from support.evidence import EAGER, FLAT, GRAPH, TAPE
from support.records import make_measurement

ORT = ("onnxruntime", "cpp")
EQUAL = {"bitwise": True, "within_tolerance": True, "difference": 0.0, "tolerance": 1e-2,
         "problem": None}  # fmt: skip
CLOSE = {**EQUAL, "bitwise": False, "difference": 2e-6}
WRONG = {**EQUAL, "bitwise": False, "within_tolerance": False, "difference": 0.5,
         "problem": "outputs differ by 5.0e-01 (limit 1e-02)"}  # fmt: skip


def make_runtime(
    place: tuple[str, str],
    latency_us: float,
    *,
    outputs: Mapping[str, object] = EQUAL,
    noise: float = 0.002,
    **preparation: object,
) -> Measurement:
    """Six rounds about a latency, their mean. ``noise`` of the other sign is of other rounds."""
    steps = (-1.0, 1.0, -0.5, 0.5, -0.2, 0.2)
    return make_measurement(
        [round(latency_us * 1000 * (1 + noise * step)) for step in steps],
        runtime=place[0],
        host=place[1],
        checks={"outputs": dict(outputs)},
        preparation={"ready_seconds": 1.0, **preparation},
    )


def make_work(
    place: tuple[str, str], busy_us: float, *, kernels: int = 100, same: bool | None = True
) -> RungEvidence:
    """Evidence with busy time and kernels: half of a microsecond lies between kernels."""
    busy_ns = round(busy_us * 1000)
    return RungEvidence(
        runtime=place[0],
        host=place[1],  # type: ignore[arg-type]
        kernels=kernels,
        kernel_ns=(busy_ns - 500,) * 4,
        busy_ns=(busy_ns,) * 4,
        same_kernels=same,
    )


def make_gpu_receipt(
    *others: Measurement,
    evidence: Sequence[RungEvidence] = (),
    eager_us: float = 4600.0,
    busy_us: float = 640.0,
    **changes: object,
) -> Receipt:
    """A ladder on a GPU whose graph keeps the device busy for ``busy_us``."""
    gap_us = eager_us - busy_us
    rungs = {
        EAGER: eager_us,
        FLAT: busy_us + 0.6 * gap_us,
        TAPE: busy_us + 0.4 * gap_us,
        GRAPH: busy_us + 0.03 * gap_us,
    }
    return Receipt(
        rungs=tuple(make_runtime(place, value) for place, value in rungs.items()),
        others=others,
        evidence=(*(make_work(place, busy_us) for place in rungs), *evidence),
        **changes,  # type: ignore[arg-type]
    )


def make_cpu_receipt(*others: Measurement, eager_us: float = 1000.0) -> Receipt:
    """The three rungs of a CPU."""
    rungs = {EAGER: eager_us, FLAT: 0.9 * eager_us, TAPE: 0.7 * eager_us}
    return Receipt(
        rungs=tuple(make_runtime(place, value) for place, value in rungs.items()), others=others
    )
