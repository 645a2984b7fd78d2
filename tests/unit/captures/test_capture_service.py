"""A capture in a service and in a loop: the original is always the fallback, and recording is paid
for by what it gives back. Time is counted in ticks that the original spends."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import ftax
from ftax.captures import captured, ledger, recordings
from ftax.captures.kinds import CallKind
from ftax.captures.ledger import RECORDING_SHARE, Budget
from support.captures import assert_same, make_model

_TICKS = itertools.count(step=1000)  # ns; who reads the clock moves it on


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> int:
        return next(_TICKS)

    clocks = SimpleNamespace(perf_counter_ns=read, thread_time_ns=read)
    for module in (captured, ledger, recordings):
        monkeypatch.setattr(module, "time", clocks)


class Slow(nn.Module):
    """A millisecond of Python, which a replay does without."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        deque(itertools.islice(_TICKS, 1000), maxlen=0)
        return x * self.scale


def record_slow() -> tuple[Any, Slow]:
    model = Slow()
    return ftax.capture(model, torch.ones(2)), model


def call_with_lengths(fast: Any, lengths: Iterable[int]) -> None:
    for length in lengths:
        assert_same(fast, fast.original, torch.randn(length))


def call_with_scales(fast: Any, model: Slow) -> None:
    for step in range(500):
        model.scale = 1.0 / (step + 3)
        assert_same(fast, model, torch.randn(2))


def is_within_budget(fast: Any) -> bool:
    budget = fast._ledger.budget
    return bool(budget.spent <= RECORDING_SHARE * budget.worked)


def test_a_new_shape_is_recorded_when_that_pays(no_grad: None, ticks: None) -> None:
    fast, model = record_slow()
    calls = 0
    while fast.stats().recorded < 2:
        calls += 1
        assert_same(fast, model, torch.randn(3))
        assert is_within_budget(fast)
    # A recording runs the function some 12 times, and nothing was saved yet: 1 % of all calls.
    assert 400 < calls < 1500
    assert fast.stats().original == {"such arguments are not recorded yet": calls - 1}
    assert_same(fast, model, torch.randn(3))
    assert fast.stats().replayed == 2


def test_what_comes_once_is_never_recorded(no_grad: None, ticks: None) -> None:
    fast, _ = record_slow()
    with pytest.warns(UserWarning, match=r"64 calls .*came with other arguments.*\[66\]"):
        call_with_lengths(fast, range(3, 300))
    assert fast.stats().recorded == 1


def test_a_number_that_moves_is_named_once_and_not_recorded(no_grad: None, ticks: None) -> None:
    fast, model = record_slow()
    with pytest.warns(UserWarning, match="find 'scale' of Slow changed again and again") as told:
        call_with_scales(fast, model)
    assert len(told) == 1
    assert fast.stats().recorded == 1 and fast.stats().replayed == 0
    model.scale = 2.0
    for _ in range(8):
        assert_same(fast, model, torch.randn(2))
    assert fast.stats().replayed >= 1  # what was recorded fits again


def test_a_number_that_stays_at_another_value_is_recorded(no_grad: None, ticks: None) -> None:
    fast, model = record_slow()
    model.scale = 3.0
    for _ in range(1500):
        assert_same(fast, model, torch.randn(2))
        assert is_within_budget(fast)
    assert fast.stats().recorded == 2 and fast.stats().replayed > 100


def test_equal_tuples_are_no_change(no_grad: None) -> None:
    model = Slow()
    model.betas = (0.9, 0.99)  # type: ignore[assignment]

    def run(x: torch.Tensor) -> torch.Tensor:
        return x * model.betas[0]  # type: ignore[index, operator]

    fast = ftax.capture(run, torch.ones(2))
    model.betas = (0.9, *model.betas[1:])  # type: ignore[assignment, index, misc]
    assert_same(fast, run, torch.randn(2))
    assert fast.stats().replayed == 1


def test_budget_waits_for_gain_for_time_and_for_what_was_saved() -> None:
    kind: Any = SimpleNamespace(original_ns=100)
    budget = Budget(worked=1000, last=100, saved=200)
    assert not budget.pays(kind)  # replays save half, it is assumed
    kind.original_ns = 200
    assert budget.pays(kind)
    budget.spent = 100
    budget.worked, budget.saved = 1999, 400
    assert not budget.pays(kind)
    budget.worked = 2000
    assert budget.pays(kind)
    budget.saved = 0
    assert not budget.pays(kind)
    budget.worked = 20_000
    assert budget.pays(kind)
    budget.replayed, budget.original = 90, 100  # checks have seen a tenth
    assert not budget.pays(kind)


def test_a_refusal_is_remembered(no_grad: None, record_at_once: None) -> None:
    runs = itertools.count()

    def run(x: torch.Tensor, branch: bool) -> torch.Tensor:
        next(runs)
        return x * 2 if not branch or x.sum() > 0 else x - 1

    fast = ftax.capture(run, (torch.ones(2), False))
    with pytest.warns(UserWarning, match="called as it is, without a capture.*reads a number"):
        assert_same(fast, run, -torch.ones(2), True)
    before = next(runs)
    for _ in range(4):
        assert_same(fast, run, -torch.ones(2), True)
    assert next(runs) - before == 2 * 4 + 1
    with pytest.raises(ftax.UnsupportedError, match="reads a number"):
        fast.warm([(-torch.ones(2), True)])


def test_a_call_under_autograd_is_another(record_at_once: None) -> None:
    model = make_model()
    with torch.inference_mode():
        fast = ftax.capture(model, torch.randn(2, 8))
    for _ in range(2):
        fast(torch.randn(2, 8)).sum().backward()
    assert model[0].weight.grad is not None
    with torch.inference_mode():
        assert_same(fast, model, torch.randn(2, 8))
    assert (fast.recordings, fast.stats().replayed) == (2, 3)


def test_what_is_no_faster_is_not_used(no_grad: None) -> None:
    fast = ftax.capture(lambda x: x, torch.ones(2))
    for _ in range(40):
        fast(torch.ones(2))
    assert fast.stats().replayed == 16
    assert fast.stats().original == {"a replay is no faster": 24}


def test_originals_run_beside_each_other(no_grad: None) -> None:
    both = threading.Barrier(2)

    def run(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 3:
            both.wait(10)
        return x + 1

    fast = ftax.capture(run, torch.ones(2))
    found = run_threads(2, lambda: fast(torch.ones(3)))
    assert [item.tolist() for item in found] == [[2.0] * 3] * 2


def test_threads_replay_beside_each_other_and_record(no_grad: None, ticks: None) -> None:
    fast, model = record_slow()

    def serve() -> bool:
        right = True
        with torch.no_grad():
            for turn in range(300):
                x = torch.randn(2 + turn % 3)
                right &= torch.equal(fast(x), x * model.scale)
        return right

    assert all(run_threads(4, serve))
    stats = fast.stats()
    assert stats.recorded >= 2
    assert stats.replayed + sum(stats.original.values()) == 4 * 300


def test_a_tape_is_run_by_two_threads_at_once(no_grad: None) -> None:
    fast = ftax.capture(make_model(), torch.randn(2, 8))
    replay: Any = fast._recordings.programs[0].replay
    tape = replay._free.pop()  # as another thread has it
    assert_same(fast, fast.original, torch.randn(2, 8))
    assert replay._free and tape not in replay._free


def run_threads(count: int, work: Callable[[], Any]) -> list[Any]:
    found: list[Any] = []

    def run() -> None:
        with torch.no_grad():
            found.append(work())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def test_statistics_say_what_became_of_calls(no_grad: None, ticks: None) -> None:
    fast, _ = record_slow()
    for length in (2, 2, 3):
        fast(torch.randn(length))
    stats = fast.stats()
    assert (stats.replayed, stats.recorded, stats.checked) == (2, 1, 1)
    assert stats.original == {"such arguments are not recorded yet": 1}
    assert stats.call_seconds == pytest.approx(0.001, rel=0.1) and stats.record_seconds > 0.01
    assert stats.memory_bytes > 0
    assert "1: such arguments are not recorded yet" in str(stats)


def test_kinds_of_calls_are_forgotten_but_for_those_that_are_recorded(no_grad: None) -> None:
    fast, _ = record_slow()
    for length in range(2, 400):
        fast._kinds.find((torch.ones(length),), {})
    kinds: list[CallKind] = list(fast._kinds)
    assert 190 < len(kinds) <= 256 and sum(bool(kind.programs) for kind in kinds) == 1


def test_what_does_not_fit_again_and_again_is_compared_seldom(no_grad: None, ticks: None) -> None:
    fast, model = record_slow()
    kind = next(iter(fast._kinds))
    model.scale = 3.0
    for _ in range(100):
        assert_same(fast, model, torch.randn(2))
    assert 8 < kind.misses < 50
    assert fast.stats().original == {"'scale' of Slow has changed": 100}
    model.scale = 2.0
    for _ in range(9):
        assert_same(fast, model, torch.randn(2))
    assert fast.stats().replayed >= 2  # what was recorded fits again


@pytest.mark.filterwarnings("ignore:replays of the capture of")
def test_who_waits_for_others_works_no_longer(no_grad: None) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        return x + 1

    fast = ftax.capture(run, torch.ones(2))
    for _ in range(3):
        fast(torch.ones(3))
    assert fast.stats().call_seconds >= 0.06
    assert fast._ledger.budget.worked < 0.03e9
