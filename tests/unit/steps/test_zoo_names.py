"""Names that lead to a model of the zoo, and what its models refuse."""

from typing import Any

import pytest
import torch

from ftax.errors import InvalidArgumentError, UnsupportedError
from ftax.runtimes.eager.nested import pad
from ftax.steps.load import load_model
from ftax.steps.spec import Variant
from ftax.steps.zoo.registry import find_spec, list_models


@pytest.mark.parametrize(
    ("name", "layers", "heads", "width"), [("bert-3x128", 3, 2, 128), ("bert-2x1536", 2, 24, 1536)]
)
def test_bert_of_any_size_is_found_by_its_name(
    name: str, layers: int, heads: int, width: int
) -> None:
    spec = find_spec(name)
    with torch.device("meta"):
        config: Any = spec.build(Variant(attention="sdpa")).config
    assert (spec.name, config.num_hidden_layers, config.num_attention_heads) == (
        name,
        layers,
        heads,
    )
    assert (config.hidden_size, config.intermediate_size) == (width, 4 * width)
    assert name not in [listed.name for listed in list_models()]


def test_bert_of_any_size_is_loaded_and_rebuilt() -> None:
    model = load_model("bert-2x128", tiny=True)
    recipe = model.recipe()
    assert recipe is not None
    assert load_model(**recipe).name == "bert-2x128"  # type: ignore[arg-type]


def test_a_second_name_is_the_same_model() -> None:
    first, second = load_model("llama", tiny=True), load_model("llama-160m", tiny=True)
    assert (second.name, second.parameter_count) == ("llama-160m", first.parameter_count)
    assert torch.equal(first.call().logits, second.call().logits)
    assert "llama-160m" not in [spec.name for spec in list_models()]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bert-0x768", "'bert-0x768' has 0 layers: give 1 to 96"),
        ("bert-12x770", "'bert-12x770' has width 770: give a multiple of 64"),
        ("bert-12x0", "has width 0"),
        ("bert-12x99968", "up to 12288"),
    ],
)
def test_bert_that_cannot_be_built_is_refused(name: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        load_model(name)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("mobile_bert", "mobilebert"),
        ("funnel_transformer", "funnel"),
        ("squeeze_bert", "squeezebert"),
        ("wave2vec2", "wav2vec2"),
        ("GPT-2", "gpt2"),
        ("long", "longformer"),
        ("llama-160", "llama-160m"),
        ("llama1b", "llama-1b"),
    ],
)
def test_names_of_the_paper_and_slips_lead_to_the_model(wrong: str, meant: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"did you mean '{meant}'"):
        find_spec(wrong)


@pytest.mark.parametrize(
    ("name", "options", "error", "words"),
    [
        ("fnet", {"dtype": "fp16"}, UnsupportedError, "fnet does not run in fp16.*give fp32"),
        ("nystromformer", {"dtype": "bf16"}, UnsupportedError, "does not run in bf16"),
        ("nystromformer", {"sequence": 16}, InvalidArgumentError, "takes 8 tokens and no other"),
        ("wavlm", {"sequence": 399}, InvalidArgumentError, "at least 400 samples"),
        ("gpt2-generate", {"sequence": 1009}, InvalidArgumentError, "at most 1008 tokens"),
        ("gpt2-generate", {"use_cache": True}, InvalidArgumentError, "no key-value cache"),
        ("deberta", {"attention": "sdpa"}, InvalidArgumentError, "no attention to choose"),
    ],
)
def test_what_a_model_cannot_do_is_refused(
    name: str, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        load_model(name, tiny=True, **options)


@pytest.mark.parametrize("name", ["lstm-lm", "gpt2-generate", "wavlm"])
def test_models_without_a_mask_are_not_padded(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"attention mask|token ids"):
        pad(load_model(name, tiny=True, sequence=3200 if name == "wavlm" else 64))
