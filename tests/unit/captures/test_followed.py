"""A captured module inside a training loop: results, gradients and errors are those of eager."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import library as operators
from torch import nn
from torch.utils.checkpoint import checkpoint

import ftax
from ftax import Captured
from support.captures import Hidden

Grads = list[torch.Tensor | None]


def make_net(dropout: float = 0.2) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.ReLU(), nn.Dropout(dropout), nn.LayerNorm(16), nn.Linear(16, 4)]
    return nn.Sequential(*layers)


def draw(*shape: int, needs_gradient: bool = False) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=needs_gradient)


def list_grads(net: nn.Module) -> Grads:
    return [None if item.grad is None else item.grad.clone() for item in net.parameters()]


def assert_same(wanted: Sequence[Any], found: Sequence[Any]) -> None:
    assert len(wanted) == len(found)
    for one, other in zip(wanted, found, strict=True):
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, other)
        else:
            assert one is other


def compare(
    make: Callable[[], nn.Module], inputs: Any, body: Callable[[nn.Module, Any], Any]
) -> Captured:
    """``body(net, call)`` with the module itself and with its capture."""
    eager = make()
    net = copy.deepcopy(eager)
    fast = ftax.capture(net, inputs)
    outcomes = []
    for module, call in ((eager, eager), (net, fast)):
        torch.manual_seed(5)
        results = body(module, call) or []
        outcomes.append([*results, *list_grads(module), *module.buffers(), torch.get_rng_state()])
    assert_same(*outcomes)
    return fast


def train(net: nn.Module, call: Any) -> list[torch.Tensor]:
    head = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for step in range(12):
        loss = head(call(draw(4, 8))).square().mean() / 2
        loss.backward()
        if step % 2:
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad(set_to_none=step % 4 == 1)
        losses.append(loss.detach())
    return [*losses, *(item.detach().clone() for item in net.parameters())]


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = F.relu(self.norm(self.conv(x)), inplace=True)
        return y.mean((2, 3))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.lstm = nn.Embedding(50, 8, padding_idx=0), nn.LSTM(8, 4, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.lstm(self.embedding(ids))[0]
        return y[-1]


FACTOR = Hidden()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        found: torch.Tensor = grad * x.exp() * FACTOR.read()
        return found


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return Doubled.apply(self.linear(x))  # type: ignore[no-untyped-call]


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = make_net(), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(checkpoint(self.body, x, use_reentrant=False))
        return y


class Several(nn.Module):
    """Losses use some of its results; one is no float, and one weight is not used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 3), nn.Linear(8, 2)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        y = torch.tanh(self.body(x))
        return {"a": self.a(y), "b": (self.b(y), y.argmax(-1)), "none": None}


def test_a_training_loop_with_accumulation_and_clipping() -> None:
    fast = compare(make_net, draw(4, 8), train)
    assert fast.stats().replayed == 12
    assert fast.recordings == 1
    (facts,) = fast.explain().programs
    assert "of the backward pass" in facts.contents


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (Normed, draw(2, 3, 6, 6)), (Recurrent, torch.randint(0, 50, (5, 3))),
        (Own, draw(4, 8)), (Checkpointed, draw(4, 8)),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 4)), draw(4, 8)),
    ],
)  # fmt: skip
def test_modules(make: Callable[[], nn.Module], inputs: torch.Tensor) -> None:
    def body(net: nn.Module, call: Any) -> list[torch.Tensor]:
        losses = []
        for _ in range(5):
            given = torch.randint(0, 50, (5, 3)) if inputs.dtype == torch.int64 else None
            result = call(torch.randn_like(inputs) if given is None else given)
            losses.append(F.cross_entropy(result, torch.zeros(len(result), dtype=torch.int64)))
            losses[-1].backward()
        return losses

    assert compare(make, inputs, body).stats().replayed == 5


def test_gradients_of_inputs() -> None:
    def body(net: nn.Module, call: Any) -> Grads:
        before, found = nn.Linear(8, 8), []
        for _ in range(4):
            x = draw(4, 8, needs_gradient=True)
            call(x).square().sum().backward()
            call(before(draw(4, 8))).square().sum().backward()
            found += [x.grad, before.weight.grad.clone()]
        return found

    assert compare(make_net, draw(4, 8, needs_gradient=True), body).stats().replayed == 8


def test_losses_that_use_some_results() -> None:
    def body(net: nn.Module, call: Any) -> Grads:
        found: Grads = []
        for step in range(6):
            result = call(draw(4, 8))
            assert result["none"] is None
            losses = [
                result["a"].sum(), result["b"][0].square().mean(),
                result["a"].square().sum() + result["b"][0].sum(),
            ]  # fmt: skip
            losses[step % 3].backward()
            found += list_grads(net)
            net.zero_grad()
        return found

    assert compare(Several, draw(4, 8), body).stats().replayed == 6


class Shifted(nn.Module):
    """Gradients of the token lie in the memory of those of the positions, and autograd adds to
    both in their places."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.token, self.positions = (
            nn.Parameter(torch.randn(1, 8)),
            nn.Parameter(torch.randn(5, 8)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((self.token, x)) + self.positions


def test_gradients_that_share_memory_are_added_up_apart() -> None:
    def body(net: nn.Module, call: Any) -> None:
        for _ in range(6):
            call(draw(4, 8)).square().sum().backward()

    assert compare(Shifted, draw(4, 8), body).stats().replayed == 6


def test_the_graph_may_be_retained_and_calls_may_wait() -> None:
    def body(net: nn.Module, call: Any) -> None:
        for _ in range(3):
            first, second = call(draw(4, 8)).square().sum(), call(draw(4, 8)).sum()
            second.backward(retain_graph=True)
            first.backward()
            second.backward()

    assert compare(make_net, draw(4, 8), body).stats().replayed == 6


@operators.custom_op("ftax_tests::consume", mutates_args=())
def consume(kept: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    made = kept * grad
    kept.numpy().fill(0)  # which no schema tells
    return made


class Consuming(torch.autograd.Function):
    """As cuDNN's recurrent layers: unless the graph is kept, going backward writes into it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cares: bool) -> torch.Tensor:
        kept, ctx.cares = x * 2, cares
        ctx.save_for_backward(kept)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (kept,) = ctx.saved_tensors
        is_kept = ctx.cares and torch._C._autograd._get_current_graph_task_keep_graph()
        return consume(kept.clone() if is_kept else kept, grad), None


class Consumed(nn.Linear):
    def __init__(self, cares: bool = True) -> None:
        super().__init__(8, 8)
        self.cares = cares

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = Consuming.apply(super().forward(x), self.cares)  # type: ignore[no-untyped-call]
        return made


def test_a_backward_pass_may_write_into_what_was_saved_for_it() -> None:
    def body(net: nn.Module, call: Any) -> None:
        for _ in range(6):
            loss = call(draw(4, 8)).square().sum()
            loss.backward(retain_graph=True)
            loss.backward()

    assert compare(Consumed, draw(4, 8), body).stats().replayed == 6


def test_one_that_always_does_so_is_refused() -> None:
    with pytest.raises(ftax.UnsupportedError, match="its schema does not say so"):
        ftax.capture(Consumed(cares=False), draw(4, 8))


def test_hooks() -> None:
    def make() -> nn.Module:
        net = make_net()
        net[4].register_full_backward_hook(lambda module, given, grads: (given[0] * 3,))
        return net

    def body(net: nn.Module, call: Any) -> list[torch.Tensor]:
        seen: list[torch.Tensor] = []
        hook = net[0].weight.register_hook(lambda grad: seen.append(grad) or grad * 2)
        for _ in range(3):
            result = call(draw(4, 8))
            result.register_hook(lambda grad: grad * 5)
            result.sum().backward()
        hook.remove()
        assert len(seen) == 3
        return seen

    assert compare(make, draw(4, 8), body).stats().replayed == 3


def test_other_modes_by_turns() -> None:
    def body(net: nn.Module, call: Any) -> list[torch.Tensor]:
        found = []
        for step in range(8):
            net.train(step % 4 < 2)
            net[0].weight.requires_grad_(step % 3 > 0)
            with torch.set_grad_enabled(step % 2 == 0):
                found.append(call(draw(4, 8)))
            if step % 2 == 0:
                found[-1].square().sum().backward()
        net[0].weight.requires_grad_()
        return found

    assert compare(make_net, draw(4, 8), body).stats().replayed >= 1


def test_autocast_around_the_forward_pass() -> None:
    def body(net: nn.Module, call: Any) -> list[torch.Tensor]:
        losses = []
        for _ in range(4):
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
                losses.append(call(draw(4, 8)).float().square().mean())
            losses[-1].backward()
        return losses

    eager = make_net()
    net = copy.deepcopy(eager)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        fast = ftax.capture(net, draw(4, 8))
    outcomes = []
    for module, call in ((eager, eager), (net, fast)):
        torch.manual_seed(5)
        outcomes.append([*body(module, call), *list_grads(module)])
    assert_same(*outcomes)
    assert fast.stats().replayed == 4


def test_in_place_inside_a_model_under_ddp() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        eager = nn.Sequential(make_net(), nn.Linear(4, 2))
        model = copy.deepcopy(eager)
        fast = ftax.capture_(model[0], draw(4, 8))
        for module in (eager, model):
            wrapped = nn.parallel.DistributedDataParallel(module)
            torch.manual_seed(5)
            with wrapped.no_sync():
                wrapped(draw(4, 8)).sum().backward()
            wrapped(draw(4, 8)).sum().backward()
        assert_same(list_grads(eager), list_grads(model))
        assert fast.stats().replayed > 0
    finally:
        dist.barrier()  # gloo's thread is done with what DDP gave it: where that ends, it is joined
        dist.destroy_process_group()


def test_threads_go_forward_and_backward_at_once() -> None:
    net = make_net(dropout=0.0)
    fast = ftax.capture(net, draw(4, 8, needs_gradient=True))
    given = [draw(4, 8, needs_gradient=True) for _ in range(8)]
    wanted = [torch.autograd.grad(net(x).square().sum(), x)[0] for x in given]
    found: dict[int, torch.Tensor] = {}

    def run(place: int) -> None:
        for _ in range(5):
            (found[place],) = torch.autograd.grad(fast(given[place]).square().sum(), given[place])

    threads = [threading.Thread(target=run, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same(wanted, [found[place] for place in range(8)])


@pytest.mark.parametrize("what", ["weight", "input", "result"])
def test_what_was_written_meanwhile_is_told_as_in_eager(what: str) -> None:
    net = nn.Sequential(make_net(), nn.Tanh())
    fast = ftax.capture(net, draw(4, 8))
    x = draw(4, 8)
    result = fast(x)
    loss = result.sum()
    with torch.no_grad():
        {"weight": net[0][4].weight, "input": x, "result": result.detach()}[what].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_second_backward_pass_and_one_of_the_backward_pass_are_told() -> None:
    x = draw(4, 8, needs_gradient=True)
    fast = ftax.capture(make_net(), x)
    loss = fast(x).square().sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    (grad,) = torch.autograd.grad(fast(x).square().sum(), x, create_graph=True)
    with pytest.raises(ftax.UnsupportedError, match="cannot be differentiated twice"):
        grad.sum().backward()


def test_what_is_held_for_a_backward_pass_goes_with_the_result() -> None:
    fast = ftax.capture(make_net(), draw(4, 8))
    fast(draw(4, 8))
    result = fast(draw(4, 8))
    node = weakref.ref(result.grad_fn)
    del result
    gc.collect()
    assert node() is None


def test_a_check_finds_other_gradients(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: FACTOR.set(2.0))
    net = Own()
    fast = ftax.capture(net, draw(4, 8))
    fast(draw(4, 8)).sum().backward()
    net.zero_grad()
    fast.audit(1)
    FACTOR.set(3.0)
    x = draw(4, 8)
    fast(x).sum().backward()  # the original's gradients, and the replay's beside them
    found = list_grads(net)
    net.zero_grad()
    net(x).sum().backward()
    assert_same(list_grads(net), found)
    with pytest.warns(UserWarning, match="a replay is not what Own computes: gradient 0 has other"):
        fast(x)
    assert fast.stats().original == {"a replay was wrong": 1}


def test_what_is_refused_in_words() -> None:
    class Views(nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x), x.view(-1)

    class Inner(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            y.square().sum().backward(retain_graph=True)
            return y

    with pytest.raises(ftax.UnsupportedError, match="result 1 is a view of an argument"):
        ftax.capture(Views(8, 4), draw(4, 8))
    with pytest.raises(ftax.UnsupportedError, match="autograd would have to follow its result"):
        ftax.capture(Inner(8, 4), draw(4, 8))
    with pytest.raises(ftax.InvalidArgumentError, match="kind is 'graph'"):
        ftax.capture(make_net(), draw(4, 8), kind="graph")


def test_gradients_for_which_nothing_can_be_recorded_are_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Several()
    fast = ftax.capture(net, draw(4, 8))
    x = draw(4, 8)
    net(x)["b"][0].sum().backward()
    wanted = list_grads(net)
    net.zero_grad()

    def refuse(*args: Any) -> Any:
        raise ftax.UnsupportedError("not today")

    monkeypatch.setattr("ftax.captures.recordings.record_backward", refuse)
    with pytest.warns(UserWarning, match=r"could not be recorded .*not today.* they are copied"):
        fast(x)["b"][0].sum().backward()
    for one, other in zip(wanted, list_grads(net), strict=True):
        if one is not None:
            torch.testing.assert_close(one, other)
