"""A capture checks itself against the original: when, what it hands out, and what it says."""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, library, nn

import ftax
from ftax.captures import checks
from ftax.captures.program import Schedule
from support.captures import Hidden
from support.small_models import normal

pytestmark = pytest.mark.usefixtures("record_at_once")

X = normal(3, 4)


class HiddenFactor(Hidden):
    def __call__(self, x: Tensor) -> Tensor:
        memoryview(COUNT)[0] += 1
        return x * self.read()


COUNT = bytearray(1)


def capture_hidden(**options: Any) -> tuple[Any, Callable[[float], None]]:
    hidden = HiddenFactor()
    with torch.no_grad():
        return ftax.capture(lambda x: hidden(x), X, ignore=("COUNT",), **options), hidden.set


def test_checks_come_at_powers_of_two_and_then_take_one_percent() -> None:
    schedule, checked = Schedule(), []
    for call in range(1, 3001):
        if schedule.is_due():
            checked.append(call)
            schedule.plan_next(replay_ns=1000, extra_ns=5000)  # so every 500th is 1 %
    assert checked[:9] == [2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert {b - a for a, b in itertools.pairwise(checked[9:])} == {500}


def test_a_check_that_costs_nothing_comes_each_time() -> None:
    schedule = Schedule()
    due = [schedule.is_due() or schedule.plan_next(100, 0) for _ in range(3)]
    assert due[0] is None  # the first call is none


def test_the_original_runs_in_a_call_that_is_checked(no_grad: None) -> None:
    captured, _ = capture_hidden()
    ran = []
    for _ in range(8):
        COUNT[0] = 0
        assert torch.equal(captured(X), X * 2)
        ran.append(COUNT[0])
    assert ran == [0, 1, 0, 1, 0, 0, 0, 1]
    stats = captured.stats()
    assert (stats.replayed, stats.checked, stats.unchecked) == (8, 3, 0)
    assert stats.check_seconds > 0 and "checked 3" in str(stats)


def test_a_difference_hands_out_the_originals_and_is_told_once(no_grad: None) -> None:
    captured, change = capture_hidden()
    for _ in range(2):
        captured(X)
    change(3.0)
    assert torch.equal(captured(X), X * 2)  # wrong, and nobody knows yet
    with pytest.warns(UserWarning, match=r"output 0 has other values\. It may depend on .*lru"):
        assert torch.equal(captured(X), X * 3)
    for factor in (3.0, 5.0):
        change(factor)
        assert torch.equal(captured(X), X * factor)
    assert captured.stats().original == {"a replay was wrong": 3}


def test_the_warning_says_how_many_replays_may_be_wrong(no_grad: None) -> None:
    captured, change = capture_hidden()
    for _ in range(5):
        captured(X)
    change(3.0)
    for _ in range(2):
        captured(X)
    with pytest.warns(UserWarning, match=r"3 replays since the last good check may be wrong"):
        captured(X)


def test_without_audit_nothing_is_checked(no_grad: None) -> None:
    captured, change = capture_hidden(audit=False)
    change(3.0)
    for _ in range(9):
        assert torch.equal(captured(X), X * 2)
    assert captured.stats().checked == 0


def test_measuring_switches_checks_off(no_grad: None) -> None:
    captured, _ = capture_hidden()
    ftax.py_bench(ftax.step(lambda: captured(X)), plan=ftax.Plan(rounds=3, warmup=2, round_ms=0.5))
    assert captured.stats().replayed > 4 and captured.stats().checked == 0


def test_elements_that_the_original_does_not_give_twice_are_no_fault(no_grad: None) -> None:
    noise = iter(range(10_000))

    @library.custom_op("ftax_test::unsteady", mutates_args=())
    def unsteady(x: Tensor) -> Tensor:
        made = x * 2
        made[0, 0] = next(noise) * 0.37 % 1
        return made

    factor = Hidden()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        captured = ftax.capture(lambda x: unsteady(x) * factor.read(), X)
    for _ in range(8):
        found = captured(X)
        assert torch.equal(found.flatten()[1:], X.flatten()[1:] * 4)
    assert captured.stats().checked == 3
    factor.set(3.0)  # but all others are
    for _ in range(7):
        captured(X)
    with pytest.warns(UserWarning, match="output 0 has other values"):
        captured(X)


def make_training() -> tuple[Callable[[Tensor], Tensor], nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(net.parameters(), 0.01, fused=True)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, net, optimizer


def test_training_that_is_checked_is_that_of_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "is_only_thread", lambda: True)  # others are those of pytest
    (step, mine, _), (original, other, _) = make_training(), make_training()
    fast = ftax.capture(step, X)
    torch.manual_seed(1)
    found = [fast(normal(3, 4, seed=seed)) for seed in range(40)]
    after = torch.get_rng_state()
    torch.manual_seed(1)
    expected = [original(normal(3, 4, seed=seed)) for seed in range(40)]
    assert all(map(torch.equal, found, expected))
    assert torch.equal(torch.get_rng_state(), after)
    for a, b in zip(mine.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b) and a.grad is not None and b.grad is not None
        assert torch.equal(a.grad, b.grad)
    pairs = zip(mine.buffers(), other.buffers(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert fast.stats().checked == 5 and fast.stats().recorded == 2


def test_a_call_that_draws_is_not_checked_beside_other_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "is_only_thread", lambda: False)
    step, _, _ = make_training()
    fast = ftax.capture(step, X)
    for _ in range(6):
        fast(X)
    assert fast.stats().checked == 0 and fast.stats().unchecked > 0


def test_what_memory_does_not_hold_is_not_checked(
    no_grad: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured, _ = capture_hidden()
    monkeypatch.setattr(checks, "_count_free_bytes", lambda device: 100)
    for _ in range(4):
        assert torch.equal(captured(X), X * 2)
    assert (captured.stats().checked, captured.stats().unchecked) == (0, 3)


def test_what_the_original_raises_is_handed_out(no_grad: None) -> None:
    def run(x: Tensor) -> Tensor:
        if memoryview(FAILS)[0]:
            raise KeyError("now")
        return x + 1

    FAILS[0] = 0
    captured = ftax.capture(run, X)
    captured(X)
    FAILS[0] = 1
    with pytest.raises(KeyError, match="now"):
        captured(X)


FAILS = bytearray(1)


def test_autograd_may_go_on_from_inputs_and_results_of_a_check() -> None:
    """A pending backward pass complains of what was written since: a check writes nothing more."""
    weight = nn.Parameter(torch.ones(4))
    scratch = torch.zeros(3, 4)

    def call(x: Tensor) -> Tensor:
        scratch.copy_(x)
        return scratch * 2

    with torch.no_grad():
        fast = ftax.capture(call, X)
    x = X.clone()
    for turn in range(4):
        pending = (x * weight).sum()
        with torch.no_grad():
            result = fast(x)
        loss = (result * weight).sum()
        (pending + loss).backward()
        assert turn < 3 or fast.stats().checked == 2


def test_an_audit_and_a_changed_number_write_no_input_that_the_call_does_not() -> None:
    weight = nn.Parameter(torch.ones(4))

    def call(x: Tensor) -> Tensor:
        return x * 2 if bool((x > 0).any()) else x - 1

    with torch.no_grad():
        fast = ftax.capture(call, torch.ones(4), on_host_read="check")
        fast(torch.ones(4))
        fast(torch.ones(4))
    for given in (torch.ones(4), -torch.ones(4)):
        fast.audit(1 if given[0] > 0 else 0)
        pending = (given * weight).sum()
        with torch.no_grad():
            assert torch.equal(fast(given), call(given))
        pending.backward()


def test_an_operator_that_fails_before_a_number_is_compared_leaves_no_state(
    no_grad: None,
) -> None:
    total, table = torch.zeros(1), torch.ones(3, 2)

    def call(index: Tensor) -> Tensor:
        total.add_(1)
        if int(index.max()) < 3:
            return table.index_select(0, index)
        return torch.zeros(2, 2)

    fast = ftax.capture(call, torch.tensor([0, 1]), on_host_read="check")
    for index in ([0, 1], [2, 7], [1, 2]):
        expected = 2.0 if max(index) < 3 else 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert fast(torch.tensor(index)).sum().item() == 2 * expected
    assert total.item() == 3.0


def test_a_custom_operators_own_error_is_raised(no_grad: None) -> None:
    class Full(Exception):
        pass

    @library.custom_op("ftax_test::store", mutates_args=("kept",))
    def store(x: Tensor, kept: Tensor) -> Tensor:
        if x[0, 0] > 100:
            raise Full("no room")
        kept.copy_(x)
        return x * 2

    kept = torch.zeros(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = ftax.capture(lambda x: store(x, kept), X, audit=False)
    fast(X)
    with pytest.raises(Full, match="no room"):
        fast(torch.full((3, 4), 200.0))
    assert torch.equal(kept, X)


def test_a_warning_of_an_operator_is_one_of_python(no_grad: None) -> None:
    out = torch.ones(2)

    def call(x: Tensor) -> Tensor:
        out.resize_(2)
        return torch.mul(x, 2, out=out) + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = ftax.capture(call, torch.ones(3), audit=False)
        fast(torch.ones(3))
        fast(torch.ones(3))
    with pytest.raises(UserWarning, match="was resized"):
        fast(torch.ones(3))  # as in eager, where warnings are errors
    with pytest.raises(UserWarning, match="was resized"):
        call(torch.ones(3))


def test_a_write_that_torch_refuses_outside_of_inference_mode_is_refused() -> None:
    with torch.inference_mode():
        inside = torch.ones(3)

    def call(x: Tensor) -> Tensor:
        return x.add_(1)

    with torch.no_grad():
        fast = ftax.capture(call, torch.ones(3))
        fast(torch.ones(3))
        with pytest.raises(RuntimeError) as a:
            fast(inside)
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor") as b:
            call(inside)
    assert str(a.value) == str(b.value)
    with torch.inference_mode():
        expected = inside + 1
        assert torch.equal(fast(inside), expected)
