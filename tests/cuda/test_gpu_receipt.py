"""The whole ladder on a GPU: every rung runs eager's kernels, and the lines sum to its latency."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

import ftax
from ftax import Receipt
from ftax.cli import main
from ftax.errors import InvalidArgumentError
from ftax.instruments.trace.integrity import judge
from ftax.instruments.trace.kernel_set import KernelSet
from ftax.timing.plan import Plan

pytestmark = pytest.mark.needs_cuda

QUICK = Plan(rounds=5, round_ms=5.0)
LADDER = ["eager/python", "flat/python", "eager/cpp", "launch-replay/cpp", "cuda-graph/cpp"]


def take_receipt(model: str, **options: object) -> Receipt:
    return ftax.tax(model, plan=QUICK, runtimes="none", device="cuda", dtype="fp16", **options)


@pytest.fixture(scope="module")
def receipt() -> Receipt:
    return take_receipt("bert-base", tiny=True)


def test_the_ladder_is_whole(receipt: Receipt) -> None:
    assert [f"{item.runtime}/{item.host}" for item in receipt.evidence] == LADDER
    assert [line.name for line in receipt.lines] == [
        "model glue",
        "interpreter and bindings",
        "dispatch",
        "launch",
        "graph",
        "kernels",
    ]
    assert sum(line.time_ns for line in receipt.lines) == pytest.approx(receipt.latency_ns)


def test_every_rung_ran_the_kernels_of_eager(receipt: Receipt) -> None:
    assert [item.problems for item in receipt.evidence] == [()] * 5
    assert {item.same_kernels for item in receipt.evidence} == {True}
    assert len({item.kernels for item in receipt.evidence}) == 1
    assert receipt.evidence[0].kernels > 100
    assert all(rung.checks["outputs"]["bitwise"] for rung in receipt.rungs)


@pytest.mark.timing
def test_kernels_of_every_rung_take_as_long_as_those_of_eager(receipt: Receipt) -> None:
    for item in receipt.evidence[1:]:
        assert 0.9 < item.duration_ratio < 1.1


def test_busy_time_fits_into_the_graph(receipt: Receipt) -> None:
    graph = receipt.rungs[-1]
    assert 0 < receipt.lines[-1].time_ns < graph.latency_ns
    for item in receipt.evidence:
        for row, busy_ns in zip(item.timeline.rows, item.busy_ns, strict=True):
            assert row.device_busy_ns == busy_ns <= row.wall_ns


def test_lower_rungs_issue_faster(receipt: Receipt) -> None:
    assert [item.gate.reason for item in receipt.evidence] == [None] * 5
    eager, _, tape, _, graph = (item.issue_ns for item in receipt.evidence)  # far from each other
    assert eager > tape > graph


def test_a_receipt_survives_a_file(receipt: Receipt, tmp_path) -> None:
    receipt.save(tmp_path / "r.jsonl")
    (loaded,) = Receipt.load(tmp_path / "r.jsonl")
    assert loaded == receipt
    assert loaded.evidence[0].traced_in == "worker"
    assert loaded.rungs[0].gpu.before is not None
    assert "kernels" in str(loaded)


def test_host_reads_are_a_line_of_their_own() -> None:
    receipt = take_receipt("gpt2", tiny=True, trace="here")
    assert "host reads" in [line.name for line in receipt.lines]
    reads, none = (
        next(item for item in receipt.evidence if item.runtime == name)
        for name in ("eager", "tape-without-host-reads")
    )
    assert reads.issue_ns is None  # the gate cannot hold what waits for the device
    assert none.issue_ns is not None
    assert none.same_kernels


def test_a_module_is_traced_here_and_its_synchronising_forward_has_no_graph() -> None:
    class Copies(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * 2).cpu().cuda() + 1

    receipt = ftax.tax(Copies(), torch.ones(8, device="cuda"), plan=QUICK, runtimes="none")
    assert {item.runtime for item in receipt.evidence} == {"eager", "flat"}
    assert {item.traced_in for item in receipt.evidence} == {"this process"}
    reasons = {item.runtime: item.reason for item in receipt.unavailable}
    assert "synchronizing CUDA operation" in reasons["cuda-graph"]
    assert sum(line.time_ns for line in receipt.lines) == pytest.approx(receipt.latency_ns)
    torch.ones(3, device="cuda").sum().item()  # the process is usable


def test_a_worker_cannot_build_a_module() -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be built again"):
        ftax.tax(nn.Linear(2, 2), torch.ones(1, 2), trace="worker")


@pytest.mark.parametrize("trace", ["here", "worker"])
def test_a_cold_cache_is_traced_cold_and_its_flush_is_in_no_trace(trace) -> None:
    warm = take_receipt("bert-base", tiny=True, trace=trace)
    cold = take_receipt("bert-base", tiny=True, cold=True, trace=trace)
    for a, b in zip(warm.evidence, cold.evidence, strict=True):
        assert (b.problems, b.kernels, b.fills) == ((), a.kernels, a.fills)


def test_a_cold_cache_is_said() -> None:
    receipt = take_receipt("bert-base", tiny=True, cold=True, trace="none")
    assert receipt.preparation["cache"].startswith("cold")
    assert receipt.evidence == ()
    assert receipt.lines[-1].name == "graph and kernels"


def test_a_trace_can_be_had_alone() -> None:
    trace = ftax.trace(
        "bert-base", runtime="cuda-graph", host="cpp", tiny=True, device="cuda", dtype="fp16"
    )
    assert judge(trace).ok
    assert len(KernelSet.of(trace).sums_ns) == 20


def test_commands(tmp_path, monkeypatch, capsys) -> None:
    chrome, saved = tmp_path / "out.json", tmp_path / "r.jsonl"
    arguments = ["bert-base", "--tiny", "--device", "cuda", "--dtype", "fp16"]
    tax = ["--runtimes", "none", "--rounds", "3", "--trace", str(chrome), "--json", str(saved)]
    for command in (["tax", *arguments, *tax], ["trace", *arguments]):
        monkeypatch.setattr(sys, "argv", ["ftax", *command])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        assert "kernel" in capsys.readouterr().out
    assert json.loads(chrome.read_text())["traceEvents"]
    (receipt,) = Receipt.load(saved)
    assert receipt.evidence[0].traced_in == "this process"


def test_a_profiler_can_be_shown_one_inference() -> None:
    code = (
        "from ftax.ladders.trace import profile_once; "
        "profile_once('bert-base', runtime='cuda-graph', host='cpp', "
        "tiny=True, device='cuda', dtype='fp16')"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
