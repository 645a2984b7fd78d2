"""The text and speech models of the zoo: their size, what they put out, and whether they can be
taped.

A full-size model is only built and run on the meta device, which computes nothing; that is enough
for its parameters and its operators. What it computes is tested on the tiny form, which must run
the same operators.
"""

import functools
from typing import Any

import pytest
import torch
from torch import nn

from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import flatten_outputs
from ftax.steps.spec import ModelSpec, Variant
from ftax.steps.zoo.registry import list_models
from ftax.tape.tape import make_tape
from support.small_models import OperatorLog, run_seeded, same_bits

SPECS = [spec for spec in list_models() if spec.family in ("text", "speech")]
NAMES = [spec.name for spec in SPECS]

# Millions of parameters as published, to the digits that were: model cards and papers.
PUBLISHED: dict[str, float] = {
    "bert-base": 109.48,
    "bert-large": 335.14,
    "bert-768": 109.48,
    # 31036 x 1536 of embeddings, 12 layers of 12 x 1536^2 + 13 x 1536, a pooler of 1536^2.
    "bert-1536": 390.0,
    "bert-6x768": 66.9,
    "bert-24x768": 194.5,
    "bert-12x384": 33.4,
    "distilbert": 66.4,
    "roberta": 124.6,
    "albert": 11.7,
    "deberta": 139,
    "ibert": 124.6,
    "funnel": 131,
    "funnel-base": 115.6,
    "squeezebert": 51.1,
    "mobilebert": 24.6,
    "fnet": 83,
    # 109.3 with the head for masked words, which is 0.6 of it.
    "nystromformer": 108.6,
    "longformer": 148.7,
    "reformer": 149,
    "gpt2": 124.4,
    "gpt2-generate": 124.4,
    "llama": 162.4,
    "llama-1b": 1236,
    "mamba": 129.1,
    "lstm-lm": 66.0,
    "wavlm": 94.4,
    "wav2vec2": 94.4,
    "hubert": 94.4,
}

# Why the full form cannot run a short request on the meta device, or need not.
OPERATORS_NOT_COMPARED = {
    "deberta": "takes sizes from tensors",
    "funnel": "takes sizes from tensors, in transformers 5.17",
    "funnel-base": "takes sizes from tensors, in transformers 5.17",
    "longformer": "takes sizes from tensors",
    "reformer": "a request shorter than its chunks is not hashed",
    "gpt2-generate": "is gpt2 sixteen times, and takes as long",
}


class MetaLog(OperatorLog):
    """Also answers the models that read a value back to the host, which the meta device lacks."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if str(func) in ("aten.item.default", "aten.is_nonzero.default"):
            self.names.append("a host read")
            return False if args[0].dtype is torch.bool else 0
        return super().__torch_dispatch__(func, types, args, kwargs)


@functools.cache
def load_tiny(name: str) -> LoadedModel:
    return load_model(name, tiny=True)


def build_on_meta(spec: ModelSpec, *, tiny: bool) -> nn.Module:
    attention = spec.attentions[0] if spec.attentions else None
    cache = False if spec.has_cache else None
    with torch.device("meta"):
        return spec.build(Variant(attention=attention, use_cache=cache, tiny=tiny)).eval()


def log_on_meta(spec: ModelSpec, module: nn.Module) -> list[str]:
    sound = spec.family == "speech"
    shape, dtype = (1, spec.tiny_size), torch.float32 if sound else torch.int64
    inputs = torch.zeros(shape, dtype=dtype, device="meta")
    with torch.inference_mode(), MetaLog() as log:
        module(inputs)
    return log.names


def test_every_model_is_in_the_table_of_published_sizes() -> None:
    assert list(PUBLISHED) == NAMES


def test_names_of_the_paper_lead_to_one_model_each() -> None:
    papers = [spec.paper_name for spec in list_models() if spec.paper_name]
    assert len(papers) == len(set(papers))
    text = {"bert", "distilbert", "albert", "funnel_transformer", "mobile_bert", "squeeze_bert"}
    assert {*text, "longformer", "wavlm", "gpt2"} <= set(papers)


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_size_is_the_published_one_and_the_tiny_form_has_its_operators(spec: ModelSpec) -> None:
    module = build_on_meta(spec, tiny=False)
    built = sum(parameter.numel() for parameter in module.parameters())
    # A library adds a few now and then (transformers 5.24 a row to Reformer's).
    assert built == pytest.approx(spec.parameter_count, rel=1e-5)
    assert built / 1e6 == pytest.approx(PUBLISHED[spec.name], rel=5e-3)
    resized = spec.name.startswith("bert-") and spec.name != "bert-base"
    if spec.fixed_size or resized or spec.name in OPERATORS_NOT_COMPARED:
        return
    operators = log_on_meta(spec, module)
    assert len(operators) > 4
    assert operators == log_on_meta(spec, build_on_meta(spec, tiny=True))


@pytest.mark.parametrize("name", NAMES)
def test_tiny_outputs_mean_something(name: str) -> None:
    model = load_tiny(name)
    outputs, check_outputs = run_seeded(model.call), run_seeded(model.call_check)
    assert outputs
    for output, check_output in zip(outputs, check_outputs, strict=True):
        values, check_values = output.double(), check_output.double()
        assert bool(values.isfinite().all())
        assert float(values.std()) > 0.05
        assert float((values - check_values).norm() / values.norm()) > 1e-2
        if output.is_floating_point():
            assert float(values.std()) < 10
            # Untrained attention averages: with every layer the places of a request grow alike.
            rows = values.flatten(0, -2)
            assert len(rows) == 1 or float((rows[0] - rows[-1]).norm() / rows[0].norm()) > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_tape_is_the_model(name: str) -> None:
    model = load_tiny(name)
    tape = make_tape(model).tape
    tape.bind_inputs(model.flat_check_inputs())
    replayed, expected = run_seeded(tape.run), run_seeded(model.call_check)
    assert len(replayed) == len(expected)
    assert all(map(same_bits, replayed, expected))


def test_generation_is_that_of_the_library() -> None:
    model = load_model("gpt2-generate", tiny=True, batch=3)
    (prompt,) = model.args
    inner: Any = model.module.model
    with torch.inference_mode():
        (ours,) = flatten_outputs(model.call())
        whole = inner.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            min_new_tokens=16,
            max_new_tokens=16,
            pad_token_id=0,
        )
    assert ours.shape == (3, 16)
    assert torch.equal(ours, whole[:, prompt.shape[1] :])
    assert len(ours.unique()) > 8


def test_generation_uses_a_cache() -> None:
    loaded = load_tiny("gpt2-generate")
    sizes = []
    inner: Any = loaded.module.model
    handle = inner.register_forward_pre_hook(
        lambda _module, args: sizes.append(args[0].shape[1]),
    )
    with torch.inference_mode():
        loaded.call()
    handle.remove()
    assert sizes == [8] + [1] * 15


def test_running_a_model_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("mamba", "longformer"):
        model = load_model(name, tiny=True, sequence=5)
        with torch.inference_mode():
            model.call()
    assert capfd.readouterr() == ("", "")


def test_sound_has_samples() -> None:
    model = load_model("wav2vec2", tiny=True, batch=2)
    (wave,) = model.args
    assert (tuple(wave.shape), model.sequence) == ((2, 3200), 3200)
    assert model.options["sampling_hz"] == 16_000
    assert float(wave.std()) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("name", [s.name for s in SPECS if "fp16" in s.dtypes])
def test_half_precision_runs_and_stays_finite(name: str) -> None:
    outputs = run_seeded(load_model(name, tiny=True, dtype="fp16").call)
    assert all(bool(output.isfinite().all()) for output in outputs)
