"""A training step as a tape below autograd: bit for bit eager's, over many steps, for every kind of
optimizer; what cannot be replayed again and again is said."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import library, nn
from torch.utils.checkpoint import checkpoint

import ftax
from ftax import UnsupportedError, _core
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.tape.recording import observe
from ftax.tape.tape import make_tape, make_tape_with_autograd, preserve_state

Optimizer = torch.optim.Optimizer
_STEPS = 20
QUICK = ftax.Plan(rounds=2, warmup=2, round_ms=2.0)


class Small(nn.Module):
    """A convolution, both kinds of norm, attention and a branch that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.scale = nn.LayerNorm(8)
        self.shared = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x)).relu().transpose(1, 2)
        y = y + self.attention(y, y, y, need_weights=False)[0]
        y = self.shared(F.gelu(self.shared(self.scale(y))))
        return self.head(y.mean(1))


def classify(model: nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x), target)


def make_step(
    make_optimizer: Callable[..., Optimizer], loss: Callable[..., torch.Tensor] = classify
) -> tuple[ftax.Step, list[torch.Tensor], Optimizer]:
    torch.manual_seed(0)
    model = Small()
    optimizer = make_optimizer(model.parameters())
    batch = (torch.randn(4, 4, 6), torch.randint(0, 3, (4,)))
    step = ftax.train(model, loss, optimizer, batch)
    return step, [*model.parameters(), *model.buffers()], optimizer


def read(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def run_steps(loaded: LoadedModel, run: Callable[[], object]) -> list[list[torch.Tensor]]:
    """What the step has written after each of many runs, from the same beginning."""
    found = []
    with preserve_state(loaded):
        for _ in range(_STEPS):
            run()
            found.append(read(loaded.returned))
    return found


def is_equal(a: list[list[torch.Tensor]], b: list[list[torch.Tensor]]) -> bool:
    return all(
        torch.equal(x, y) for some, others in zip(a, b, strict=True) for x, y in zip(some, others)
    )


REPLAYABLE: dict[str, Callable[..., Optimizer]] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.1, foreach=False),
    "sgd-momentum-foreach": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
    "sgd-fused": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, fused=True),
    "adam-fused": lambda weights: torch.optim.Adam(weights, lr=0.1, fused=True),
    "adamw-fused": lambda weights: torch.optim.AdamW(weights, lr=0.1, fused=True),
}
BAKED: dict[str, Callable[..., Optimizer]] = {
    "adam-loop": lambda weights: torch.optim.Adam(weights, lr=0.1, foreach=False),
    "adamw-foreach": lambda weights: torch.optim.AdamW(weights, lr=0.1, foreach=True),
}


@pytest.mark.parametrize("name", REPLAYABLE)
def test_twenty_steps_of_the_tape_are_those_of_eager(name: str):
    step, weights, _ = make_step(REPLAYABLE[name])
    loaded = load_model(step)
    assert len(loaded.returned) >= len([w for w in weights if w.is_floating_point()])
    check_steps(loaded)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_kernels_that_ask_for_the_grad_mode_find_it(layer: type[nn.Module]):
    torch.manual_seed(0)
    model = layer(4, 8, batch_first=True)  # oneDNN's LSTM keeps what its backward pass needs
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = ftax.train(
        model, lambda run, x: run(x)[0].square().mean(), optimizer, (torch.randn(2, 3, 4),)
    )
    check_steps(load_model(step))


def check_steps(loaded: LoadedModel) -> None:
    """Hold many steps of the tape against those of eager."""
    taped = make_tape(loaded)
    assert taped.checks.judge_outputs().words == "bitwise equal"
    assert not any("timing only" in warning for warning in taped.warnings)

    def eager() -> None:
        with loaded.guard():
            loaded.call()

    def replay() -> None:
        with torch.inference_mode():
            taped.tape.run()

    before = run_steps(loaded, eager)
    assert is_equal(before, run_steps(loaded, replay))
    assert not is_equal(before[:1], before[1:2])  # it does train


@pytest.mark.parametrize("name", BAKED)
def test_a_step_count_that_is_read_on_the_host_is_said(name: str):
    step, _, _ = make_step(BAKED[name])
    taped = make_tape(load_model(step))
    assert taped.checks.judge_outputs().equal  # of one step
    assert any(warning.startswith("timing only") for warning in taped.warnings)


def accumulate(model: nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    classify(model, x.flip(0), target.flip(0)).backward()
    return classify(model, x, target)


def autocast(model: nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return classify(model, x, target).float()


def recompute(model: nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(checkpoint(model, x, use_reentrant=False), target)


def recompute_within(model: nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """By a backward pass within the backward pass."""
    given = x.clone().requires_grad_()
    return F.cross_entropy(checkpoint(model, given, use_reentrant=True), target)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


def custom(model: nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(Doubled.apply(model(x)), target)


def penalise(model: nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    loss = classify(model, x, target)
    (gradient,) = torch.autograd.grad(loss, [model.head.weight], create_graph=True)
    return loss + gradient.square().sum()


@pytest.mark.parametrize("loss", [accumulate, autocast, recompute, custom, penalise])
def test_ways_to_train_are_taped_bit_for_bit(loss: Callable[..., torch.Tensor]):
    step, _, _ = make_step(REPLAYABLE["sgd-momentum-foreach"], loss)
    taped = make_tape(load_model(step))
    assert taped.checks.judge_outputs().words == "bitwise equal"


def test_dropout_draws_in_a_replay_what_it_draws_in_eager():
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = ftax.train(model, lambda m, x: m(x).sum(), optimizer, (torch.randn(4, 8),))
    assert make_tape(load_model(step)).checks.judge_outputs().words == "bitwise equal"


def test_clipping_and_gradients_that_stay_are_state():
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss

    loaded = load_model(ftax.step(run, (torch.randn(3, 4),)))
    assert make_tape(loaded).checks.judge_outputs().words == "bitwise equal"
    assert model.weight.grad is not None
    gradient = model.weight.grad.untyped_storage().data_ptr()
    assert gradient in [item.untyped_storage().data_ptr() for item in loaded.returned]


def test_a_branch_on_the_loss_is_found_out():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        if x.sum() > 0:
            loss = loss.square()
        loss.backward()
        optimizer.step()
        return loss

    step = ftax.step(run, (torch.ones(2, 4),), check_inputs=(-torch.ones(2, 4),))
    with pytest.raises(UnsupportedError, match="control flow depends on the data"):
        make_tape(load_model(step))


def test_the_second_opinion_sees_the_backward_pass_and_the_optimizer():
    step, _, _ = make_step(REPLAYABLE["adamw-fused"])
    loaded = load_model(step)
    names = [call.name for call in observe(loaded.call, has_autograd=True) if call.depth == 0]
    assert "aten::native_batch_norm_backward" in names
    assert names[-1] == "aten::_fused_adamw_"
    assert "aten::layer_norm" not in names  # but what it is made of
    assert "aten::native_layer_norm" in names


def test_a_step_that_changes_meanwhile_is_not_the_same_work():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    calls = 0

    def run(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = model(x).sum()
        if calls > 60:
            loss = loss * 2
        loss.backward()
        optimizer.step()
        return loss

    plan = ftax.Plan(rounds=3, warmup=20, round_ms=5.0)
    step = ftax.step(run, (torch.ones(2, 4),))
    receipt = ftax.tax(step, plan=plan, runtimes="none", operators=False, progress=False)
    assert "not the same work" in str(receipt.details)


def test_sparse_gradients_are_taped():
    model = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = ftax.train(model, lambda m, x: m(x).sum(), optimizer, (torch.arange(4),))
    loaded = load_model(step)
    assert make_tape(loaded).checks.judge_outputs().words == "bitwise equal"
    assert not any("memory grows" in warning for warning in loaded.warnings)


def test_what_cannot_be_followed_below_autograd_is_said():
    model = nn.Linear(4, 2)
    weights = {name: item.detach() for name, item in model.named_parameters()}

    def loss(values: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, values, (x,)).sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    step = ftax.step(lambda x: each(weights, x), (torch.randn(3, 4),))
    with pytest.raises(UnsupportedError, match=r"vmap.*torch\.no_grad"):
        make_tape(load_model(step))


def test_integers_tell_calls_of_one_shape_apart():
    sizes = [5] + [3] * 10
    step = ftax.step(lambda: torch.ones(sizes.pop()).sum())
    loaded = load_model(step)
    words = [observe(loaded.call, has_autograd=True)[0].describe() for _ in range(6)]
    assert "aten::ones on 3" in words[0]
    assert "aten::ones on 5" in words[-1]


# --- above autograd ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPLAYABLE)
def test_a_tape_with_autograd_runs_its_engine_and_trains_as_eager_does(name: str):
    step, _, _ = make_step(REPLAYABLE[name])
    loaded = load_model(step)
    tape, checks = make_tape_with_autograd(loaded, make_tape(loaded))
    assert checks.judge_outputs().words == "bitwise equal"
    assert tape.operators.count("ftax::backward") == 0  # it is no operator
    assert [call["operator"] for call in tape.calls].count("ftax::backward") == 1

    def eager() -> None:
        with loaded.guard():
            loaded.call()

    def replay() -> None:
        with loaded.guard():
            tape.run()

    assert is_equal(run_steps(loaded, eager), run_steps(loaded, replay))


def test_two_backward_passes_that_add_up_are_two_calls():
    step, _, _ = make_step(REPLAYABLE["sgd"], accumulate)
    loaded = load_model(step)
    tape, checks = make_tape_with_autograd(loaded, make_tape(loaded))
    assert checks.judge_outputs().words == "bitwise equal"
    assert [call["operator"] for call in tape.calls].count("ftax::backward") == 2


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (autocast, "changes autocast on the CPU"),
        (custom, "nothing leads back from the loss"),
        (penalise, "gradients of some tensors alone"),
    ],
)
def test_what_a_tape_with_autograd_cannot_hold_is_said(
    loss: Callable[..., torch.Tensor], words: str
):
    step, _, _ = make_step(REPLAYABLE["sgd"], loss)
    loaded = load_model(step)
    with pytest.raises(UnsupportedError, match=words):
        make_tape_with_autograd(loaded, make_tape(loaded))
    receipt = ftax.tax(step, plan=QUICK, runtimes="none", operators=False, progress=False)
    assert [line.name for line in receipt.lines] == ["Python, bindings and autograd", "operators"]


def test_hooks_on_parameters_run_in_a_replay_too():
    step, weights, _ = make_step(REPLAYABLE["sgd"])
    calls: list[None] = []
    weights[0].register_post_accumulate_grad_hook(lambda _: calls.append(None))
    loaded = load_model(step)
    tape, _ = make_tape_with_autograd(loaded, make_tape(loaded))
    before = len(calls)
    with loaded.guard():
        tape.run()
    assert len(calls) == before + 1


def test_the_backward_pass_is_pythons_own_again():
    engine = vars(torch.autograd)["_engine_run_backward"]
    step, _, _ = make_step(REPLAYABLE["sgd"])
    loaded = load_model(step)
    make_tape_with_autograd(loaded, make_tape(loaded))
    assert vars(torch.autograd)["_engine_run_backward"] is engine


def test_how_far_a_generator_is_is_not_another_work():
    """As attention on a GPU: its kernel calls an operator on the position of its generator, which
    no two runs have alike."""
    operators = library.Library("ftax_test_draws", "DEF")
    drawn = []
    for name, tags in (("random", (torch.Tag.nondeterministic_seeded,)), ("plain", ())):

        def kernel(x: torch.Tensor) -> torch.Tensor:
            drawn.append(torch.scalar_tensor(len(drawn)))
            return x * 2

        operators.define(f"{name}(Tensor x) -> Tensor", tags=tags)
        operators.impl(name, kernel, "CPU")
    weight = torch.zeros(3)

    def step(x: torch.Tensor, name: str = "random") -> torch.Tensor:
        with torch.no_grad():
            weight.add_(getattr(torch.ops.ftax_test_draws, name)(x))
        return weight * 1

    try:
        calls = [observe(lambda: step(torch.ones(3)), has_autograd=True) for _ in range(2)]
        assert calls[0] == calls[1]
        assert [call.integers for call in calls[0] if "scalar_tensor" in call.name] == [()]
        with pytest.raises(UnsupportedError, match="scalar_tensor"):
            load_model(ftax.step(lambda x: step(x, "plain"), (torch.ones(3),)))
        receipt = ftax.tax(
            ftax.step(step, (torch.ones(3),)), plan=QUICK, runtimes="none", progress=False
        )
        assert not receipt.work_problem
    finally:
        operators._destroy()


def test_gradients_may_be_dropped_at_the_end_of_a_step():
    layer = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def train(x: torch.Tensor) -> torch.Tensor:
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    step = ftax.step(train, (torch.ones(2, 4),))
    receipt = ftax.tax(step, plan=QUICK, runtimes="none", progress=False)
    assert not receipt.work_problem
    assert [str(rung.place) for rung in receipt.rungs][1] == "tape-with-autograd/cpp"
    assert layer.weight.grad is None


def test_a_backward_pass_within_another_costs_a_rung_and_no_process():
    step, _, _ = make_step(REPLAYABLE["sgd"], recompute_within)
    receipt = ftax.tax(step, plan=QUICK, runtimes="none", progress=False)
    (absent,) = receipt.unavailable
    assert absent.runtime == "tape-with-autograd"
    assert "its backward pass starts another one" in absent.reason


# --- leaves that stand in no module --------------------------------------------------------------

Inputs = tuple[torch.Tensor, ...]
Made = tuple[Callable[..., object], Inputs]


def make_leaf(*size: int) -> torch.Tensor:
    return torch.randn(size, requires_grad=True)


def several_leaves() -> Made:
    scale, shift, fixed = make_leaf(1), make_leaf(3, 4), torch.randn(4)
    optimizer = torch.optim.Adam([scale, shift], 0.1, fused=True)

    def run(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = (x * scale.exp() + shift + fixed).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return run, (torch.randn(3, 4),)


def temperature_of_a_policy() -> Made:
    """As log_alpha of SAC: it takes part in two losses, and learns from one."""
    policy, temperature = nn.Linear(4, 4), make_leaf(1)
    optimizers = [torch.optim.SGD([*policy.parameters()], 0.1), torch.optim.SGD([temperature], 0.1)]

    def run(x: torch.Tensor) -> Inputs:
        y = policy(x)
        losses = ((temperature.exp().detach() * y).mean(), (temperature * (y + 1).detach()).mean())
        for optimizer, loss in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return losses[0].detach(), losses[1].detach()

    return run, (torch.randn(3, 4),)


def leaf_of_two_backward_passes() -> Made:
    leaf = make_leaf(4)
    optimizer = torch.optim.SGD([leaf], 0.1, momentum=0.9)

    def run(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        for loss in ((leaf * x).square().mean(), (leaf + x).abs().mean()):
            loss.backward()
        optimizer.step()
        return loss.detach()

    return run, (torch.randn(3, 4),)


def leaves_in_containers() -> Made:
    held = {"latents": [make_leaf(4), (make_leaf(4),)]}

    def run(x: torch.Tensor) -> torch.Tensor:
        first, (second,) = held["latents"]
        loss = (first * x + second).square().mean()
        loss.backward()
        with torch.no_grad():
            for leaf in (first, second):
                leaf -= 0.1 * leaf.grad
                leaf.grad = None
        return loss.detach()

    return run, (torch.randn(3, 4),)


def leaf_that_is_frozen_meanwhile() -> Made:
    leaf, frozen = make_leaf(4), make_leaf(4)
    optimizer = torch.optim.SGD([leaf, frozen], 0.1)

    def run(x: torch.Tensor) -> torch.Tensor:
        frozen.requires_grad_(False)
        optimizer.zero_grad()
        loss = (leaf * x + frozen).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return run, (torch.randn(3, 4),)


def input_with_a_gradient() -> Made:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        x.grad = None
        loss = x.square().mean()
        loss.backward()
        return loss.detach(), x.grad

    return run, (make_leaf(3, 4),)


def input_that_a_step_makes_a_leaf() -> Made:
    """As an attack on a classifier does."""
    model = nn.Linear(4, 1)

    def run(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().clone().requires_grad_()
        model(x).square().mean().backward()
        assert x.grad is not None
        return x + x.grad.sign()

    return run, (torch.randn(3, 4),)


def leaf_that_is_the_loss() -> Made:
    leaf = make_leaf()

    def run(x: torch.Tensor) -> torch.Tensor:
        leaf.grad = None
        leaf.backward()
        assert leaf.grad is not None
        return leaf.grad * x

    return run, (torch.randn(3, 4),)


LEAVES = [
    several_leaves,
    temperature_of_a_policy,
    leaf_of_two_backward_passes,
    leaves_in_containers,
    leaf_that_is_frozen_meanwhile,
    input_with_a_gradient,
    input_that_a_step_makes_a_leaf,
    leaf_that_is_the_loss,
]


@pytest.mark.parametrize("make", LEAVES)
def test_leaves_are_found_wherever_python_keeps_them(make: Callable[[], Made]):
    torch.manual_seed(0)
    loaded = load_model(ftax.step(*make()))
    _, checks = make_tape_with_autograd(loaded, make_tape(loaded))
    assert checks.judge_outputs().words == "bitwise equal"


def test_a_leaf_in_no_module_does_not_cost_the_line_autograd():
    torch.manual_seed(0)
    step = ftax.step(*several_leaves())
    receipt = ftax.tax(step, plan=QUICK, runtimes="none", operators=False, progress=False)
    assert [line.name for line in receipt.lines] == ["Python and bindings", "autograd", "operators"]


def test_gradients_of_leaves_in_no_module_are_gone_before_memory_is_counted(
    monkeypatch: pytest.MonkeyPatch,
):
    leaf, found = make_leaf(4), []
    measure = _core.measure_peak_bytes

    def look(*args: Any) -> int:
        found.append(leaf.grad)
        return measure(*args)

    def run(x: torch.Tensor) -> torch.Tensor:
        leaf.grad = None
        (leaf * x).sum().backward()
        return x + 1

    monkeypatch.setattr(_core, "measure_peak_bytes", look)
    make_tape(load_model(ftax.step(run, (torch.randn(4),))))
    assert found[0] is None


def test_a_backward_pass_from_an_edge_is_refused_in_words():
    leaf = make_leaf(4)

    def run(x: torch.Tensor) -> torch.Tensor:
        leaf.grad = None
        loss = (leaf * x).sum()
        torch.autograd.backward(torch.autograd.graph.get_gradient_edge(loss), torch.ones(()))
        return loss.detach()

    loaded = load_model(ftax.step(run, (torch.randn(4),)))
    with pytest.raises(UnsupportedError, match=r"a GradientEdge: give backward\(\) the tensor"):
        make_tape_with_autograd(loaded, make_tape(loaded))


def test_inference_mode_within_a_training_step_is_refused_with_the_remedy():
    net = nn.Linear(3, 3)

    def train(x):
        loss = net(x).square().mean()
        loss.backward()
        net.zero_grad()
        with torch.inference_mode():
            return loss, net(x).argmax(-1)

    with pytest.raises(ftax.UnsupportedError, match=r"enters torch.inference_mode.*torch.no_grad"):
        make_tape(load_model(ftax.step(train, (torch.randn(2, 3),))))


@pytest.mark.parametrize("given", [2.0, [1.0, 2.0, 3.0]], ids=["number", "list"])
def test_a_tensor_that_a_training_step_makes_of_numbers_has_a_tape_with_autograd(given):
    net = nn.Linear(3, 3)

    def train(x):
        loss = (net(x) * torch.tensor(given, dtype=torch.float64)).square().mean()
        loss.backward()
        net.zero_grad()
        return loss

    loaded = load_model(ftax.step(train, (torch.randn(2, 3),)))
    tape, checks = make_tape_with_autograd(loaded, make_tape(loaded))
    assert checks.judge_outputs().words == "bitwise equal"
    assert "aten::lift_fresh" in tape.operators
