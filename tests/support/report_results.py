"""A folder of results for reports: receipts with and without a GPU, a sweep on two machines, knees,
comparisons, and a model whose name would be a script if nobody escaped it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ftax.ladders.receipt import Receipt
from ftax.ladders.verdict import compare
from ftax.machines.environment import Environment, collect_environment
from ftax.machines.gpu import GpuFacts
from ftax.paper.claims.claim_verdict import ClaimValue, Verdict
from ftax.records.store import append_record
from ftax.sweeps.knee_record import Knee, KneePoint
from ftax.sweeps.sweep_records import SweepCell, SweepMachine
from ftax.timing.cell import Cell
from ftax.timing.differences import HostComparison
from support.records import make_measurement
from support.runtimes_receipt import (
    ORT,
    make_cpu_receipt,
    make_gpu_receipt,
    make_runtime,
    make_work,
)

SCRIPT = '<script>window.ran = true</script>"><img src=x onerror="window.ran = true">'
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
# Latency of batch 1 and time an example, us, of each runtime on the GPU.
RUNTIMES = {
    ("eager", "python"): (2700.0, 26.0),
    ("eager", "cpp"): (1500.0, 26.0),
    ("torchscript", "python"): (1900.0, 25.0),
    ("cuda-graph", "python"): (700.0, 26.0),
    ("onnxruntime", "cpp"): (950.0, 22.0),
}
MODELS = {"bert-base": 1.0, "gpt2": 1.3, SCRIPT: 0.4}


def make_environments() -> tuple[Environment, Environment]:
    """This machine, and one with a GPU."""
    here = collect_environment()
    gpu = GpuFacts(
        name="NVIDIA Test 200",
        driver="600.1",
        memory_bytes=2**37,
        sm_clock_mhz=1980,
        max_sm_clock_mhz=1980,
        memory_clock_mhz=None,
        max_memory_clock_mhz=None,
        power_limit_mw=700_000,
        power_mw=90_000,
        temperature_c=30,
        throttle_reasons=0,
        persistence_mode=True,
        mig=False,
    )
    return here, replace(here, device="cuda", gpu=gpu)


def make_sweep_cells(
    machine: SweepMachine, *, device: str, slowness: float, models: dict[str, float] | None = None
) -> list[SweepCell]:
    """Latencies that are flat first and grow with the batch then; two rounds a cell."""
    cells = []
    for model, size in (models or MODELS).items():
        for (runtime, host), (floor_us, each_us) in RUNTIMES.items():
            for dtype, speed in (("fp32", 1.0), ("fp16", 0.45)):
                for batch in BATCHES:
                    kernels_us = each_us * size * speed * batch * slowness
                    latency_us = max(floor_us * size * slowness, kernels_us * 1.05)
                    on_gpu = device != "cpu"
                    cell = Cell(model=model, runtime=runtime, host=host, device=device,  # type: ignore[arg-type]
                                dtype=dtype, batch=batch, sequence=128)  # type: ignore[arg-type]  # fmt: skip
                    cells.append(
                        SweepCell(
                            cell=cell,
                            machine=machine.id,
                            status="measured",
                            values_ns=(
                                latency_us * 990.0,
                                latency_us * 1010.0,
                                latency_us * 1000.0,
                            ),
                            busy_ns=kernels_us * 1000 if on_gpu else None,
                            kernel_ns=kernels_us * 1000 if on_gpu else None,
                            macs=round(11e9 * size) * batch,
                        )
                    )
    return cells


def make_knee(runtime: str, environment: Environment, *, last_on: int) -> Knee:
    """On the plateau up to ``last_on``; latency grows with the size then."""
    points = []
    for size in (2, 4, 8, 16, 32, 64):
        ratio = 1.01 if size <= last_on else size / last_on
        plateau = [1000.0 + i for i in range(12)]
        points.append(
            KneePoint(
                size=size,
                plateau_values_ns=tuple(plateau),
                values_ns=tuple(
                    value * (ratio + 0.001 * (i % 3)) for i, value in enumerate(plateau)
                ),
            )
        )
    cell = Cell(model="bert-base", runtime=runtime, host="python", batch=1, sequence=128)
    return Knee(
        cell=cell,
        over="batch",
        low=1,
        high=64,
        points=tuple(points),
        stop_reason="done",
        environment=environment,
        seconds=3.0,
        warnings=("a warning of a knee",),
    )


def make_receipts() -> list[Receipt]:
    """One of a CPU, one of a GPU with alternatives."""
    others = (
        make_runtime(ORT, 1500.0),
        make_runtime(("torchscript", "python"), 3000.0),
    )
    evidence = (make_work(ORT, 500.0, kernels=60, same=False),)
    return [
        make_cpu_receipt(make_runtime(ORT, 600.0)),
        make_gpu_receipt(*others, evidence=evidence, warnings=("a warning of a receipt",)),
    ]


def write_results(folder: Path) -> Path:
    """The folder with everything: receipts, knees, verdicts, others, sweep/cells."""
    here, gpu = make_environments()
    (folder / "sweep").mkdir(parents=True)
    for receipt in make_receipts():
        append_record(folder / "receipts.jsonl", receipt)
    for runtime, last_on in (("eager", 16), ("torchscript", 8)):
        append_record(folder / "knees.jsonl", make_knee(runtime, here, last_on=last_on))
    a, b = (make_measurement([1000, 1001, 1002, value], runtime="eager") for value in (1003, 1004))
    hosts = [make_measurement([1000, 990, 1010], host=host) for host in ("python", "cpp")]
    scripted = make_measurement(
        [500, 501, 502],
        cell=replace(a.cell, model=SCRIPT),
        warnings=(f"warned by {SCRIPT}",),
    )
    before, after = make_cpu_receipt(), make_cpu_receipt(eager_us=500.0)
    records = (a, compare(a, b), HostComparison(python=hosts[0], cpp=hosts[1]), scripted)
    for record in (*records, compare(before, after)):
        append_record(folder / "others.jsonl", record)
    write_sweep(folder / "sweep" / "cells.jsonl", here, gpu)
    write_verdicts(folder / "verdicts.jsonl")
    return folder


def write_sweep(path: Path, here: Environment, gpu: Environment) -> None:
    """Cells of two machines, one that failed, and one that failed first and was measured then."""
    cpu_machine, gpu_machine = SweepMachine.of(here), SweepMachine.of(gpu)
    cells = make_sweep_cells(gpu_machine, device="cuda", slowness=1.0)
    cells += make_sweep_cells(cpu_machine, device="cpu", slowness=30.0, models={"bert-base": 1.0})
    # Two rounds far apart: the interval reaches below zero, where a logarithm has no place.
    wide = SweepCell(
        cell=replace(cells[0].cell, model="gpt2", batch=256),
        machine=gpu_machine.id,
        status="measured",
        values_ns=(2e6, 9e7),
    )
    failed = SweepCell(
        cell=replace(cells[0].cell, batch=512),
        machine=gpu_machine.id,
        status="failed",
        reason="memory ran out at <b>512</b>",
    )
    mended = replace(cells[0], status="failed", reason="first time", values_ns=(), busy_ns=None)
    lines = [cpu_machine, gpu_machine, mended, *cells, wide, failed]
    _append_all(path, lines)


def _append_all(path: Path, records: list[object]) -> None:
    """As `append_record` would, without a sync to the disk for each line."""
    append_record(path, records[0])  # type: ignore[arg-type]
    from ftax.records import store

    with path.open("a", encoding="ascii") as file:
        file.writelines(f"{store.make_line(record)}\n" for record in records[1:])  # type: ignore[arg-type]


def write_verdicts(path: Path) -> None:
    """Two verdicts on claims of the paper: one with numbers, one that cannot be tested."""
    value = ClaimValue(name="ratio", paper=(2.5,), today=(2.0,), low=(1.9,),
                       high=(2.1,))  # fmt: skip
    verdicts = (
        Verdict(id="c-one", section="3.1", claim="a is slower than b", claim_kind="ordering",
                origin="paper", expected="", paper="holds", today="holds", values=(value,),
                shares={"holds": 0.97}, resamples=100, notes=("a note of a claim",)),
        Verdict(id="c-two", section="4", claim="c is flat", claim_kind="flat", origin="paper",
                expected="", paper="no data", today="cannot be tested here",
                reason="no cell of c was measured", shares={}),
    )  # fmt: skip
    for verdict in verdicts:
        append_record(path, verdict)
