"""What a tape is refused for, what it warns of, and that checking it leaves the model as it was."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import library, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import ftax
from ftax import _core
from ftax.errors import RunnerError, UnsupportedError
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.eager.eager import prepare_flat
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import use_threads
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.tape.recording import find_copies_to_host, refuse_unawaited_copies
from ftax.tape.tape import make_tape
from support.small_models import Lambda, load_function, normal


def load_inside(
    function: Any, x: torch.Tensor | None = None, check_inputs: torch.Tensor | None = None
) -> LoadedModel:
    """A model whose submodule `gate` runs `function`, so that messages have a path to name."""
    model = nn.Sequential()
    model.add_module("gate", Lambda(function))
    return load_model(model, inputs=normal(3, 4) if x is None else x, check_inputs=check_inputs)


def refusal(loaded: LoadedModel) -> str:
    with pytest.raises(UnsupportedError) as caught:
        make_tape(loaded)
    return str(caught.value)


def test_host_reads_are_listed_with_their_place() -> None:
    taped = make_tape(load_inside(lambda x: x + 0 * x.sum().item()))
    assert taped.checks.details["host_reads"] == ["aten::item in gate"]
    assert any("reads 1 value on the host (aten::item in" in w for w in taped.warnings)


def test_work_that_other_threads_do_is_no_tapes() -> None:
    weight = normal(4, 4)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(torch.add, weight, 1).result()  # its thread is there before anybody looks

        def call(x: torch.Tensor) -> torch.Tensor:
            beside = pool.submit(torch.mm, weight, weight)
            result = x + 1
            beside.result()
            return result

        told = refusal(load_inside(call))
        assert "another thread called operators (aten::mm was the first)" in told
    make_tape(load_inside(lambda x: x + 1))  # nobody watches any more
    assert _core.unwatch_other_threads() == ""


def test_threads_that_share_a_kernels_work_are_no_others() -> None:
    """Attention's backward pass allocates in each of them."""
    query = torch.randn(2, 4, 64, 16, requires_grad=True)
    optimizer = torch.optim.SGD([query], lr=0.1)

    def run(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.scaled_dot_product_attention(query, x, x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    with use_threads(2):
        step = ftax.step(run, (torch.randn(2, 4, 64, 16),))
        assert make_tape(load_model(step)).checks.judge_outputs().equal


def test_truth_of_a_tensor_is_a_host_read() -> None:
    taped = make_tape(load_inside(lambda x: x + 1 if bool((x == x).all()) else x))
    assert taped.checks.details["host_reads"] == ["aten::is_nonzero in gate"]


def test_model_without_host_reads_has_no_warning(mlp: LoadedModel) -> None:
    taped = make_tape(mlp)
    assert taped.checks.details["host_reads"] == []
    assert taped.warnings == ()


def test_value_read_back_and_used_is_refused() -> None:
    text = refusal(load_inside(lambda x: x * x.sum().item()))
    assert "a second input" in text
    assert ".item()" in text


def test_value_read_back_and_written_into_the_output_is_refused() -> None:
    # The output is the input itself: compared without a copy, it would always equal itself.
    text = refusal(load_inside(lambda x: x.add_(x.sum().item())))
    assert "a second input" in text


@pytest.mark.parametrize(
    ("function", "refused"),
    [
        (lambda x, w: x.to("cpu", non_blocking=True, copy=True) + w, True),
        (lambda x, w: x.to("cpu", torch.float64, non_blocking=True) + w, True),
        (lambda x, w: w.copy_(x, non_blocking=True) + 1, True),
        (lambda x, w: torch.empty(4, device="cpu").copy_(x, True) + w, True),
        (lambda x, w: w.copy_(x) + x.to("cpu", copy=True), False),
        (lambda x, w: x.to(torch.float64, non_blocking=True) + w, False),
        (lambda x, w: x.clone().copy_(w, True) + 1, False),
    ],
)
def test_a_copy_to_the_host_that_something_unseen_waits_for_is_refused(
    function: Any, refused: bool
) -> None:
    pinned = torch.zeros(4)  # here x stands for a tensor of a GPU
    tape = make_tape(load_function(lambda x: function(x, pinned), normal(4))).tape
    expected = pytest.raises(UnsupportedError, match="without waiting")
    with expected if refused else nullcontext():
        refuse_unawaited_copies(tape)


def test_copies_to_the_host_are_found_where_they_stand() -> None:
    found = [
        list(find_copies_to_host(make_tape(load_inside(function)).tape.calls))
        for function in (lambda x: x.to("cpu", torch.float64) + 1, lambda x: x.double() + 1)
    ]
    assert found == [["aten::to.device in gate"], []]


def test_branch_on_data_is_refused_with_operator_and_module() -> None:
    ones = torch.ones(3, 4)
    text = refusal(load_inside(lambda x: x * 2 if x.sum() > 0 else x - 1, ones, -ones))
    assert "control flow depends on the data" in text
    assert "in gate" in text
    assert "aten::mul.Tensor" in text
    assert "aten::sub.Tensor" in text


def test_branch_that_ends_the_model_early_is_refused() -> None:
    class Early(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.neg()
            return y if y.sum() < 0 else y.exp()

    text = refusal(load_model(Early(), inputs=torch.ones(3), check_inputs=-torch.ones(3)))
    assert "the end was recorded and aten::exp was seen" in text


def test_data_attribute_is_refused_with_operator_and_module() -> None:
    text = refusal(load_inside(lambda x: (x * 2).data + 1))
    assert ".data" in text
    assert "at operator aten::add.Tensor" in text
    assert "module gate" in text


def test_gradients_that_are_left_on_are_refused() -> None:
    def leave_on(x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(True)
        return x + 1

    assert "leaves the grad mode changed" in refusal(load_inside(leave_on))


def test_detour_through_numpy_is_refused() -> None:
    text = refusal(load_inside(lambda x: torch.from_numpy(np.square(x.numpy())) + 1))
    assert "a second input" in text
    assert ".numpy()" in text


def test_output_that_no_operator_made_is_refused() -> None:
    text = refusal(load_inside(lambda x: (x * 2, (x * 2).data)))
    assert "output 1 of shape [3, 4]" in text


def run_in_autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ x.T).float()


def run_outside_inference_mode(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode(False), torch.no_grad():
        return x + 1


def run_deterministically(x: torch.Tensor) -> torch.Tensor:
    torch.use_deterministic_algorithms(True)
    try:
        return x + 1
    finally:
        torch.use_deterministic_algorithms(False)


def run_plain_attention(x: torch.Tensor) -> torch.Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(x[None], x[None], x[None])


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (run_in_autocast, "autocast on the CPU"),
        (run_outside_inference_mode, "inference mode"),
        (run_deterministically, "deterministic algorithms"),
        (run_plain_attention, "attention back ends"),
    ],
)
def test_forward_that_changes_how_torch_runs_is_refused(function: Any, words: str) -> None:
    text = refusal(load_inside(function))
    assert words in text
    assert "module gate" in text


def test_state_kept_between_calls_is_refused() -> None:
    class Counter(nn.Module):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * self.calls

    assert "gives other outputs than eager" in refusal(load_model(Counter(), inputs=normal(3, 4)))


def test_exception_of_the_model_is_passed_on_as_the_models_with_its_line() -> None:
    said = r"the model raised RuntimeError: shape '\[5, 5\]'.* \(test_tape_checks.py, line \d+\)$"
    with pytest.raises(RunnerError, match=said):
        make_tape(load_function(lambda x: x.reshape(5, 5)))


def test_nan_outputs_are_warned_of() -> None:
    taped = make_tape(load_function(lambda x: x / 0 * 0))
    assert any("NaN" in warning for warning in taped.warnings)
    assert taped.checks.outputs.bitwise
    assert taped.checks.outputs.has_nan


def test_writing_into_an_input_is_warned_of_and_undone() -> None:
    loaded = load_function(lambda x: x.add_(1).mul_(2))
    before = [t.clone() for t in (*loaded.flat_inputs(), *loaded.flat_check_inputs())]
    taped = make_tape(loaded)
    assert any("writes into its inputs or weights (aten::add_" in w for w in taped.warnings)
    after = [*loaded.flat_inputs(), *loaded.flat_check_inputs()]
    assert all(map(torch.equal, after, before))


def test_buffers_are_as_before_after_all_checks() -> None:
    loaded = load_model(nn.BatchNorm1d(4), inputs=normal(8, 4))
    loaded.module.train()  # after loading, which puts it in eval mode
    before = {name: buffer.clone() for name, buffer in loaded.module.named_buffers()}
    workspace = Workspace(loaded)
    assert "aten::batch_norm" in workspace.taped.tape.operators
    prepare_flat(workspace, "python")
    for name, buffer in loaded.module.named_buffers():
        assert torch.equal(buffer, before[name]), name
    assert before["num_batches_tracked"] == 0


def test_random_state_of_the_caller_is_left_alone(mlp: LoadedModel) -> None:
    before = torch.get_rng_state()
    make_tape(mlp)
    make_tape(load_function(lambda x: F.dropout(x, training=True)))
    assert torch.equal(torch.get_rng_state(), before)


def test_reference_does_not_depend_on_the_callers_seed() -> None:
    references = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            workspace = Workspace(load_function(lambda x: F.dropout(x, training=True)))
            references.append(workspace.reference[0])
    assert torch.equal(*references)


def test_captured_tensors_are_counted_and_shared() -> None:
    table = normal(3, 4, seed=5)
    loaded = load_function(lambda x: x + table)
    taped = make_tape(loaded)
    assert taped.checks.details["captured_tensors"] == 1
    before = taped.tape.run()[0]
    table.add_(1)
    assert torch.allclose(taped.tape.run()[0], before + 1)


@pytest.fixture
def noisy() -> Iterator[Any]:
    """An operator that is not the same twice, as sums in any order are: by so much."""
    operators = library.Library("ftax_test_noisy", "DEF")
    calls = count()

    def add(x: torch.Tensor, far: float) -> torch.Tensor:
        return x * (1 + far * (next(calls) % 3))

    operators.define("add(Tensor x, float far) -> Tensor")
    operators.impl("add", add, "CompositeExplicitAutograd")
    yield torch.ops.ftax_test_noisy.add
    operators._destroy()


def test_what_eager_does_not_give_twice_a_replay_need_not_give(noisy: Any) -> None:
    taped = make_tape(load_inside(lambda x: (noisy(x, 0.1), x + 1)))
    assert taped.checks.outputs.describe() == "differs as eager from itself"
    assert make_tape(load_inside(lambda x: x + noisy(x, 0.0))).checks.outputs.bitwise


def test_what_eager_does_not_give_twice_on_the_second_input_only(noisy: Any) -> None:
    """As a token that is chosen there by a hair."""
    loaded = load_inside(
        lambda x: (x > 1).to(x) * noisy(x, 0.1), torch.zeros(3, 4), torch.full((3, 4), 2.0)
    )
    workspace = Workspace(loaded)
    for place in (("eager", "python"), ("flat", "python"), ("eager", "cpp")):
        found = find_runtime(place[0]).prepare(workspace, place[1]).checks
        assert found.outputs.bitwise
        assert found.second_input.describe() == "differs as eager from itself"
    steady = load_inside(lambda x: x * x.sum().item(), torch.ones(3, 4), torch.full((3, 4), 2.0))
    assert "on a second input" in refusal(steady)


def test_an_operator_that_is_not_the_same_twice_is_named(noisy: Any) -> None:
    """Where outputs differ beyond what its noise allows."""
    calls = count()

    def read(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pushed = x.add(1)[:, 1:].mul_(2)  # in place, in memory that is the same
        return noisy(pushed, 0.1), x * x.sum().item()

    said = refusal(load_inside(read))
    assert "ftax_test_noisy::add of 3x3 gives other bits in another run" in said
    assert "use_deterministic_algorithms" in said and ".item()" in said

    # Python that goes on is no operator that does not repeat itself, nor is memory as it was found.
    def go_on(x: torch.Tensor) -> torch.Tensor:
        found = torch.empty(64).sum() * 0
        return x * torch.tensor(float(next(calls))) + x.nan_to_num() + found.nan_to_num()

    assert "gives other bits" not in refusal(load_inside(go_on))


def test_noise_hides_no_error(noisy: Any) -> None:
    """Of a value that is baked in: the other output is the same each time, or differs by more than
    eager's do."""
    calls = count()
    models: tuple[Callable[[torch.Tensor], Any], ...] = (
        lambda x: (noisy(x, 0.1), x * x.sum().item()),
        lambda x: noisy(x, 0.01) * (10 + x.sum().item()),
        # Nor within one output, beside one element that is not the same twice.
        lambda x: torch.cat([x * x.sum().item(), noisy(x[:1] * 1e3, 0.1)]),
        lambda x: torch.cat([(x * 100 * x.sum().item()).long(), noisy(x[:1] * 1e3, 1.0).long()]),
        # Python goes on, and a replay does not: not the same twice in eager alone.
        lambda x: x * (1 + next(calls) % 3),
    )
    for model in models:
        assert "outputs differ" in refusal(load_inside(model))
