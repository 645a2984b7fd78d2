"""Results of sweeps made of given latencies, for tests of what claims say about them."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable
from dataclasses import replace

from ftax.machines.environment import collect_environment
from ftax.machines.gpu import GpuFacts
from ftax.paper.claims import testing as claims
from ftax.paper.claims.claim import RequiredCell
from ftax.paper.claims.claim_verdict import Verdict
from ftax.paper.claims.testing import find_claim
from ftax.records.fields import FrozenMap
from ftax.sweeps.results import SweepResults
from ftax.sweeps.sweep_records import SweepCell, SweepMachine
from ftax.timing.cell import Cell

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
RESAMPLES = 200

GRAPHS = "S4.1-cudagraphs-small"
SHARES = "S3.2-share-falls"


def make_gpu(name: str) -> GpuFacts:
    """A GPU that has nothing but a name."""
    return GpuFacts(
        name=name, driver="1.0", memory_bytes=2**30, sm_clock_mhz=None, max_sm_clock_mhz=None,
        memory_clock_mhz=None, max_memory_clock_mhz=None, power_limit_mw=None, power_mw=None,
        temperature_c=None, throttle_reasons=None, persistence_mode=None, mig=None,
    )  # fmt: skip


@functools.cache
def make_machine(gpu: str | None = "NVIDIA H200") -> SweepMachine:
    """This machine, with another GPU; None for none. The same one each time."""
    environment = collect_environment()
    return SweepMachine(
        id=f"machine with {gpu}",  # draws depend on it, and this one is the same in every run
        environment=replace(environment, gpu=None if gpu is None else make_gpu(gpu)),
    )


def make_cell(
    place: RequiredCell,
    latency_ms: float | None,
    *,
    noise: float = 0.005,
    rounds: int = 12,
    machine: str = "machine",
    device: str = "cuda",
    options: dict[str, object] | None = None,
    **fields: object,
) -> SweepCell:
    """A cell whose rounds have ``latency_ms`` as their exact mean; None: it is unavailable."""
    runtime, host = place.framework.split("/")
    cell = Cell(
        model=place.model,
        runtime=runtime,
        host=host,  # type: ignore[arg-type]
        dtype=place.dtype,  # type: ignore[arg-type]
        batch=place.batch,
        sequence=place.sequence,
        device=device,
        options=FrozenMap(options or {}),
    )
    if latency_ms is None:
        return SweepCell(cell=cell, machine=machine, status="unavailable", reason="no library")
    spread = [random.Random(f"{place}{index}").gauss(0, noise) for index in range(rounds)]
    mean = sum(spread) / rounds
    return SweepCell(
        cell=cell,
        machine=machine,
        status="measured",
        values_ns=tuple(1e6 * latency_ms * (1 + part - mean) for part in spread),
        **fields,  # type: ignore[arg-type]
    )


def make_results(cells: Iterable[SweepCell], *machines: SweepMachine) -> SweepResults:
    """What a sweep would have loaded; cells of "machine" become the first machine's."""
    listed = machines or (make_machine(),)
    return SweepResults(
        cells=tuple(
            replace(cell, machine=listed[0].id) if cell.machine == "machine" else cell
            for cell in cells
        ),
        machines=FrozenMap({machine.id: machine for machine in listed}),
    )


def make_series(
    latency_ms: Callable[[int], float | None],
    *,
    model: str = "bert-base",
    framework: str = "eager/python",
    dtype: str = "fp16",
    batches: Iterable[int] = BATCHES,
    kernel_ms: Callable[[int], float] | None = None,
    **fields: object,
) -> list[SweepCell]:
    """One cell a batch."""
    sequence = None if model.startswith("resnet") else 128
    return [
        make_cell(
            RequiredCell(model, framework, dtype, batch, sequence),
            latency_ms(batch),
            **({} if kernel_ms is None else {"kernel_ns": 1e6 * kernel_ms(batch)}),
            **fields,  # type: ignore[arg-type]
        )
        for batch in batches
    ]


def judge(name: str, results: SweepResults, **options: int) -> tuple[Verdict, ...]:
    """The verdicts of one claim."""
    verdicts = claims.test_claims(
        results, claims=[find_claim(name)], resamples=RESAMPLES, **options
    )
    assert {verdict.id for verdict in verdicts} == {name}
    return verdicts


def judge_one(name: str, cells: Iterable[SweepCell], **options: int) -> Verdict:
    """The verdict of one claim on the cells of one machine."""
    (verdict,) = judge(name, make_results(cells), **options)
    return verdict


def make_graph_results(
    cut_pct: float, *, noise: float = 0.002, batches: Iterable[int] = BATCHES
) -> list[SweepCell]:
    """Eager BERT at 10 ms, and CUDA graphs that cut this much of it."""
    return [
        *make_series(lambda _: 10.0, noise=noise, batches=batches),
        *make_series(
            lambda _: 10.0 * (1 - cut_pct / 100),
            framework="cuda-graph/python",
            noise=noise,
            batches=batches,
        ),
        *make_series(lambda _: 5.0, framework="nested/python", batches=batches),
    ]
