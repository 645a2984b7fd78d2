"""Padded texts and nested tensors: the lengths, the outputs, and what is refused.

Models have two layers and random weights; every family of layers is there, because each is a list
of names that could be wrong.
"""

from typing import Any

import pytest
import torch
import transformers
from torch import nn

from ftax.errors import UnsupportedError
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.eager.nested import (
    draw_lengths,
    keep_tokens,
    pad,
    read_lengths,
    run_unpadded,
)
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.tape.recording import observe
from ftax.timing.candidate import Candidate

BERT = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
BERT |= {"num_hidden_layers": 2, "vocab_size": 50}
DISTILBERT = {"dim": 16, "hidden_dim": 32, "n_heads": 2, "n_layers": 2, "vocab_size": 50}
FAMILIES = {
    "Bert": BERT,
    "Roberta": BERT,
    "XLMRoberta": BERT,
    "Camembert": BERT,
    "DistilBert": DISTILBERT,
}


def load_encoder(family: str = "Bert", *, batch: int = 3, **settings: Any) -> LoadedModel:
    config = getattr(transformers, f"{family}Config")(**{**FAMILIES[family], **settings})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = getattr(transformers, f"{family}Model")(config)
        ids = torch.randint(3, 50, (batch, 40))
    return load_model(module, inputs=ids)


def prepare(loaded: LoadedModel, runtime: str, host: Any = "python") -> Candidate:
    return find_runtime(runtime).prepare(Workspace(loaded), host)


# --- lengths ------------------------------------------------------------------------------------


def test_lengths_are_those_of_the_paper() -> None:
    lengths = torch.tensor(draw_lengths(20_000, 128), dtype=torch.float64)
    # Clipping at 1 moves the mean up and the deviation down by about 0.1.
    assert abs(float(lengths.mean()) - 20.92) < 0.5
    assert abs(float(lengths.std()) - 10.18) < 0.5
    assert lengths.min() == 1


def test_lengths_are_the_same_each_time_and_clipped_to_the_sequence() -> None:
    assert draw_lengths(64, 16) == draw_lengths(64, 16)
    assert max(draw_lengths(64, 16)) == 16


def test_check_input_has_other_lengths() -> None:
    padded = pad(load_encoder(batch=4))
    main, check = (
        read_lengths(kwargs["attention_mask"]) for kwargs in (padded.kwargs, padded.check_kwargs)
    )
    assert main == draw_lengths(4, 40)
    assert check == [max(1, length - 1) for length in reversed(main)]


def test_padding_is_the_id_that_the_model_pads_with() -> None:
    padded = pad(load_encoder("Roberta"))
    ids, mask = padded.args[0], padded.kwargs["attention_mask"]
    assert bool((ids[mask == 0] == 1).all())
    assert not bool((ids[mask == 1] == 1).any())


def test_unpadded_outputs_are_those_of_each_text_alone() -> None:
    padded = pad(load_encoder(batch=2))
    hidden, pooled = run_unpadded(padded)
    length = read_lengths(padded.kwargs["attention_mask"])[1]
    alone = padded.module(padded.args[0][1:, :length])
    torch.testing.assert_close(hidden[1, :length], alone.last_hidden_state[0])
    torch.testing.assert_close(pooled[1], alone.pooler_output[0])
    assert not hidden[1, length:].any()


def test_only_outputs_of_tokens_are_kept() -> None:
    mask = torch.tensor([[1, 1, 0]])
    hidden, pooled = keep_tokens([torch.ones(1, 3, 2), torch.ones(1, 2)], mask)
    assert hidden[0].tolist() == [[1, 1], [1, 1], [0, 0]]
    assert pooled.tolist() == [[1, 1]]


# --- outputs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["python", "cpp"])
@pytest.mark.parametrize("family", FAMILIES)
def test_nested_gives_the_outputs_of_padded(family: str, host: str) -> None:
    workspace = Workspace(load_encoder(family))
    padded = find_runtime("padded").prepare(workspace, host)
    nested = find_runtime("nested").prepare(workspace, host)
    mask = pad(workspace.loaded).kwargs["attention_mask"]
    for left, right in zip(keep_tokens(padded.run(), mask), nested.run(), strict=True):
        torch.testing.assert_close(left, right)
    for item in (padded, nested):
        assert item.checks.outputs.within_tolerance
        assert item.preparation.details["lengths"] == draw_lengths(3, 40)
        assert item.options["tokens"] == sum(draw_lengths(3, 40))
        item.runner.run_once()
    assert nested.preparation.baseline == "padded" and padded.preparation.baseline == ""
    assert nested.preparation.details["fast_path_layers"] == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_nested_in_short_floats(dtype: torch.dtype) -> None:
    loaded = load_encoder()
    short = load_model(loaded.module.to(dtype), inputs=loaded.args)
    assert prepare(short, "nested").checks.outputs.within_tolerance


@pytest.mark.parametrize("host", ["python", "cpp"])
def test_one_text_is_padded_too(host: str) -> None:
    nested = prepare(load_encoder(batch=1), "nested", host)
    assert nested.checks.outputs.within_tolerance
    assert nested.preparation.details["padding_ratio"] > 0


def test_hosts_and_runtimes_share_weights() -> None:
    loaded = load_encoder()
    workspace = Workspace(loaded)
    find_runtime("nested").prepare(workspace, "python")
    module: Any = workspace.variant("nested", pad)[0].loaded.module
    theirs = loaded.module.encoder.layer[0].output.dense.weight
    assert module.encoder.layers[0].linear2.weight.data_ptr() == theirs.data_ptr()


def test_models_own_rungs_are_left_as_they_were() -> None:
    workspace = Workspace(load_encoder())
    before = observe(workspace.loaded.call)
    find_runtime("nested").prepare(workspace, "cpp")
    assert observe(workspace.loaded.call) == before


# --- refusals -----------------------------------------------------------------------------------


def test_model_of_other_layers_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"GPT2LMHeadModel are not known.*BertModel"):
        prepare(load_model("gpt2", tiny=True), "padded")


def test_decoder_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="is a decoder"):
        prepare(load_encoder(is_decoder=True), "nested")


def test_sequence_without_room_for_padding_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"full 8 tokens.*sequence=128"):
        prepare(load_model("bert-base", tiny=True), "padded")


def test_inputs_that_are_not_token_ids_alone_are_refused() -> None:
    loaded = load_encoder()
    ids = loaded.args[0]
    masked = load_model(
        loaded.module, inputs={"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    )
    with pytest.raises(UnsupportedError, match="are not token ids"):
        prepare(masked, "nested")


def test_activation_without_fast_path_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="gelu and relu, not 'gelu_new'"):
        prepare(load_encoder(hidden_act="gelu_new"), "nested")


def test_reason_of_torch_against_its_fast_path_is_passed_on() -> None:
    with pytest.raises(UnsupportedError, match="num_heads is odd"):
        prepare(load_encoder(num_attention_heads=1), "nested")


def test_fast_path_that_is_not_taken_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mha, "get_fastpath_enabled", lambda: False)
    with pytest.raises(UnsupportedError, match=r"ran 0 times for 2 layers; .*set_fastpath_enabled"):
        prepare(load_encoder(), "nested")


def test_wrong_weights_are_found_by_the_check() -> None:
    workspace = Workspace(load_encoder())
    find_runtime("nested").prepare(workspace, "python")
    module: Any = workspace.variant("nested", pad)[0].loaded.module
    nn.init.zeros_(module.encoder.layers[1].self_attn.in_proj_weight)  # copied: nested's alone
    again = find_runtime("nested").prepare(workspace, "python")
    assert not again.checks.outputs.within_tolerance
