"""The user's own code by its name: what it gives, what is refused, and who finds it again."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch

import ftax
from ftax.errors import InvalidArgumentError, RunnerError, UnsupportedError
from ftax.ladders.look import TraceJob
from ftax.runtimes.cache import make_key
from ftax.steps.load import load_model
from ftax.steps.load_code import find_code, is_code
from ftax.steps.setting import Setting
from ftax.sweeps.processes import BenchJob, run_repeatedly
from ftax.timing.plan import Plan
from support.small_models import same_bits

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layer = nn.Linear(width, 4)

    def forward(self, x):
        return self.layer(x).relu()

class Fixed:
    @staticmethod
    def make():
        return Net(), torch.randn(2, 8)

net = Net()
number = 3
pair = (net, torch.randn(2, 8))

def make():
    return Net(), torch.randn(2, 8)

def make_list():
    return [Net(), (torch.randn(2, 8),)]

def make_sized():
    return Net(), lambda batch: torch.randn(batch, 8)

def make_module():
    return Net()

def make_threads():
    torch.set_num_threads(3)
    return make()

def make_number():
    return 3

def double(x):
    return 2 * x

def make_function():
    return double, torch.ones(2, 3)

def make_pair_of_other():
    return torch.randn(2, 8), Net()

def needs(width):
    return Net(width)

def breaks():
    raise KeyError("gone")

def leaves():
    raise SystemExit(2)
"""
FORMS = (
    "name a module, a step, a capture, or a function without arguments that returns one of them, "
    "or a pair of a module or a function and its inputs"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of its own to be in, with code that no other test has imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "service.py").write_text(CODE)
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("from my_package.parts import make\n")
    (package / "parts.py").write_text(CODE)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("service", "my_package", "other", "json_like"):
            del sys.modules[name]


@pytest.mark.parametrize(
    "name",
    ["service:make", "service:make_list", "./service.py:make", "service.py:Fixed.make",
     "my_package.model:make", "my_package/parts.py:make"],
)  # fmt: skip
def test_a_name_gives_a_module_with_its_inputs(folder, name):
    loaded = load_model(name)
    assert (loaded.name, loaded.batch, loaded.dtype, loaded.device) == ("Net", 2, "fp32", "cpu")
    assert loaded.call().shape == (2, 4)
    assert loaded.source.endswith(f"of {name}")
    assert loaded.reproducible


def test_a_name_gives_a_function_with_its_inputs(folder):
    loaded = load_model("service:make_function")
    assert (loaded.name, loaded.kind, loaded.reproducible) == ("double", "step", True)
    assert torch.equal(loaded.call()[0][0], torch.full((2, 3), 2.0))
    loaded = load_model("service:make_function", inputs=torch.ones(5, 3))
    assert (loaded.call()[0][0].shape, loaded.reproducible) == ((5, 3), False)


def test_the_same_weights_and_inputs_come_again_from_anywhere(folder, monkeypatch):
    state = torch.get_rng_state()
    first = load_model("./service.py:make", seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    monkeypatch.chdir(folder.parent)
    again = load_model(**json.loads(json.dumps(first.recipe())))
    assert same_bits(again.args[0], first.args[0])
    assert same_bits(again.module.layer.weight, first.module.layer.weight)
    other = load_model(first.again, seed=4)
    assert not same_bits(other.module.layer.weight, first.module.layer.weight)


def test_inputs_may_be_given_beside_a_name_and_then_no_other_process_has_them(folder):
    loaded = load_model("service:net", inputs=torch.ones(5, 8))
    assert (loaded.batch, loaded.reproducible) == (5, False)
    with pytest.raises(InvalidArgumentError, match=r"without inputs.*return a pair of the module"):
        load_model("service:make_module")


def test_inputs_of_any_size_are_a_function(folder):
    loaded = load_model("service:make_sized", batch=3)
    assert loaded.call().shape == (3, 4)
    assert loaded.with_size(batch=7).call().shape == (7, 4)
    assert load_model("service:make_sized").batch == 1
    with pytest.raises(InvalidArgumentError, match="does not take a batch and a sequence"):
        load_model("service:make_sized", sequence=4)
    with pytest.raises(UnsupportedError, match="a module with a function from a batch to inputs"):
        load_model("service:make").with_size(batch=7)
    plan = Plan(rounds=8, round_ms=0.1, duration_s=20.0)
    knee = ftax.knee("service:make_sized", high=2, plan=plan)
    assert [point.size for point in knee.points] == [2]


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("service:number", {}, InvalidArgumentError, f"is of type int: {FORMS}"),
        ("service:pair", {}, InvalidArgumentError, f"is of type tuple: {FORMS}"),
        ("service:make_number", {}, InvalidArgumentError, f"a value of type int: {FORMS}"),
        ("service:make_pair_of_other", {}, InvalidArgumentError, "tuple of Tensor, Net"),
        ("service:needs", {}, InvalidArgumentError, f"required argument: 'width'.*{FORMS}"),
        ("service:mke", {}, InvalidArgumentError, f"has no 'mke'; did you mean 'make'.*{FORMS}"),
        ("service:breaks", {}, RunnerError, r"KeyError: 'gone' \(.*service.py, line \d+\)"),
        ("service:leaves", {}, RunnerError, "calling service:leaves failed: SystemExit: 2"),
        ("servce:make", {}, InvalidArgumentError, "there is no module 'servce'"),
        ("my_package.modl:make", {}, InvalidArgumentError, "there is no module 'my_package.modl'"),
        ("./gone.py:make", {}, InvalidArgumentError, "there is no file .*gone.py: check the path"),
        ("service:make", {"dtype": "fp16"}, InvalidArgumentError, "or leave dtype out"),
        ("service:make", {"batch": 3}, InvalidArgumentError, "or give inputs of that size"),
        ("service:make", {"sequence": 3}, InvalidArgumentError, "leave sequence out"),
        ("service:make", {"tiny": True}, InvalidArgumentError, "leave tiny out and build"),
        ("service:make", {"attention": "eager"}, InvalidArgumentError, "leave attention out"),
        ("service:make", {"use_cache": True}, InvalidArgumentError, "leave use_cache out"),
    ],
)  # fmt: skip
def test_what_it_cannot_be_is_refused_with_the_remedy(folder, name, options, error, message):
    with pytest.raises(error, match=message):
        load_model(name, **options)


def test_code_that_cannot_be_imported_says_where(folder):
    Path("other.py").write_text("import no_such_thing\n")
    with pytest.raises(RunnerError, match=r"importing other failed: .*'no_such_thing'.*line 1"):
        load_model("other:make")
    Path("other.py").write_text("def make(:\n")
    with pytest.raises(RunnerError, match=r"other failed: SyntaxError: [^<]* line 1\)$"):
        load_model("other:make")


def test_a_file_with_the_name_of_another_module_is_refused(folder):
    Path("json.py").write_text(CODE)
    with pytest.raises(InvalidArgumentError, match="give the file another name"):
        load_model("./json.py:make")


def test_threads_that_were_asked_for_are_those_whatever_the_code_sets(folder):
    before = torch.get_num_threads()
    try:
        load_model("service:make_threads", threads=1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("gpt2", None),
        ("gpt2:eager", None),
        ("bert-base:torchscript:cpp", None),
        ("servce:flat", None),  # neither a model nor a module; the zoo says what is near
        ("service:make", "service:make"),
        ("service:make:flat:python", "service:make"),
        ("./service.py:make:flat", "./service.py:make"),
        ("my_package.model:make:eager:cpp", "my_package.model:make"),
    ],
)
def test_a_cell_begins_with_a_name_that_has_a_colon_of_its_own(folder, text, code):
    assert find_code(text) == code


def test_paths_and_models_are_no_code():
    assert not any(map(is_code, ("gpt2", "./gpt2", "model.pt", "./lib.so?a:b", "a b:c", "x:1")))


def test_code_may_change_so_a_file_made_of_it_is_known_by_what_it_computes(folder):
    (first,) = {make_key("kind", load_model("service:make"), {}, ["calls"]) for _ in range(2)}
    assert first != make_key("kind", load_model("service:make"), {}, ["other calls"])
    assert first != make_key("kind", load_model("service:make", seed=1), {}, ["calls"])
    assert load_model("service:make").identity() is None


def test_other_processes_build_it_by_its_name(folder, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    plan = Plan(rounds=2, warmup=1, round_ms=0.1)
    job = BenchJob(model="service:make", plan=plan, setting=Setting(seed=3))
    found = run_repeatedly(job, processes=2).measurements
    assert [item.cell.model for item in found] == ["Net", "Net"]
    assert len({item.process.pid for item in found}) == 2
    traced = TraceJob.of(load_model("service:make", grad_mode="no_grad"), ())
    assert (traced.model, traced.setting.grad_mode) == ("service:make", "no_grad")
    in_file = load_model("./service.py:make")
    assert re.fullmatch(r"/.*/service\.py:make", in_file.again)
    receipt = ftax.tax(
        "./service.py:make", runtimes=["torchscript"], hosts=["cpp"], plan=plan,
        operators=False,
    )  # fmt: skip
    assert [item.cell.runtime for item in receipt.others] == ["torchscript"]
