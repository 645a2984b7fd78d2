"""Work on ftax's stream comes after what its caller has issued, and before what comes next.

Each test holds the device back for some 50 ms at the point in question, so that whoever does not
wait is wrong every time, and not once in a thousand.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import ftax
from ftax import _core
from ftax.errors import UnsupportedError
from ftax.runtimes.candidates import check_both_inputs
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.compilers.torch_compile import find_compilation
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.tape import capture
from ftax.tape.capture import make_stream, wrap_runner

pytestmark = pytest.mark.needs_cuda


def hold() -> None:
    torch.cuda._sleep(100_000_000)


def make_runner(request: Callable[[], object]) -> _core.Runner:
    mode = _core.GradMode.no_grad
    runner = _core.PythonRunner(request, "request", device="cuda:0", grad_mode=mode)
    return wrap_runner(runner, make_stream("cuda:0"))


def test_a_request_that_fails_has_ended_when_its_error_comes():
    state = torch.zeros(1, device="cuda")

    def fail() -> None:
        hold()
        state.add_(1)
        raise ValueError("half-way")

    runner = make_runner(fail)
    for _ in range(2):  # what the first imports to tell the error takes longer than the device
        with pytest.raises(Exception, match="half-way"):
            runner.run_once()
        state.zero_()
        torch.cuda.synchronize()
        assert state.item() == 0


def test_a_copy_that_was_made_before_a_request_has_not_what_it_writes():
    state = torch.zeros(1, device="cuda")
    runner = make_runner(lambda: state.fill_(7))
    hold()
    copy = state.clone()
    runner.run_once()
    assert (copy.item(), state.item()) == (0, 7)


def test_outputs_are_not_read_before_the_device_has_made_them(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU()).eval().cuda()
    inputs = torch.randn(1024, 64, device="cuda")
    workspace = Workspace(load_model(model, inputs=inputs))
    prepared = find_runtime("compile").prepare(workspace, "python")
    compilation = find_compilation(workspace)
    call: Any = compilation.call

    def call_late() -> object:
        hold()
        return call()

    compilation.call = call_late  # type: ignore[assignment]
    checks = check_both_inputs(workspace, prepared)
    assert checks.judge_outputs().equal, checks


def test_a_position_is_put_back_after_the_rehearsal_of_a_capture(monkeypatch):
    position = torch.zeros(1, dtype=torch.int64, device="cuda")
    step = ftax.step(lambda x: x + position.add_(1), (torch.ones(4, device="cuda"),))
    workspace = Workspace(load_model(step))
    capture_calls, seen = capture.capture_calls, []

    def rehearse_late(tape: _core.Tape) -> None:
        hold()
        tape.run()

    def look(run: Any, stream: torch.cuda.Stream, pool: Any) -> Any:
        torch.cuda.synchronize()
        seen.append(position.item())
        return capture_calls(run, stream, pool)

    monkeypatch.setattr(capture, "_rehearse", rehearse_late)
    monkeypatch.setattr(capture, "capture_calls", look)
    _ = workspace.graph
    assert seen == [0]


def test_a_copy_to_the_host_that_an_event_waits_for_has_no_tape():
    def count(x: torch.Tensor) -> torch.Tensor:
        there = x.to("cpu", non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return there + 1

    step = ftax.step(count, (torch.ones(4, device="cuda"),))
    with pytest.raises(UnsupportedError, match="without waiting"):
        _ = Workspace(load_model(step)).taped
