"""Texts, numbers and objects among the inputs are constants of the call: each program is of them.

The tape has the calls that they led to, flat Python and what is exported too; the second input has
other tensors and the same constants. Without any tensor there is nothing that could be exported.
"""

import dataclasses
import enum

import numpy as np
import pytest
import torch
from torch import nn

import ftax
from ftax.errors import InvalidArgumentError, UnsupportedError
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.timing.plan import Plan
from support.small_models import normal, same_bits

QUICK = Plan(rounds=3, warmup=2, round_ms=0.5)


class Mode(enum.Enum):
    RELU = "relu"
    SIGMOID = "sigmoid"


@dataclasses.dataclass
class Choice:
    mode: Mode
    scale: float
    names: tuple[str, ...] = ("a", "b")


class Chooses(nn.Module):
    """Which operators it calls depends on what is no tensor."""

    def forward(self, x, choice, *, word="twice", table=None):
        x = x.relu() if choice.mode is Mode.RELU else x.sigmoid()
        x = x * choice.scale
        if word == "twice":
            x = x + x
        return x if table is None else x + torch.from_numpy(table)


class Reads(nn.Module):
    """Takes texts, and makes tensors of them itself."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(256, 4)

    def forward(self, texts):
        ids = torch.tensor([[ord(letter) for letter in text.ljust(8)[:8]] for text in texts])
        return self.table(ids).mean(1)


def load_chooses(mode=Mode.RELU, word="twice"):
    table = np.ones((2, 3), dtype=np.float32)
    inputs = ((normal(2, 3), Choice(mode, 3.0)), {"word": word, "table": table})
    return load_model(Chooses().eval(), inputs=inputs)


@pytest.mark.parametrize(
    ("mode", "word", "operators"),
    [
        (Mode.RELU, "twice", ["aten::relu", "aten::mul", "aten::add", "aten::add"]),
        (Mode.SIGMOID, "once", ["aten::sigmoid", "aten::mul", "aten::add"]),
    ],
)
def test_the_tape_has_the_calls_that_constants_lead_to(mode, word, operators):
    loaded = load_chooses(mode, word)
    workspace = Workspace(loaded)
    found = [name.partition(".")[0] for name in workspace.taped.tape.operators]
    assert [name for name in found if name != "aten::lift_fresh"] == operators
    checks = workspace.taped.checks
    assert checks.outputs.bitwise and checks.second_input.bitwise
    assert len(loaded.flat_inputs()) == 1


def test_the_second_input_has_other_tensors_and_the_same_constants():
    loaded = load_chooses()
    assert not same_bits(loaded.check_args[0], loaded.args[0])
    assert loaded.check_args[1] is loaded.args[1]
    assert loaded.check_kwargs["table"] is loaded.kwargs["table"]
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("name", "host"),
    [("flat", "python"), ("eager", "cpp"), ("torchscript", "cpp"), ("torchscript-frozen", "cpp")],
)
def test_every_program_gives_the_outputs_of_these_constants(name, host):
    for mode in Mode:
        workspace = Workspace(load_chooses(mode))
        prepared = find_runtime(name).prepare(workspace, host)
        assert same_bits(prepared.run()[0], workspace.loaded.call())
        for check in (prepared.checks.outputs, prepared.checks.second_input):
            assert check.bitwise


def test_check_inputs_have_the_same_constants():
    x, choice = normal(2, 3), Choice(Mode.RELU, 3.0)
    same = load_model(Chooses(), inputs=(x, choice), check_inputs=(x + 1, Choice(Mode.RELU, 3.0)))
    assert same_bits(same.check_args[0], x + 1)
    for other in (Choice(Mode.SIGMOID, 3.0), np.ones(3)):
        with pytest.raises(InvalidArgumentError, match="only tensors may differ"):
            load_model(Chooses(), inputs=(x, choice), check_inputs=(x + 1, other))


class Holds:
    def __init__(self, tensor):
        self.parts = [{"deep": tensor}]


class Acts(Holds):
    def __init__(self, tensor):
        super().__init__(tensor)
        self.layer = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        (Acts, r"argument 1 is an Acts, which holds a tensor at \.parts\[0\]\['deep'\]"),
        (lambda tensor: nn.Linear(2, 2), r"a Linear, which holds a tensor at \._parameters"),
        (lambda tensor: {tensor}, r"a set, which holds a tensor at \[0\]"),
        (lambda tensor: iter([tensor]), "a list_iterator, which one call uses up: pass a list"),
    ],
)
def test_a_tensor_that_hides_in_an_object_is_refused(hidden, message):
    x = normal(2, 3)
    with pytest.raises(UnsupportedError, match=message):
        load_model(Chooses(), inputs=(x, hidden(x)))


def test_an_object_that_holds_itself_is_searched_once():
    choice = Choice(Mode.RELU, 3.0)
    choice.me = [choice]
    assert load_model(Chooses(), inputs=(normal(2, 3), choice)).batch == 2


def test_a_model_of_texts_has_a_ladder_that_says_what_it_is_of():
    texts = (["hello", "world"],)
    receipt = ftax.tax(Reads(), texts, batch=2, runtimes=["torchscript-frozen"], plan=QUICK)
    assert [rung.cell.batch for rung in receipt.rungs] == [2, 2, 2]
    assert all(rung.checks.get("outputs", {"bitwise": True})["bitwise"] for rung in receipt.rungs)
    assert {item.reason for item in receipt.unavailable} >= {
        "torchscript-frozen runs a program of tensors, and this model is called with none: "
        "exported, it would be one answer and not a model; let it take tensors"
    }
    said = [text for rung in receipt.rungs for text in rung.warnings]
    assert any("no input is a tensor, so a tape is of this one call" in text for text in said)


def test_numbers_alone_are_no_inputs():
    with pytest.raises(InvalidArgumentError, match="has no tensor, and no text or object either"):
        load_model(Reads(), inputs=(1, 2.0))
