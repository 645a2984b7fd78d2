"""A foreign config.json chooses a model of the library and its sizes, and nothing else."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from ftax.errors import FtaxError, InvalidArgumentError, UnsupportedError
from ftax.steps.load import load_model

BERT = {
    "model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16, "vocab_size": 50,
}  # fmt: skip


def write(folder: Path, **changes: Any) -> Path:
    (folder / "config.json").write_text(json.dumps({**BERT, **changes}))
    return folder


@pytest.mark.parametrize(
    "name",
    ["pipeline", "AutoModel", "AutoModelForCausalLM", "Trainer", "PreTrainedModel", "models",
     "BertConfig", "BertTokenizer", "__class__", "is_torch_available", "logging"],
)  # fmt: skip
def test_an_architecture_is_a_model_of_the_library(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"architecture '{name}', which is no model"):
        load_model(write(tmp_path, architectures=[name]))


def test_a_class_that_was_put_into_the_library_is_none_of_its_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    class Mine(transformers.PreTrainedModel):  # type: ignore[misc]
        def __init__(self, config: Any) -> None:
            raise AssertionError("it ran")

    monkeypatch.setattr(transformers, "Mine", Mine, raising=False)
    with pytest.raises(UnsupportedError, match="'Mine', which is no model of transformers"):
        load_model(write(tmp_path, architectures=["Mine"]))


def test_a_class_and_its_type_belong_together(tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedError, match="'GPT2Model', which is not of the model_type 'bert'"
    ):
        load_model(write(tmp_path, architectures=["GPT2Model"]))


def test_a_class_of_somebody_else_leaves_the_body_of_the_library(tmp_path: Path) -> None:
    model = load_model(write(tmp_path, architectures=["MyBertForMyTask"]))
    assert type(model.module).__name__ == "BertModel"


@pytest.mark.parametrize(
    "changes",
    [
        {"attn_implementation": "somebody/kernel"},
        {"_attn_implementation": "kernels-community/flash-attn"},
        {"attn_implementation": {"": "sdpa", "text_config": "somebody/kernel@main:f"}},
        {"text_config": {"experts_implementation": "somebody/kernel"}},
        {"attn_implementation": 7},
        {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
        {"text_config": {"quantization_config": {"quant_method": "gptq"}}},
    ],
)
def test_what_would_run_other_code_is_refused_by_name(tmp_path: Path, changes: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"config\.json (has|asks for) "):
        load_model(write(tmp_path, **changes))


def test_an_adapter_leads_to_no_other_folder(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "/elsewhere"}')
    with pytest.raises(UnsupportedError, match="an adapter of another model"):
        load_model(write(tmp_path))


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": "BertModel"},
        {"architectures": 5},
        {"architectures": [5]},
        {"architectures": [None]},
        {"architectures": {"BertModel": 1}},
        {"model_type": 5},
        {"model_type": ["bert"]},
        {"model_type": "../bert"},
        {"hidden_size": "wide"},
        {"hidden_size": None},
        {"hidden_size": -16},
        {"hidden_size": 10**30},
        {"hidden_size": float("nan")},
        {"hidden_size": []},
        {"num_attention_heads": 0},
        {"num_attention_heads": 3},
        {"num_hidden_layers": "many"},
        {"num_hidden_layers": 10**12},
        {"vocab_size": 0},
        {"vocab_size": 1e300},
        {"vocab_size": 10**15},
        {"max_position_embeddings": -1},
        {"hidden_act": "os.system"},
        {"hidden_act": {"a": 1}},
        {"layer_norm_eps": "x"},
        {"dtype": "load"},
        {"dtype": 5},
        {"torch_dtype": "__class__"},
        {"id2label": 5},
        {"num_labels": 10**30},
        {"num_labels": "x"},
        {"transformers_version": []},
        {"use_cache": "x"},
        {"pad_token_id": 10**9},
        {"attn_implementation": "unheard_of"},
        {"is_decoder": "x", "add_cross_attention": 7},
    ],
    ids=str,
)
def test_any_value_is_refused_in_words_or_measured(tmp_path: Path, changes: Any) -> None:
    with suppress(FtaxError):
        model = load_model(write(tmp_path, **changes))
        assert isinstance(model.call()[0], torch.Tensor)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff\xfe", b'{"model_type": "bert"', b"\0"])
def test_a_file_that_is_no_json_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=r"config\.json is not JSON"):
        load_model(tmp_path)
