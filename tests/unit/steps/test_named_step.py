"""Steps of models by name: what `--step` makes of them, in every process the same."""

import pytest
import torch

import ftax
from ftax import InvalidArgumentError
from ftax.ladders.look import TraceJob
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model

QUICK = ftax.Plan(rounds=2, warmup=2, round_ms=2.0)


def test_a_decode_step_is_of_the_models_own_prompt():
    loaded = load_model("llama", tiny=True, step="decode", sequence=16, batch=2, tokens=4)
    (first,) = loaded.flat_inputs()
    assert tuple(first.shape) == (2, 1)
    assert (loaded.kind, loaded.units, loaded.batch, loaded.sequence) == ("decode", 4, 2, 16)
    with torch.inference_mode():
        loaded.prepare()
        (drawn,) = loaded.call()[0]
        assert tuple(drawn.shape) == (2, 4)


@pytest.mark.parametrize("optimizer", ["sgd", "adam-fused", "adamw-forloop", "adamw-foreach"])
def test_a_train_step_changes_the_weights_and_is_put_back(optimizer: str):
    step = {"step": "train", "optimizer": optimizer, "tiny": True, "batch": 2}
    loaded = load_model("bert-base", **step)
    assert loaded.has_autograd
    weight = next(loaded.module.parameters())
    before = weight.detach().clone()
    taped = Workspace(loaded).taped
    assert taped.checks.judge_outputs().words == "bitwise equal"
    assert torch.equal(weight, before)
    assert any("backward" in call.name for call in taped.calls)


@pytest.mark.parametrize("model", ["wavlm", "wav2vec2", "hubert"])
def test_a_speech_models_steps_do_the_same_work(model: str):
    """They would leave out layers and mask places, at random; a step of that kind is refused."""
    loaded = load_model(model, tiny=True, step="train", optimizer="sgd")
    assert Workspace(loaded).taped.checks.judge_outputs().words == "bitwise equal"


def test_another_process_makes_the_same_step():
    loaded = load_model("gpt2", tiny=True, step="decode", sequence=8, cache="static", tokens=2)
    job = TraceJob.of(loaded, [("eager", "python")])
    assert job is not None
    data = job.to_dict()
    again = load_model(data["model"], **data["setting"])
    assert (again.kind, again.units, dict(again.options)) == ("decode", 2, dict(loaded.options))
    assert torch.equal(again.flat_inputs()[0], loaded.flat_inputs()[0])


def test_the_cell_tells_steps_apart():
    cells = [
        ftax.py_bench("llama", tiny=True, sequence=8, plan=QUICK, progress=False, **step).cell
        for step in ({}, {"step": "decode", "tokens": 2}, {"step": "train", "optimizer": "sgd"})
    ]
    assert [cell.step for cell in cells] == ["forward", "decode", "train"]
    assert [cell.units for cell in cells] == [1, 2, 1]
    assert [cell.grad_mode for cell in cells] == ["inference", "inference", "grad"]
    assert cells[2].options["optimizer"] == "sgd"


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("bert-base", {"step": "decode"}, "bert-base .*has no generate|takes no past_key"),
        ("bert-base", {"step": "train", "optimizer": "lion"}, "optimizer is 'lion': give sgd"),
        ("bert-base", {"step": "train", "optimizer": "sgd-capturable"}, "which torch refuses"),
        ("bert-base", {"step": "train", "inputs": torch.ones(1)}, "leave inputs out"),
        (torch.nn.Linear(2, 2), {"step": "train"}, "this is a module: give ftax.decode"),
    ],
)
def test_what_cannot_be_is_refused(model, options, words: str):
    tiny = {"tiny": True} if isinstance(model, str) else {}
    with pytest.raises(InvalidArgumentError, match=words):
        load_model(model, **tiny, **options)
