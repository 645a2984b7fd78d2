"""A captured module inside a training loop on a GPU: one CUDA graph forward, another backward."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ftax
from ftax import Captured
from ftax.captures import ledger
from ftax.errors import UnsupportedError

# Torch warns in a thread that comes to a GPU with a product, and of streams that change.
pytestmark = [
    pytest.mark.needs_cuda,
    pytest.mark.usefixtures("alone", "record_at_once"),
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS", "ignore:The AccumulateGrad node"),
]


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = F.relu(self.norm(self.conv(x.view(-1, 3, 4, 4))), inplace=True)
        made: torch.Tensor = self.head(y.mean((2, 3)))
        return made


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x.view(-1, 3, 16)).view(-1, 3, 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0)
        made: torch.Tensor = self.out(y.transpose(1, 2).reshape(-1, 3, 16)).mean(1)
        return made


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(16, 8, 2, batch_first=True), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.head(self.lstm(x.view(-1, 3, 16))[0][:, -1])
        return made


class Turned(nn.LSTM):
    """Its result is not contiguous, and the result's gradient is. cuDNN's backward pass writes into
    what the forward pass has saved."""

    def __init__(self) -> None:
        super().__init__(16, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        made: torch.Tensor = super().forward(x.view(-1, 3, 16))[0]
        return made


def make_plain() -> nn.Module:
    layers = [nn.Linear(48, 64), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(64), nn.Linear(64, 4)]
    return nn.Sequential(*layers)


def make(kind: Callable[[], nn.Module] = make_plain) -> nn.Module:
    torch.manual_seed(0)
    return kind().cuda()


def draw(rows: int = 6) -> torch.Tensor:
    return torch.randn(rows, 48, device="cuda")


def train(net: nn.Module, call: Any, steps: int = 24) -> list[torch.Tensor]:
    """Accumulation, GradScaler, clipping: all losses and weights."""
    torch.manual_seed(5)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cuda")  # type: ignore[attr-defined]
    losses = []
    for step in range(steps):
        loss = call(draw()).square().mean()
        scaler.scale(loss / 2).backward()
        losses.append(loss.detach())
        if step % 2:
            scaler.unscale_(optimizer)
            losses.append(nn.utils.clip_grad_norm_(net.parameters(), 0.1))
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=step % 4 == 1)
    kept = [item.detach().clone() for item in (*net.parameters(), *net.buffers())]
    return [*losses, *kept, torch.cuda.get_rng_state()]


def assert_same(wanted: list[Any], found: list[Any]) -> None:
    assert len(wanted) == len(found)
    for place, (one, other) in enumerate(zip(wanted, found, strict=True)):
        assert torch.equal(one, other), place


def pair(net: nn.Module, **options: Any) -> tuple[nn.Module, nn.Module, Captured]:
    """The module, another with the same weights, and a capture of that."""
    other = copy.deepcopy(net)
    for part in other.modules():
        if isinstance(part, nn.LSTM):
            part.flatten_parameters()  # a copy is not flat
    return net, other, ftax.capture(other, draw(), **options)


def list_grads(net: nn.Module) -> list[Any]:
    return [None if item.grad is None else item.grad.clone() for item in net.parameters()]


@pytest.mark.parametrize("kind", [make_plain, Normed, Attention, Recurrent])
def test_training_has_the_bits_of_eager(kind: Callable[[], nn.Module]):
    net, other, fast = pair(make(kind))
    assert fast.explain().programs[0].kind == "graph", fast.explain()
    assert_same(train(net, net), train(other, fast))
    stats = fast.stats()
    assert stats.replayed == 24 and stats.checked >= 3 and not stats.from_tape, stats
    assert stats.memory_bytes > 0


def test_a_check_that_finds_a_replay_slow_makes_no_second_one(monkeypatch: pytest.MonkeyPatch):
    falling, measure = iter(range(1000, 0, -1)), ledger.Clock.time

    def time(clock: ledger.Clock, run: Callable[[], Any]) -> Any:
        result = measure(clock, run)
        clock.last_ns = next(falling)
        return result

    monkeypatch.setattr(ledger.Clock, "time", time)
    net, other, fast = pair(make())
    assert_same(train(net, net), train(other, fast))
    stats = fast.stats()
    assert stats.replayed == 24 and stats.checked >= 3 and not stats.from_tape, stats


def test_two_calls_may_wait_for_their_backward_pass():
    for depth, from_tape in ((1, 1), (2, 0)):
        net, other, fast = pair(make(), depth=depth, audit=False)
        for call in (net, fast):
            torch.manual_seed(3)
            (call(draw()).square().mean() * call(draw()).mean()).backward()
        assert_same(list_grads(net), list_grads(other))
        assert fast.stats().from_tape == from_tape


def test_a_gradient_outlives_the_next_replay():
    _, other, fast = pair(make(), audit=False)
    fast(draw()).square().mean().backward()
    held = [item.grad for item in other.parameters()]
    before = list_grads(other)
    for item in other.parameters():
        item.grad = None
    fast(draw()).square().mean().backward()
    assert_same(before, held)


def test_a_graph_that_is_kept_goes_back_again_and_one_that_is_not_does_not():
    net, other, fast = pair(make(), audit=False)
    for call in (net, fast):
        torch.manual_seed(3)
        loss = call(draw()).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
    assert_same(list_grads(net), list_grads(other))
    fast(draw())
    assert not fast.stats().from_tape


def test_gradients_that_lie_in_another_way_come_out_of_what_the_first_call_saved():
    net, other, fast = pair(make(Turned), audit=False)
    for call in (net, fast):
        torch.manual_seed(3)
        for _ in range(3):
            loss = call(draw()).square().mean()
            loss.backward(retain_graph=True)
            loss.backward()
    assert_same(list_grads(net), list_grads(other))


def test_a_backward_pass_that_never_comes_frees_the_graph():
    fast = ftax.capture(make(), draw(), audit=False)
    for _ in range(3):
        fast(draw())
    assert not fast.stats().from_tape


def test_gradients_that_lie_in_another_way_have_their_own_graph():
    net, other, fast = pair(make(), audit=False)
    for _ in range(3):
        for call in (net, fast):
            torch.manual_seed(3)
            call(draw()).sum().backward()
    assert_same(list_grads(net), list_grads(other))
    assert fast.stats().replayed == 3


def test_inputs_have_gradients():
    net, other = make(), make()
    fast = ftax.capture(other, draw().requires_grad_(), audit=False)
    found = []
    for call in (net, fast):
        torch.manual_seed(3)
        x = draw().requires_grad_()
        call(x).square().mean().backward()
        found.append([x.grad])
    assert_same(*found)


def test_modes_by_turns():
    net, other, fast = pair(make())

    def run(module: nn.Module, call: Any) -> list[torch.Tensor]:
        torch.manual_seed(5)
        found = []
        for step in range(12):
            module.train(step % 3 != 2)
            with torch.autocast("cuda", torch.bfloat16, enabled=step % 4 > 1):
                result = call(draw())
            result.float().square().mean().backward()
            with torch.no_grad():
                found.append(call(draw()).float())
        return found + list_grads(module)

    assert_same(run(net, net), run(other, fast))


def test_what_autograd_refuses_is_refused():
    net, other, fast = pair(make(), audit=False)
    for module, call in ((net, net), (other, fast)):
        loss = call(draw()).square().mean()
        with torch.no_grad():
            next(module.parameters()).add_(1)  # the first weight: its value is not needed
            list(module.parameters())[-2].add_(1)  # of the head, whose is
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    fast(draw()).square().mean().backward()


def test_streams():
    net, other, fast = pair(make(), audit=False)
    side = torch.cuda.Stream()
    for call in (net, fast):
        torch.manual_seed(3)
        for step in range(6):
            with torch.cuda.stream(side if step % 2 else torch.cuda.current_stream()):
                side.wait_stream(torch.cuda.default_stream())
                call(draw()).square().mean().backward()
                torch.cuda.synchronize()
    assert_same(list_grads(net), list_grads(other))


def test_threads_take_turns_with_the_graph():
    net, other, fast = pair(make().eval(), audit=False)
    given = [draw() for _ in range(4)]
    wanted = [torch.autograd.grad(net(x).square().mean(), net.parameters()) for x in given]
    found: list[Any] = [None] * len(given)

    def work(place: int) -> None:
        for _ in range(5):
            loss = fast(given[place]).square().mean()
            found[place] = torch.autograd.grad(loss, other.parameters())

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, two in zip(wanted, found, strict=True):
        assert_same(list(one), list(two))


def test_what_a_graph_cannot_hold_is_a_tape_unless_a_graph_was_asked_for():
    net = make()
    wide = torch.randn(1, 48, device="cuda").expand(6, 48)  # several elements are one in memory
    fast = ftax.capture(net, wide)
    facts = fast.explain().programs[0]
    assert facts.kind == "tape" and any("expanded" in item for item in facts.warnings)
    with pytest.raises(UnsupportedError, match="expanded"):
        ftax.capture(net, wide, kind="graph")


def test_a_module_in_place_trains_with_others():
    net, other = make(), make()
    heads = [make(lambda: nn.Linear(4, 2)) for _ in range(2)]
    captured = ftax.capture_(other, draw())
    found = []
    for module, head in zip((net, other), heads, strict=True):
        torch.manual_seed(5)
        optimizer = torch.optim.SGD([*module.parameters(), *head.parameters()], lr=0.1)
        for _ in range(10):
            head(module(draw())).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        found.append([item.detach().clone() for item in (*module.parameters(), *head.parameters())])
    assert_same(*found)
    assert captured.stats().replayed == 10
