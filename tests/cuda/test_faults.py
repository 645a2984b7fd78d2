"""Faults on a GPU: a rung is lost with its reason, the others and the process go on.

Memory is made short on purpose in two ways. A model asks for more than any device has, in one phase
of the measurement; or torch's allocator is held to what it has already.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import ftax
from ftax import Receipt, RunnerError
from ftax.tape import capture as capture_module
from ftax.timing.plan import Plan

pytestmark = pytest.mark.needs_cuda

QUICK = Plan(rounds=3, warmup=2, round_ms=2.0)
LADDER = ["eager/python", "flat/python", "eager/cpp", "launch-replay/cpp", "cuda-graph/cpp"]
TINY: dict[str, Any] = {"tiny": True, "device": "cuda", "dtype": "fp16"}
NO_CUPTI = "/nonexistent/libcupti.so"


class Hungry(nn.Module):
    """Asks for 64 TiB while it is hungry."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.hungry = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.hungry:
            torch.empty(1 << 46, dtype=torch.uint8, device=x.device)
        return (x * self.weight).exp()

    def starve_in(self, phase: str) -> Callable[[str, int, int], None]:
        """A progress callback that makes it hungry during one phase."""

        def progress(name: str, done: int, total: int) -> None:
            self.hungry = name.startswith(phase)

        return progress


def take(model: nn.Module, x: torch.Tensor, **options: Any) -> Receipt:
    return ftax.tax(model, x, runtimes="none", plan=QUICK, **options)


def name_rungs(receipt: Receipt) -> list[str]:
    return [f"{rung.cell.runtime}/{rung.cell.host}" for rung in receipt.rungs]


def check_that_the_process_is_usable() -> None:
    receipt = take(Hungry().cuda(), torch.ones(3, 4, device="cuda"))
    assert name_rungs(receipt) == LADDER
    assert receipt.unavailable == ()
    assert [item.problems for item in receipt.evidence] == [()] * 5


@pytest.fixture
def model() -> Hungry:
    return Hungry().cuda()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.ones(3, 4, device="cuda")


# --- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["preparing eager (python)", "warmup", "round"])
def test_a_model_without_memory_raises_with_a_remedy(
    phase: str, model: Hungry, x: torch.Tensor
) -> None:
    with pytest.raises(RunnerError, match=r"(?s)out of memory.*smaller batch"):
        take(model, x, progress=model.starve_in(phase))
    check_that_the_process_is_usable()


def test_without_a_tape_eager_still_stands(model: Hungry, x: torch.Tensor) -> None:
    receipt = take(model, x, progress=model.starve_in("preparing flat (python)"))
    assert name_rungs(receipt) == LADDER[:1]
    assert {item.runtime for item in receipt.unavailable} >= {"flat", "eager", "cuda-graph"}
    assert all("out of memory" in item.reason for item in receipt.unavailable)
    check_that_the_process_is_usable()


def test_a_gate_without_memory_costs_the_issue_time_of_its_rung(
    model: Hungry, x: torch.Tensor
) -> None:
    receipt = take(model, x, progress=model.starve_in("holding the device still"))
    eager, *others = receipt.evidence
    assert eager.gate is not None and "out of memory" in str(eager.gate.reason)
    assert eager.issue_ns is None
    assert any("no issue time of eager/python" in warning for warning in receipt.warnings)
    assert not any("out of memory" in str(item.gate and item.gate.reason) for item in others)
    assert [item.problems for item in receipt.evidence] == [()] * 5


def test_a_trace_without_memory_costs_the_comparison_and_no_rung(
    model: Hungry, x: torch.Tensor
) -> None:
    receipt = take(model, x, progress=model.starve_in("tracing kernels"))
    assert name_rungs(receipt) == LADDER
    eager, *others = receipt.evidence
    assert "out of memory" in eager.problems[0]
    assert all(item.kernels > 0 and item.same_kernels is None for item in others)
    assert any("no trace of eager/python is used" in warning for warning in receipt.warnings)


@pytest.fixture
def memory() -> Iterator[Callable[[bool], None]]:
    """Call it with True to hold torch to what it has and 32 MiB more, with False to let it go."""
    total_bytes = torch.cuda.get_device_properties(0).total_memory

    def hold(tight: bool) -> None:
        torch.cuda.empty_cache()
        kept_bytes = torch.cuda.memory_reserved() + (32 << 20)
        torch.cuda.set_per_process_memory_fraction(kept_bytes / total_bytes if tight else 1.0)

    yield hold
    hold(False)


@pytest.fixture
def large() -> torch.Tensor:
    """64 MiB: more than a tight allocator can give, so that no copy of it can be made."""
    return torch.zeros(1 << 22, 4, device="cuda")


def test_memory_that_is_short_while_one_rung_is_prepared_costs_that_rung(
    model: Hungry, large: torch.Tensor, memory: Callable[[bool], None]
) -> None:
    def progress(phase: str, done: int, total: int) -> None:
        if phase.startswith("preparing"):
            memory(phase == "preparing launch-replay (cpp)")

    receipt = take(model, large, progress=progress)
    assert name_rungs(receipt) == [place for place in LADDER if place != "launch-replay/cpp"]
    (missing,) = receipt.unavailable
    assert missing.runtime == "launch-replay"
    assert "out of memory" in missing.reason and "smaller batch" in missing.reason
    assert sum(line.time_ns for line in receipt.lines) == pytest.approx(receipt.latency_ns)
    check_that_the_process_is_usable()


@pytest.mark.timing
def test_memory_that_is_short_in_the_capture_costs_the_rungs_that_replay_it(
    model: Hungry,
    large: torch.Tensor,
    memory: Callable[[bool], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rehearse = capture_module._rehearse

    def rehearse_and_hold(tape: Any) -> None:
        rehearse(tape)
        memory(True)  # after the warm-up, so that it is the capture that asks in vain

    def progress(phase: str, done: int, total: int) -> None:
        if phase.startswith("preparing"):
            memory(False)

    with monkeypatch.context() as patch:
        patch.setattr(capture_module, "_rehearse", rehearse_and_hold)
        receipt = take(model, large, progress=progress)
    assert name_rungs(receipt) == LADDER[:3]
    assert {item.runtime for item in receipt.unavailable} >= {"launch-replay", "cuda-graph"}
    assert all("out of memory" in item.reason for item in receipt.unavailable)
    memory(False)
    check_that_the_process_is_usable()


# --- what a model may do -------------------------------------------------------------------------


class OwnStream(nn.Module):
    """Does half of its work on a stream of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.side = torch.cuda.Stream()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        current = torch.cuda.current_stream()
        self.side.wait_stream(current)
        with torch.cuda.stream(self.side):
            y = x * 2
        current.wait_stream(self.side)
        y.record_stream(current)
        return y + 1


def test_a_model_with_a_stream_of_its_own_has_eager_alone_and_the_reason(x: torch.Tensor) -> None:
    receipt = take(OwnStream(), x)
    assert name_rungs(receipt) == LADDER[:1]
    reasons = {item.runtime: item.reason for item in receipt.unavailable}
    assert set(reasons) == {"flat", "eager", "launch-replay", "cuda-graph"}
    assert all("its forward changes the current stream" in reason for reason in reasons.values())
    (eager,) = receipt.evidence
    assert (eager.problems, eager.kernels) == ((), 2)
    assert sum(line.time_ns for line in receipt.lines) == pytest.approx(receipt.latency_ns)


# --- what may be missing -------------------------------------------------------------------------


def test_without_cupti_a_receipt_still_comes_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FTAX_CUPTI_LIBRARY", NO_CUPTI)  # read by the worker, which traces
    receipt = ftax.tax("bert-base", runtimes="none", plan=QUICK, trace="worker", **TINY)
    assert name_rungs(receipt) == LADDER
    assert all("CUPTI could not be loaded" in item.problems[0] for item in receipt.evidence)
    assert all(item.issue_ns is not None for item in receipt.evidence)
    assert any("no trace of eager/python, flat/python" in text for text in receipt.warnings)
    assert [line.name for line in receipt.lines][-1] == "graph and kernels"


def test_without_nvml_a_receipt_still_comes_with_the_reason(
    model: Hungry, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    receipt = take(model, x, trace="none", energy=True)
    assert name_rungs(receipt) == LADDER
    first = receipt.rungs[0]
    assert first.gpu is not None and "pip install nvidia-ml-py" in str(first.gpu.reason)
    assert first.environment.gpu is None
    for item in receipt.readings:
        assert item.memory is not None
        assert "pip install nvidia-ml-py" in item.missing["energy"]
    assert len(receipt.readings) == 5


def test_tax_that_could_trace_nothing_says_so_and_keeps_the_receipt(tmp_path: Any) -> None:
    chrome, saved = tmp_path / "out.json", tmp_path / "receipt.jsonl"
    command = [sys.executable, "-c", "from ftax.cli import main; main()", "tax", "bert-base"]
    options = ["--tiny", "--device", "cuda", "--dtype", "fp16", "--runtimes", "none"]
    files = ["--rounds", "3", "--trace", str(chrome), "--json", str(saved)]
    result = subprocess.run(
        [*command, *options, *files],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "FTAX_CUPTI_LIBRARY": NO_CUPTI},
    )
    assert result.returncode == 3, result.stderr
    assert "there is no trace to write" in result.stderr
    assert not chrome.exists()
    record = json.loads(saved.read_text())["record"]
    assert len(record["rungs"]) == 5
    assert "CUPTI could not be loaded" in record["evidence"][0]["problems"][0]
