"""A step is found out by running it: what it writes is put back, what Python keeps needs `reset`,
and whoever measures it leaves everything as it was."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ftax
from ftax import InvalidArgumentError, RunnerError, UnsupportedError
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.step_module import StepModule
from ftax.timing.checks import Checks
from support.small_models import normal

QUICK = ftax.Plan(rounds=2, warmup=2, round_ms=2.0)


def find_written(loaded: LoadedModel) -> list[torch.Tensor]:
    assert isinstance(loaded.module, StepModule)
    return loaded.module.written


def holds(tensors: list[torch.Tensor], wanted: torch.Tensor) -> bool:
    place = wanted.untyped_storage().data_ptr()
    return any(tensor.untyped_storage().data_ptr() == place for tensor in tensors)


def measure(step: ftax.Step, **options: Any) -> ftax.Measurement:
    return ftax.py_bench(step, plan=QUICK, progress=False, **options)


def test_autocast_around_the_caller_is_part_of_the_cell() -> None:
    layer, x = nn.Linear(4, 4), normal(3, 4)
    assert "autocast" not in load_model(layer, inputs=(x,)).options
    with torch.autocast("cpu", torch.bfloat16):
        for what in (load_model(layer, inputs=(x,)), load_model(ftax.step(layer, (x,)))):
            assert what.options["autocast"] == "cpu bfloat16"


def test_a_function_is_a_step_with_the_name_units_and_mode_of_its_caller():
    step = ftax.step(torch.sin, (torch.ones(3),), units=3)
    with torch.no_grad():
        quiet = load_model(step)
    loaded = load_model(step)
    assert (loaded.name, loaded.kind, loaded.units) == ("sin", "step", 3)
    assert loaded.setting.grad_mode == "grad"
    assert quiet.setting.grad_mode == "no_grad"
    with torch.inference_mode():
        assert load_model(step).setting.grad_mode == "inference"
    cell = measure(step).cell
    assert (cell.step, cell.units, cell.grad_mode) == ("step", 3, "grad")


def test_a_decorated_function_stays_a_function():
    @ftax.step(inputs=(torch.ones(3),), name="twice")
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert isinstance(double, ftax.Step)
    assert double.name == "twice"
    assert torch.equal(double(torch.ones(2)), torch.full((2,), 2.0))


def write_directly(memory: torch.Tensor, x: torch.Tensor) -> None:
    memory.add_(x.sum())


def write_through_a_view(memory: torch.Tensor, x: torch.Tensor) -> None:
    memory.view(-1)[2:].mul_(2)


def write_by_index(memory: torch.Tensor, x: torch.Tensor) -> None:
    memory[0] = x[0]


def write_data(memory: torch.Tensor, x: torch.Tensor) -> None:
    memory.data.add_(1)


def write_as_output(memory: torch.Tensor, x: torch.Tensor) -> None:
    torch.add(memory, 1, out=memory)


@pytest.mark.parametrize(
    "write",
    [write_directly, write_through_a_view, write_by_index, write_data, write_as_output],
)
def test_what_is_written_is_found_by_its_memory(write: Callable[..., None]):
    memory = torch.arange(6.0).view(2, 3)
    before = memory.clone()

    def run(x: torch.Tensor) -> torch.Tensor:
        write(memory, x)
        return memory + x

    step = ftax.step(run, (torch.ones(2, 3),))
    loaded = load_model(step)
    assert holds(find_written(loaded), memory)
    assert torch.equal(memory, before)
    receipt = ftax.tax(step, plan=QUICK, runtimes="none", operators=False, progress=False)
    found = [Checks.of(rung.checks).judge_outputs().words for rung in receipt.rungs]
    assert found == ["bitwise equal"] * 3
    assert torch.equal(memory, before)


def test_what_the_step_makes_itself_is_no_state():
    def run(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(3)
        y.add_(x)
        y[0] = 5
        return y.relu_()

    assert find_written(load_model(ftax.step(run, (torch.ones(3),)))) == []


def test_state_that_is_made_at_the_first_call_is_found():
    kept: dict[str, torch.Tensor] = {}

    def run(x: torch.Tensor) -> torch.Tensor:
        if "sum" not in kept:
            kept["sum"] = torch.zeros(3)
        return kept["sum"].add_(x) + 0

    loaded = load_model(ftax.step(run, (torch.ones(3),)))
    assert holds(find_written(loaded), kept["sum"])


def test_a_position_in_a_tensor_is_put_back_before_each_run():
    position, memory = torch.zeros(1, dtype=torch.int64), torch.zeros(4, 2)

    def run(x: torch.Tensor) -> torch.Tensor:
        memory.index_copy_(0, position, x)  # would run past the end at the fifth run
        position.add_(1)
        return memory.sum(0)

    step = ftax.step(run, (torch.ones(1, 2),))
    receipt = ftax.tax(step, plan=QUICK, runtimes="none", progress=False)
    places = ["eager/python", "tape-with-autograd/cpp", "eager/cpp"]
    assert [str(rung.place) for rung in receipt.rungs] == places
    assert not any("not timed" in warning for warning in receipt.warnings)
    assert int(position) == 0
    assert torch.equal(memory, torch.zeros(4, 2))


def grow(kept: list[torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def run(x: torch.Tensor) -> torch.Tensor:
        kept.append(x * 2)
        return torch.cat(kept)

    return run


def test_work_that_changes_is_refused_with_the_remedy():
    with pytest.raises(UnsupportedError, match=r"aten::cat on .* more.*first made.*reset="):
        load_model(ftax.step(grow([]), (torch.ones(2, 3),)))


def test_reset_brings_back_what_python_keeps():
    kept: list[torch.Tensor] = []
    step = ftax.step(grow(kept), (torch.ones(2, 3),), reset=kept.clear)
    receipt = ftax.tax(step, plan=QUICK, runtimes="none", operators=False, progress=False)
    assert len(receipt.rungs) == 3
    assert not any("not the same work" in warning for warning in receipt.warnings)


def test_a_reset_that_raises_is_told():
    calls = 0

    def reset() -> None:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise ValueError("no more")

    with pytest.raises(RunnerError, match="being reset, raised ValueError: no more"):
        measure(ftax.step(torch.sin, (torch.ones(3),), reset=reset))


def test_units_may_be_a_number_of_numpy():
    units = ftax.step(torch.sin, units=np.int64(8)).units
    assert units == 8
    assert type(units) is int


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ftax.step(3), InvalidArgumentError, "cannot be called"),
        (
            lambda: ftax.step(torch.sin, name="a\nb"),
            InvalidArgumentError,
            r"name is .a.nb.: give a line",
        ),
        (lambda: ftax.step(torch.sin, name=5), InvalidArgumentError, "name is 5: give a line"),
        (lambda: ftax.step(torch.sin, units=0), InvalidArgumentError, "units is 0"),
        (lambda: ftax.step(torch.sin, reset=3), InvalidArgumentError, "reset is an int"),
        (lambda: ftax.step(torch.sin, state=[1]), InvalidArgumentError, "state holds"),
        (lambda: ftax.step(torch.sin, state=None), InvalidArgumentError, "state is a NoneType"),
        (lambda: ftax.step(torch.sin, state=torch.ones(2)), InvalidArgumentError, r"\(tensor,\)"),
        (lambda: ftax.step(lambda: 1 / 0), RunnerError, "call 1 .*ZeroDivisionError"),
    ],
)
def test_what_is_no_step_is_refused_in_words(
    make: Callable[[], Any], error: type[Exception], words: str
):
    with pytest.raises(error, match=words):
        load_model(make())


def test_a_failure_in_a_later_call_is_told():
    calls = 0

    def run(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise ValueError("third")
        return x + 1

    with pytest.raises(RunnerError, match=r"call 3 of the step run: .*ValueError: third"):
        load_model(ftax.step(run, (torch.ones(3),)))


def test_what_a_loss_keeps_in_python_is_brought_back_by_reset():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[int] = []

    def loss(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        seen.append(len(seen))
        return sum((module(x).sum() for _ in seen), start=torch.zeros(()))

    with pytest.raises(UnsupportedError, match=r"changes seen \(test_step.py, line \d+\): bring"):
        load_model(ftax.train(model, loss, optimizer, (torch.ones(2, 3),)))
    step = ftax.train(model, loss, optimizer, (torch.ones(2, 3),), reset=seen.clear)
    assert ftax.py_bench(step, plan=QUICK).cell.step == "train"
    assert not seen  # as it was found


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda m, o, x: ftax.train(m, lambda m, x: (m(x),), o, x), "loss returns a tuple: give"),
        (lambda m, o, x: ftax.train(m, lambda m, x: m(x), o, x), "a tensor of 2 numbers: give one"),
        (lambda m, o, x: ftax.train(m, lambda m, x: m(x).sum(), o, None), "batch is a NoneType"),
        (lambda m, o, x: ftax.train(m, lambda m, x: m(x).sum(), o, x[:0]), "batch has no samples"),
    ],
)
def test_what_is_no_training_step_is_refused_in_words(make: Callable[..., Any], words: str):
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(InvalidArgumentError, match=words):
        load_model(make(model, optimizer, torch.ones(2, 3)))


def test_a_step_of_a_lazy_module_says_what_to_do():
    model = nn.Sequential(nn.LazyLinear(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = ftax.train(model, lambda m, x: m(x).sum(), optimizer, torch.ones(2, 3))
    with pytest.raises(UnsupportedError, match=r"lazy \(LazyLinear\).*call the module once"):
        load_model(step)


def test_a_label_that_marks_nothing_is_drawn_as_it_is():
    labels = torch.tensor([-100, 0, 1, 2, -100, 1])
    step = ftax.step(lambda x: x + 1, labels)
    drawn = load_model(step).check_args[0]
    assert set(drawn.tolist()) <= set(labels.tolist())
    assert not torch.equal(drawn, labels)


def test_a_mode_that_a_step_does_not_have_is_refused():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = ftax.train(model, lambda module, x: module(x).sum(), optimizer, (torch.ones(2, 3),))
    with pytest.raises(InvalidArgumentError, match="a train step runs in grad mode"):
        load_model(step, grad_mode="no_grad")
    with pytest.raises(InvalidArgumentError, match="a train step runs in grad mode: leave it out"):
        load_model("llama", tiny=True, step="train", grad_mode="no_grad")
    with pytest.raises(InvalidArgumentError, match="a decode step runs in inference mode"):
        load_model("llama", tiny=True, step="decode", grad_mode="no_grad")


def test_an_output_without_memory_is_refused():
    with pytest.raises(UnsupportedError, match="on the meta device"):
        load_model(ftax.step(lambda x: x.to("meta"), (torch.ones(3),)))


def test_options_of_a_model_are_refused():
    step = ftax.step(torch.sin, (torch.ones(3),))
    with pytest.raises(InvalidArgumentError, match="a step brings its inputs"):
        load_model(step, inputs=torch.ones(3))
    with pytest.raises(InvalidArgumentError, match="tiny is True, but a step"):
        load_model(step, tiny=True)
    with pytest.raises(InvalidArgumentError, match="grad_mode is 'grad', which is of steps"):
        load_model("bert-base", tiny=True, grad_mode="grad")


def test_a_runtime_of_modules_says_why_it_cannot_take_part():
    step = ftax.step(torch.sin, (torch.ones(3),))
    receipt = ftax.tax(
        step, plan=QUICK, runtimes=["torchscript"], hosts=["cpp"], operators=False, progress=False
    )
    (missing,) = receipt.unavailable
    assert "forward pass of a module" in missing.reason


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(3))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.add_(x)
        return (self.weight * x).sum()


def test_everything_is_left_as_it_was_found():
    model = Counting()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    step = ftax.train(model, lambda module, x: module(x), optimizer, (torch.ones(3),))
    random = torch.get_rng_state()
    measure(step)
    assert torch.equal(model.weight, torch.ones(3))
    assert torch.equal(model.seen, torch.zeros(3))
    assert model.calls == 0
    assert model.weight.grad is None
    assert not optimizer.state
    assert model.weight.requires_grad
    assert model.training
    assert torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), random)


def test_state_is_put_back_also_where_measuring_fails():
    model = Counting()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    calls = 0

    def run(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls > 14:
            raise ValueError("enough")
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        return loss

    with pytest.raises(RunnerError, match="enough"):
        measure(ftax.step(run, (torch.ones(3),)))
    assert torch.equal(model.weight, torch.ones(3))
    assert model.calls == 0


def test_state_is_put_back_also_where_the_step_is_refused():
    model = Counting()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = ftax.train(model, lambda module, x: module(x), optimizer, (torch.ones(3),))
    calls = 0

    def run(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return step(x)

    with pytest.raises(KeyboardInterrupt):
        load_model(ftax.step(run, (torch.ones(3),)))
    assert torch.equal(model.weight, torch.ones(3))
    assert torch.equal(model.seen, torch.zeros(3))
    assert model.weight.grad is None
    assert model.calls == 0


def test_gradients_that_were_there_are_there_again():
    model, loose = Counting(), torch.ones(3, requires_grad=True)
    model(torch.ones(3)).backward()
    model.seen.zero_()
    gradient = model.weight.grad
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x) + loose.sum()
        loss.backward()
        optimizer.step()
        return loss

    measure(ftax.step(run, (torch.ones(3),)))
    assert model.weight.grad is gradient
    assert torch.equal(gradient, torch.ones(3))
    assert loose.grad is None


def test_what_python_keeps_of_optimizers_and_schedules_is_as_it_was():
    weight = nn.Parameter(torch.ones(4, 2))
    optimizer = torch.optim.SparseAdam([weight], lr=0.1)  # which counts its steps in Python
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def run(ids: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.embedding(ids, weight, sparse=True).sum()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    ids = torch.arange(3)
    run(ids)
    epoch, rate = schedule.last_epoch, optimizer.param_groups[0]["lr"]
    measure(ftax.step(run, (ids,)))
    assert optimizer.state[weight]["step"] == 1
    assert (schedule.last_epoch, optimizer.param_groups[0]["lr"]) == (epoch, rate)


def test_what_a_step_does_to_its_modules_is_undone():
    model = Counting()

    def run(x: torch.Tensor) -> torch.Tensor:
        model.eval().requires_grad_(False)
        model.register_forward_hook(lambda *_: None)
        model.weight.data = model.weight.data * 1
        return model(x)

    memory = model.weight.data_ptr()
    measure(ftax.step(run, (torch.ones(3),)))
    assert model.training
    assert model.weight.requires_grad
    assert not model._forward_hooks
    assert model.weight.data_ptr() == memory


def test_weights_are_those_of_the_module_after_a_functional_call():
    model = nn.Linear(3, 3)
    weight = model.weight
    values = {name: item.detach() for name, item in model.named_parameters()}

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, weights, (x,)).sum()

    measure(ftax.step(lambda x: torch.func.grad(loss)(values, x), (torch.ones(2, 3),)))
    assert model.weight is weight


def test_inputs_that_need_gradients_are_checked_on_others_that_do():
    x = torch.randn(3, requires_grad=True)

    def run(x: torch.Tensor) -> torch.Tensor:
        loss = x.square().sum()
        loss.backward()
        return loss

    step = ftax.step(run, (x,))
    receipt = ftax.tax(step, plan=QUICK, runtimes="none", operators=False, progress=False)
    found = [Checks.of(rung.checks).judge_outputs().words for rung in receipt.rungs]
    assert found == ["bitwise equal"] * 3
    assert x.grad is None


def test_an_input_that_is_written_is_compared_as_the_one_that_was_given():
    x = torch.randn(3)
    step = ftax.step(lambda x: x.mul_(1.5) + 1, (x,))
    receipt = ftax.tax(step, plan=QUICK, runtimes="none", operators=False, progress=False)
    found = [Checks.of(rung.checks).judge_outputs().words for rung in receipt.rungs]
    assert found == ["bitwise equal"] * 3


def test_a_caller_in_inference_mode_can_have_training_measured():
    model = Counting()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = ftax.train(model, lambda module, x: module(x), optimizer, (torch.randn(3),))
    with torch.inference_mode():
        assert len(ftax.tax(step, plan=QUICK, runtimes="none", progress=False).rungs) == 3


def test_a_generator_of_its_own_is_put_back():
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    step = ftax.step(lambda x: x + torch.rand(3, generator=generator), (torch.ones(3),))
    receipt = ftax.tax(step, plan=QUICK, runtimes="none", operators=False, progress=False)
    assert len(receipt.rungs) == 3
    assert torch.equal(generator.get_state(), before)


def test_memory_that_grows_is_said():
    losses: list[torch.Tensor] = []
    last: list[torch.Tensor] = []

    def run(x: torch.Tensor) -> torch.Tensor:
        losses.append((x * 2).sum())
        return losses[-1]

    def keep_few(x: torch.Tensor) -> torch.Tensor:
        last.append((x * 2).sum())
        del last[:-2]
        return last[-1]

    x = torch.ones(3, requires_grad=True)
    assert any("memory grows" in warning for warning in load_model(ftax.step(run, (x,))).warnings)
    for steady in (
        ftax.step(run, (x,), reset=losses.clear),
        ftax.step(keep_few, (x,)),
        ftax.step(lambda x: nn.Linear(3, 3)(x), (x,)),
    ):
        assert not any("memory grows" in warning for warning in load_model(steady).warnings)


def test_other_outputs_of_a_later_call_name_the_remedy():
    factor = [1.0]

    def run(x: torch.Tensor) -> torch.Tensor:
        factor[0] += 1
        return x * factor[0]

    step = ftax.step(run, (torch.ones(3),))
    receipt = ftax.tax(step, plan=QUICK, runtimes="none", operators=False, progress=False)
    assert any(
        re.search(r"Each call changes factor \(test_step.py, line \d+\): bring that back", word)
        for word in receipt.rungs[0].warnings
    )
    assert factor == [1.0]


def test_counting_memory_makes_torch_complain_of_nothing(capfd: pytest.CaptureFixture[str]):
    model = Counting()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    step = ftax.train(model, lambda module, x: module(x), optimizer, (torch.ones(3),))
    ftax.tax(step, plan=QUICK, runtimes="none", operators=False, progress=False)
    assert "profil" not in capfd.readouterr().err
