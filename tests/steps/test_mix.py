"""A mix refuses what is none, tells its parts apart, and has each find what another one writes as
it was."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import ftax
from ftax import InvalidArgumentError, _core
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import load_parts, measuring, name_parts
from ftax.steps.load import load_model
from ftax.steps.mix import MixGivenError, compute_shares, tell_apart
from ftax.steps.setting import Setting

QUICK = ftax.Plan(rounds=2, warmup=2, round_ms=1.0)
STEP = ftax.step(torch.sin, (torch.ones(3),))


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([], "a mix has no parts: give"),
        (3, "are no pairs: give ftax.mix"),
        ([STEP], "are no pairs"),
        ([("bert-base", 1)], "part 0 of a mix is 'bert-base': give a step .*load_model"),
        ([(nn.Linear(2, 2), 1)], "part 0 of a mix is a module without inputs: give a step"),
        ([(torch.sin, 1)], "part 0 of a mix is a builtin_function_or_method: give a step"),
        ([(STEP, 0)], "the weight of part 0 is 0: give a finite number above 0"),
        ([(STEP, -1.0)], r"part 0 is -1\.0"),
        ([(STEP, math.nan)], "part 0 is nan"),
        ([(STEP, math.inf)], "part 0 is inf"),
        ([(STEP, 10**400)], "part 0 is 10+: give a finite number"),
        ([(STEP, True)], "part 0 is True"),
        ([(STEP, "1")], "part 0 is '1'"),
        ([(STEP, 1), (STEP, 2)], "part 1 of a mix is there already: .*the sum of its weights"),
    ],
)
def test_what_is_no_mix_is_refused_with_the_remedy(parts: Any, words: str):
    with pytest.raises(InvalidArgumentError, match=words):
        ftax.mix(parts)


def test_shares_sum_to_one_whatever_the_unit():
    assert ftax.mix([(STEP, 70), (ftax.step(torch.cos, (torch.ones(3),)), 30)]).shares == (0.7, 0.3)
    assert compute_shares([1e308, 1e308, 1e308]) == pytest.approx([1 / 3] * 3)
    assert compute_shares([5e-324, 5e-324]) == (0.5, 0.5)


def test_parts_are_told_apart_by_what_differs():
    assert tell_apart([("a", 8, 1, 1), ("b", 16, 1, 1)]) == ("a", "b")
    assert tell_apart([("a", 8, 1, 4), ("a", 16, 1, 8)]) == ("a, 8 tokens", "a, 16 tokens")
    assert tell_apart([("a", None, 1, 1), ("a", None, 4, 1)]) == ("a, batch 1", "a, batch 4")
    assert tell_apart([("a", 8, 1, 1)] * 2) == ("a (1)", "a (2)")


@pytest.mark.parametrize(
    "take",
    [
        ftax.load_model,
        ftax.cpp_bench,
        ftax.py_bench,
        ftax.compare_runtimes,
        ftax.trace,
        lambda mix: ftax.knee(mix, runtime="eager", host="python"),
    ],
)
def test_whoever_takes_one_step_refuses_a_mix(take: Any):
    with pytest.raises(InvalidArgumentError, match=r"mine is a mix of 1 part, which ftax.tax and"):
        take(ftax.mix([(STEP, 1)], name="mine"))


def load(mix: ftax.Mix, **options: Any) -> tuple[Any, ...]:
    return load_parts(mix, None, None, Setting(**options))[1]


def test_a_pair_of_module_and_inputs_is_a_part_and_left_as_it_was():
    module = nn.Linear(2, 2)
    mix = ftax.mix([((module, torch.ones(1, 2)), 1), ((module, torch.ones(5, 2)), 1)])
    with measuring(mix, Setting()):
        parts = load(mix)
        assert name_parts(parts) == ("Linear, batch 1", "Linear, batch 5")
        assert not module.training and not module.weight.requires_grad
    assert module.training and module.weight.requires_grad


def test_inputs_beside_a_mix_and_threads_that_differ_are_refused():
    mix = ftax.mix([(STEP, 1)])
    with pytest.raises(InvalidArgumentError, match="whose parts bring their inputs"):
        ftax.tax(mix, torch.ones(3))  # type: ignore[call-overload]
    module = nn.Linear(2, 2)
    parts = [
        (ftax.load_model(module, inputs=torch.ones(1, 2), threads=threads), 1) for threads in (1, 2)
    ]
    with pytest.raises(InvalidArgumentError, match="loaded for 1 and 2 threads"):
        ftax.tax(ftax.mix(parts))


def test_parts_of_different_ladders_are_refused_with_the_remedy():
    module, x = nn.Linear(2, 2), torch.ones(1, 2)
    step = ftax.train(module, lambda m, x: m(x).sum(), _make_sgd(module), (x,), name="train")
    for other, words in (
        (nn.Linear(2, 2), "Linear has eager, train has autograd.: give parts of one kind$"),
        (module, "writes what Linear reads: .*ftax.step"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            ftax.tax(ftax.mix([((other, x), 1), (step, 1)]), progress=False)
    assert module.weight.requires_grad and module.weight.grad is None
    prefill = load_model("llama", tiny=True, sequence=4)
    parts = [(prefill, 1), (ftax.decode(prefill.module, context=4, tokens=1), 8)]
    with pytest.raises(InvalidArgumentError, match="through_library=None"):
        ftax.tax(ftax.mix(parts), progress=False)


def test_parts_of_different_devices_are_refused():
    parts = [ftax.load_model(nn.Linear(2, 2), inputs=torch.ones(1, 2)) for _ in range(2)]
    elsewhere = replace(parts[1], setting=replace(parts[1].setting, device="cuda:0"))
    with pytest.raises(InvalidArgumentError, match="on cpu and cuda:0: give parts of one device"):
        load(ftax.mix([(parts[0], 1), (elsewhere, 1)]))


def _make_sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.1)


@pytest.mark.parametrize("size", [1, 1 << 16], ids=["before each sample", "once a round"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_a_step_finds_what_another_one_writes_as_it_was(size: int, dtype: torch.dtype):
    memory = torch.zeros(size, dtype=dtype)
    looked, seen = memory.numpy(), []  # no operator call: only the watched one knows the tensor

    def write(x: torch.Tensor) -> torch.Tensor:
        return memory.add_(1)[:1] + x

    def read(x: torch.Tensor) -> torch.Tensor:
        seen.append(float(looked[0]))
        return x + 1

    x = torch.ones(1)
    with torch.inference_mode():
        mix = ftax.mix([(ftax.step(write, (x,)), 1), (ftax.step(read, (x,)), 1)])
        with measuring(mix, Setting()):
            runners = [
                find_runtime("eager").prepare(Workspace(part), "python").runner
                for part in load(mix)
            ]
            seen.clear()
            result = _core.measure_rounds(runners, QUICK.to_core())
            found = [*seen]  # which is put back too
    assert [item.error for item in result.runners] == ["", ""]
    assert len(found) > 4 and set(found) == {0.0}
    assert float(memory[0]) == 0.0


def test_a_forward_pass_that_reads_what_a_step_writes_is_refused():
    module = nn.Linear(2, 2).requires_grad_(False)

    def write(x: torch.Tensor) -> torch.Tensor:
        return module.bias.add_(x[0])

    x = torch.ones(1, 2)
    with torch.inference_mode():
        step = ftax.step(write, (x,))
        with pytest.raises(InvalidArgumentError, match=r"writes what Linear reads: .*ftax.step"):
            ftax.tax(ftax.mix([(step, 1), ((module, x), 1)]), progress=False)


def test_a_name_in_code_may_give_a_mix_which_one_step_is_not(tmp_path, monkeypatch):
    (tmp_path / "work.py").write_text(
        "import ftax, torch\nmix = ftax.mix([(ftax.step(torch.sin, (torch.ones(3),)), 1)])\n"
    )
    monkeypatch.chdir(tmp_path)
    mix, (part,) = load_parts("work.py:mix", None, None, Setting())
    assert isinstance(mix, ftax.Mix) and part.name == "sin"
    with pytest.raises(MixGivenError, match=r"ftax.tax and `ftax tax` alone"):
        ftax.load_model("work.py:mix")
    with pytest.raises(MixGivenError):
        ftax.compare_runtimes("work.py:mix")
