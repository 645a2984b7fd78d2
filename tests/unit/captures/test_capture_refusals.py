"""What `ftax.capture` refuses, bakes in, or hands to the original, and in which words."""

import io
import logging
import os
import random
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ftax
from support.captures import assert_same, count, make_model

pytestmark = pytest.mark.usefixtures("record_at_once")


def test_a_branch_on_values_is_refused_with_its_line(no_grad: None):
    def run(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x - 1

    with pytest.raises(
        ftax.UnsupportedError, match=r"test_capture_refusals\.py:\d+ in run.*torch\.where"
    ):
        ftax.capture(run, torch.ones(4))


def test_a_size_that_values_make_is_refused_where_python_reads_it(no_grad: None):
    captured = ftax.capture(lambda x: x[x > 0].sum(), torch.randn(4))
    assert captured(torch.tensor([1.0, -1.0, 2.0, -3.0])).item() == 3.0
    with pytest.raises(ftax.UnsupportedError, match=r"test_capture_refusals\.py"):
        ftax.capture(lambda x: x / x[x > 0].numel(), torch.randn(4))


def test_memory_that_python_reads_is_refused(no_grad: None):
    with pytest.raises(ftax.UnsupportedError, match=r"Tensor.tolist at test_capture_refusals.py"):
        ftax.capture(lambda x: x + x.tolist()[0], torch.randn(4))


def test_a_number_that_depends_on_nothing_is_baked_in(no_grad: None):
    def run(x: torch.Tensor) -> torch.Tensor:
        position = torch.arange(4)
        return x + position if bool((position.diff() == 1).all()) else x

    captured = ftax.capture(run, torch.randn(4))
    assert_same(captured, run, torch.randn(4))
    assert captured.explain().programs[0].baked == ("aten::is_nonzero in the model itself",)


def test_a_number_can_be_compared_after_each_replay(no_grad: None):
    total = torch.zeros(1)

    def run(x: torch.Tensor) -> torch.Tensor:
        total.add_(x.sum())
        return total * 2 if bool((x > 0).any()) else total - 1

    captured = ftax.capture(run, torch.ones(4), on_host_read="check")
    captured(torch.ones(4))
    assert total.item() == 4.0
    found = captured(-torch.ones(4))  # goes the other way: done again, from the same state
    assert (total.item(), found.item()) == (0.0, -1.0)
    assert (count(captured, "replayed"), count(captured, "eager")) == (1, 1)


@pytest.mark.parametrize("draw", [random.random, np.random.rand, np.random.default_rng(0).random])
def test_random_numbers_that_are_not_torchs_are_refused_at_once(
    no_grad: None, draw: Callable[[], float]
):
    def run(x: torch.Tensor) -> torch.Tensor:
        return -x if draw() < 1e-6 else x + 1  # which no try would show

    with pytest.raises(ftax.UnsupportedError, match="draws random numbers of"):
        ftax.capture(run, torch.ones(2))


def test_a_number_that_is_returned_is_told(no_grad: None):
    with pytest.raises(ftax.UnsupportedError, match=r"returns a number .*call \.item\(\) on"):
        ftax.capture(lambda x: x.sum().item() * 2, torch.ones(2))


def test_a_number_that_only_the_first_call_had_is_recorded_anew(no_grad: None):
    def run(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if bool((x > 0).any()) else x - 1

    captured = ftax.capture(run, torch.ones(4), on_host_read="check")
    for _ in range(5):
        assert_same(captured, run, -torch.ones(4))
    assert (count(captured, "recorded"), count(captured, "eager")) == (2, 1)


def test_numbers_that_mostly_differ_are_told(no_grad: None):
    def run(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()

    captured = ftax.capture(run, torch.ones(4), on_host_read="check")
    for turn in range(2, 11):
        assert_same(captured, run, torch.full((4,), float(turn)))
    with pytest.warns(UserWarning, match="called as it is from now on"):
        captured(torch.full((4,), 20.0))


def test_what_is_not_done_again_is_listed(no_grad: None, capsys: pytest.CaptureFixture[str]):
    def run(x: torch.Tensor) -> torch.Tensor:
        print("hello")
        return x + 1

    with pytest.warns(UserWarning, match="replays of the capture of run do not print"):
        frozen = ftax.capture(run, torch.ones(2)).explain().programs[0].frozen
    assert any("print in test_capture_refusals.py" in item for item in frozen)
    assert "hello" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (lambda file: print("hello", file=file), "builtins.print"),
        (lambda file: file.write("x"), "StringIO.write|_io.write"),
        (lambda file: logging.getLogger("ftax.test").warning("hello"), "write"),
        (lambda file: time.sleep(0.0), "time.sleep"),
        (lambda file: open(os.devnull).close(), "open"),
        (lambda file: (time.perf_counter(), file.getvalue(), logging.debug("x")), ""),
    ],
    ids=["print", "write", "log", "sleep", "open", "read"],
)
def test_what_replays_leave_out_is_told_once(
    no_grad: None, recwarn: pytest.WarningsRecorder, act: Callable[[io.StringIO], object], told: str
):
    file = io.StringIO()

    def run(x: torch.Tensor) -> torch.Tensor:
        act(file)
        return x + 1

    captured = ftax.capture(run, torch.ones(2), on_miss="raise")
    captured.warm([torch.ones(3)])
    assert_same(captured, run, torch.ones(2))
    texts = [str(item.message) for item in recwarn if "replays of" in str(item.message)]
    assert len(texts) == len(captured.left_out) == bool(told)
    if told:
        assert re.search(rf"\(([\w.]*)({told}) in test_capture_refusals.py:\d+", texts[0])
        (warning,) = [item for item in recwarn if "replays of" in str(item.message)]
        assert warning.filename == __file__


def test_what_changes_python_is_refused(no_grad: None):
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x + 1

    with pytest.raises(ftax.UnsupportedError, match=r"each call changes 'calls' of Counter"):
        ftax.capture(Counter(), torch.ones(2))


def test_a_refusal_can_call_the_original(no_grad: None):
    def run(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x - 1

    with pytest.warns(UserWarning, match="without a capture"):
        captured = ftax.capture(run, torch.ones(4), on_refusal="eager")
    assert_same(captured, run, -torch.ones(4))
    assert "reads a number" in str(captured.explain())


def test_what_fails_to_be_recorded_later_is_called_as_it_is(no_grad: None):
    def run(x: torch.Tensor, alone: bool) -> torch.Tensor:
        if alone and torch._C._len_torch_dispatch_stack():
            raise ValueError("somebody looks on")
        return x + 1

    captured = ftax.capture(run, (torch.eye(3), False))
    with pytest.warns(UserWarning, match=r"called as it is.*somebody looks on"):
        assert_same(captured, run, torch.eye(3), True)
    assert_same(captured, run, torch.eye(3), True)
    assert captured.explain().calls == {"recorded": 1, "eager": 2}


def test_a_replay_that_fails_as_the_original_does_raises_its_error(no_grad: None):
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky(x)

    captured = ftax.capture(run, (torch.eye(3),))
    with pytest.raises(torch.linalg.LinAlgError) as raised:
        captured(-torch.eye(3))
    assert raised.value.__context__ is None  # the model's own error, not one behind ours
    assert captured.explain().calls == {"recorded": 1, "eager": 1}


def test_arguments_that_hold_themselves_are_refused_and_end_no_process(no_grad: None):
    loop: list[Any] = [torch.ones(3)]
    captured = ftax.capture(lambda given: given[0] + 1, ([torch.ones(3)],))
    loop.append(loop)
    with pytest.raises(ftax.InvalidArgumentError, match="hold themselves"):
        ftax.capture(lambda given: given[0], (loop,))
    with pytest.warns(UserWarning, match="called as it is, without a capture.*hold themselves"):
        assert torch.equal(captured(loop), loop[0] + 1)


def test_an_operator_that_raises_does_so_as_in_eager(no_grad: None):
    layer = nn.Embedding(4, 3)
    captured = ftax.capture(layer, torch.tensor([1, 2]))
    with pytest.raises(IndexError, match="out of range") as raised:
        captured(torch.tensor([1, 9]))
    assert raised.value.__context__ is None
    assert_same(captured, layer, torch.tensor([3, 0]))
    assert captured.explain().calls == {"recorded": 1, "eager": 1, "replayed": 1}


def test_a_replay_that_fails_where_eager_does_not_is_told_once(no_grad: None):
    def run(x: torch.Tensor) -> torch.Tensor:
        try:
            return torch.linalg.cholesky(x)
        except torch.linalg.LinAlgError:
            return x + 1

    captured = ftax.capture(run, torch.eye(3), check_inputs=2 * torch.eye(3))
    with pytest.warns(UserWarning, match=r"a replay of .*run failed where .*positive-definite"):
        assert_same(captured, run, -torch.eye(3))
    assert_same(captured, run, -torch.eye(3))  # warnings are errors in tests: it is told once
    assert captured.explain().calls == {"recorded": 1, "eager": 2}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "fast"}, "kind is 'fast'"),
        ({"on_miss": None}, "on_miss is None"),
        ({"max_bytes": -1}, "max_bytes is -1"),
        ({"kind": "graph"}, "no CUDA graphs"),
    ],
)
def test_wrong_options_are_told(no_grad: None, options: dict[str, object], words: str):
    with pytest.raises(ftax.InvalidArgumentError, match=words):
        ftax.capture(make_model(), torch.randn(2, 8), **options)


def test_what_cannot_be_called_and_what_is_captured_already_are_told(no_grad: None):
    with pytest.raises(ftax.InvalidArgumentError, match="cannot be called"):
        ftax.capture(3, torch.ones(1))
    captured = ftax.capture(make_model(), torch.randn(2, 8))
    with pytest.raises(ftax.InvalidArgumentError, match="already captured"):
        ftax.capture(captured, torch.randn(2, 8))


def test_gradients_of_a_function_of_the_same_code_hide_nothing():
    def make(weight: torch.Tensor) -> Callable[[torch.Tensor], None]:
        def step(x: torch.Tensor) -> None:
            factor = 1.0 if weight.grad is None else 2.0
            weight.grad = None
            loss = (weight * x).sum()
            (loss * factor if factor > 1 else loss).backward()

        return step

    other = make(nn.Parameter(torch.ones(3)))
    other(torch.ones(3))  # its weight has a gradient
    with pytest.raises(ftax.UnsupportedError, match="looks at the gradient that was there before"):
        ftax.capture(make(nn.Parameter(torch.ones(3))), torch.ones(3))
