"""Padded batches of texts, and the same texts through BetterTransformer's fast path.

The fast path is torch's own: `torch.nn.TransformerEncoder` turns a padded batch into a nested
tensor and runs each layer as one operator. Transformers no longer converts a model to it, so the
weights of a Hugging Face encoder are put into torch's encoder here, and the outputs are compared
with the padded original's.

The lengths do not come from the model's inputs but from a normal distribution fitted to the Penn
Treebank (paper section 4.1), with a fixed seed. So every run of one batch size has the same
lengths, and they belong to what was measured.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ftax.errors import UnsupportedError
from ftax.runtimes.eager.eager import prepare_eager
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model, flatten_outputs
from ftax.steps.tensors import copy_into
from ftax.tape.equality import compare_outputs
from ftax.tape.recording import observe
from ftax.tape.tape import preserve_state, run_eager
from ftax.timing.candidate import Candidate, Host
from ftax.timing.checks import Checks

_LAYER = "aten::_transformer_encoder_layer_fwd"

MEAN_TOKENS, DEVIATION_TOKENS = 20.92, 10.18  # paper section 4.1
_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """Where an encoder of transformers keeps what torch's encoder layer needs."""

    layers: str
    activation: str  # name in the configuration
    query: str
    key: str
    value: str
    names: Mapping[str, str]  # of torch's layer -> of theirs


_BERT = _Family(
    layers="encoder.layer",
    activation="hidden_act",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    names={
        "self_attn.out_proj": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "linear1": "intermediate.dense",
        "linear2": "output.dense",
        "norm2": "output.LayerNorm",
    },
)
_DISTILBERT = _Family(
    layers="transformer.layer",
    activation="activation",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    names={
        "self_attn.out_proj": "attention.out_lin",
        "norm1": "sa_layer_norm",
        "linear1": "ffn.lin1",
        "linear2": "ffn.lin2",
        "norm2": "output_layer_norm",
    },
)
_FAMILIES = {
    "BertModel": _BERT,
    "RobertaModel": _BERT,
    "XLMRobertaModel": _BERT,
    "CamembertModel": _BERT,
    "DistilBertModel": _DISTILBERT,
}


class NestedEncoder(nn.Module):
    """Embeddings and pooler of a model of transformers around torch's own encoder."""

    def __init__(self, embeddings: nn.Module, encoder: nn.Module, pooler: nn.Module | None) -> None:
        super().__init__()
        self.embeddings, self.encoder, self.pooler = embeddings, encoder, pooler

    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Last hidden state, zero where there is no token, and what the pooler makes of it."""
        hidden = self.embeddings(input_ids=ids)
        hidden = self.encoder(hidden, src_key_padding_mask=attention_mask == 0)
        return (hidden,) if self.pooler is None else (hidden, self.pooler(hidden))


def prepare_padded(workspace: Workspace, host: Host) -> Candidate:
    """The model itself, or its tape, on padded texts with an attention mask.

    Its outputs are checked against each text run alone. Raises UnsupportedError for models and
    inputs that `prepare_nested` could not take.
    """
    _find_family(workspace.loaded)
    variant, cost = workspace.variant("padded", pad)
    mask = variant.loaded.kwargs["attention_mask"]
    prepared = prepare_eager(variant, host, runtime="padded")
    return replace(
        prepared,
        preparation=prepared.preparation.costing(cost).also(**_describe_texts(mask)),
        checks=_check_texts(variant, prepared, run_unpadded),
        options=_describe_options(mask),
    )


def prepare_nested(workspace: Workspace, host: Host) -> Candidate:
    """torch's fast path on the texts of `prepare_padded`, whose outputs it must have.

    Raises UnsupportedError, with the reason, for a model whose layers are not those of torch's
    encoder, and where torch does not take its fast path.
    """
    _find_family(workspace.loaded)
    padded, _ = workspace.variant("padded", pad)
    variant, cost = workspace.variant("nested", lambda _: _convert(padded.loaded))
    mask = padded.loaded.kwargs["attention_mask"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*nested tensors is in prototype stage")
        layers = _count_layers(variant.loaded)
        prepared = prepare_eager(variant, host, runtime="nested")
        checks = _check_texts(variant, prepared, lambda texts: run_eager(texts.call, texts), padded)
    preparation = prepared.preparation.costing(cost)
    preparation = preparation.also(fast_path_layers=layers, **_describe_texts(mask))
    return replace(
        prepared,
        preparation=replace(preparation, baseline="padded"),
        checks=checks,
        options=_describe_options(mask),
    )


def _check_texts(
    workspace: Workspace,
    prepared: Candidate,
    run_right: Callable[[LoadedModel], tuple[torch.Tensor, ...]],
    right: Workspace | None = None,
) -> Checks:
    """The checks of ``prepared``, its outputs where there are tokens compared with those of
    ``run_right(model)``, the model being that of ``right``, on the texts and on the check texts."""
    loaded = workspace.loaded
    main = [tensor.clone() for tensor in loaded.flat_inputs()]
    found = []
    for given in (main, loaded.flat_check_inputs()):
        with preserve_state(loaded):
            copy_into(loaded.flat_inputs(), given)
            mask = loaded.kwargs["attention_mask"]
            texts = replace(loaded, module=(right or workspace).loaded.module)
            expected = keep_tokens(run_right(texts), mask)
            found.append(compare_outputs(expected, keep_tokens(prepared.run(), mask)))
    return replace(prepared.checks, outputs=found[0], second_input=found[1])


def _describe_texts(mask: torch.Tensor) -> dict[str, object]:
    lengths = read_lengths(mask)
    return {"lengths": lengths, "padding_ratio": 1 - sum(lengths) / mask.numel()}


def _describe_options(mask: torch.Tensor) -> dict[str, str | int]:
    drawn = f"normal, mean {MEAN_TOKENS}, deviation {DEVIATION_TOKENS}, in 1..{mask.shape[1]}"
    return {"lengths": drawn, "tokens": sum(read_lengths(mask))}


def _find_family(loaded: LoadedModel) -> _Family:
    name = type(loaded.module).__name__
    family = _FAMILIES.get(name)
    if family is None:
        raise UnsupportedError(
            f"the layers of {name} are not known to be those of torch.nn.TransformerEncoderLayer; "
            f"known are {', '.join(_FAMILIES)}, without heads"
        )
    if getattr(loaded.module.config, "is_decoder", False):
        raise UnsupportedError(
            f"{loaded.name} is a decoder, and torch's fast path has no causal mask"
        )
    return family


def _convert(loaded: LoadedModel) -> LoadedModel:
    """The padded model with torch's encoder in place of its own, sharing weights where it can."""
    family = _find_family(loaded)
    source: Any = loaded.module
    layers = list(source.get_submodule(family.layers))
    encoder = _make_encoder(layers[0], family, len(layers), source.config)
    encoder.load_state_dict(
        {
            f"layers.{place}.{name}": tensor
            for place, layer in enumerate(layers)
            for name, tensor in _rename_weights(layer, family).items()
        },
        assign=True,
    )
    module = NestedEncoder(source.embeddings, encoder, getattr(source, "pooler", None))
    return replace(loaded, module=module.eval().requires_grad_(False))


def _make_encoder(layer: Any, family: _Family, count: int, config: Any) -> nn.TransformerEncoder:
    """torch's encoder of that shape, without memory for weights."""
    norm, other = (layer.get_submodule(family.names[name]) for name in ("norm1", "norm2"))
    activation = getattr(config, family.activation)
    if activation not in ("gelu", "relu"):
        raise UnsupportedError(f"torch's fast path has gelu and relu, not {activation!r}")
    with torch.device("meta"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        like = nn.TransformerEncoderLayer(
            d_model=layer.get_submodule(family.query).in_features,
            nhead=config.num_attention_heads,
            dim_feedforward=layer.get_submodule(family.names["linear1"]).out_features,
            activation=activation,
            layer_norm_eps=norm.eps,
            batch_first=True,
        )
        like.norm2.eps = other.eps
        # No check of the mask, whose result torch would wait for: texts start at the left.
        encoder = nn.TransformerEncoder(like, count, mask_check=False)
    if not encoder.use_nested_tensor:
        raise UnsupportedError(
            f"torch.nn.TransformerEncoder has no fast path for this model: {caught[-1].message}"
        )
    return encoder


def _rename_weights(layer: Any, family: _Family) -> dict[str, torch.Tensor]:
    """Weights of one layer under the names of torch's; only query, key and value are copied."""
    thirds = [layer.get_submodule(name) for name in (family.query, family.key, family.value)]
    weights = {
        "self_attn.in_proj_weight": torch.cat([third.weight for third in thirds]),
        "self_attn.in_proj_bias": torch.cat([third.bias for third in thirds]),
    }
    for ours, theirs in family.names.items():
        part = layer.get_submodule(theirs)
        weights[f"{ours}.weight"], weights[f"{ours}.bias"] = part.weight, part.bias
    return weights


def _count_layers(loaded: LoadedModel) -> int:
    """Layers that ran as one operator. Raises UnsupportedError unless all did."""
    with preserve_state(loaded):
        seen = [call.name for call in observe(loaded.call)]
    module: Any = loaded.module
    expected = len(module.encoder.layers)
    if seen.count(_LAYER) != expected or "aten::_nested_tensor_from_mask" not in seen:
        off = not torch.backends.mha.get_fastpath_enabled()
        why = "torch.backends.mha.set_fastpath_enabled(True) would allow it" if off else ""
        raise UnsupportedError(
            f"torch.nn.TransformerEncoder did not take its fast path: {_LAYER} ran "
            f"{seen.count(_LAYER)} times for {expected} layers{'; ' if why else ''}{why}"
        )
    return expected


def draw_lengths(batch: int, sequence: int) -> list[int]:
    """Tokens of each text of a batch: normal, rounded, clipped to 1..``sequence``."""
    noise = torch.randn(batch, generator=torch.Generator().manual_seed(_SEED))
    lengths = (MEAN_TOKENS + DEVIATION_TOKENS * noise).round().clamp(1, sequence)
    return [int(length) for length in lengths]


def read_lengths(mask: torch.Tensor) -> list[int]:
    """Lengths of the texts that an attention mask (batch, sequence) leaves."""
    return [int(length) for length in mask.sum(dim=1)]


def pad(loaded: LoadedModel) -> LoadedModel:
    """``loaded`` with its token ids cut to drawn lengths, padded again, and an attention mask.

    The check input has other lengths, so a program in which lengths are baked in is found out.
    Raises UnsupportedError where the inputs are not token ids alone, the model takes no mask, or
    nothing would be padded.
    """
    ids, check_ids = _read_token_ids(loaded, checks=False), _read_token_ids(loaded, checks=True)
    parameters = inspect.signature(loaded.module.forward).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if "attention_mask" not in parameters and not open_ended:
        raise UnsupportedError(
            f"{loaded.name} takes no attention mask, so a padded text would be another text to it"
        )
    batch, sequence = ids.shape
    lengths = draw_lengths(batch, sequence)
    if min(lengths) == sequence:
        raise UnsupportedError(
            f"every text drawn has the full {sequence} tokens, so there is no padding: ask for "
            "sequence=128, as the paper does, or at least 32"
        )
    check_lengths = [max(1, length - 1) for length in reversed(lengths)]
    pad_id = getattr(loaded.module.config, "pad_token_id", None) or 0
    inputs, mask = _pad_ids(ids, lengths, pad_id)
    check_inputs, check_mask = _pad_ids(check_ids, check_lengths, pad_id)
    pair = replace(
        loaded.pair,
        args=(inputs,),
        kwargs={"attention_mask": mask},
        check_args=(check_inputs,),
        check_kwargs={"attention_mask": check_mask},
    )
    return replace(loaded, pair=pair)


def run_unpadded(padded: LoadedModel) -> tuple[torch.Tensor, ...]:
    """Outputs of the main texts, each run alone without padding or mask, as one batch that is zero
    where there is no token."""
    ids, lengths = padded.args[0], read_lengths(padded.kwargs["attention_mask"])
    rows = []
    with preserve_state(padded), torch.inference_mode():
        for place, length in enumerate(lengths):
            text = ids[place : place + 1, :length]
            outputs = flatten_outputs(call_model(functools.partial(padded.module, text)))
            rows.append([_fill(output, ids.shape[1]) for output in outputs])
    return tuple(torch.cat(column) for column in zip(*rows, strict=True))


def keep_tokens(
    outputs: Sequence[torch.Tensor], attention_mask: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Outputs with zero where there is no token: what a model computes there has no meaning."""
    padding = (attention_mask == 0)[:, :, None]
    return tuple(
        output.masked_fill(padding.to(output.device), 0) if output.dim() == 3 else output
        for output in outputs
    )


def _fill(output: torch.Tensor, sequence: int) -> torch.Tensor:
    if output.dim() != 3:
        return output
    return torch.nn.functional.pad(output, (0, 0, 0, sequence - output.shape[1]))


def _pad_ids(
    ids: torch.Tensor, lengths: Sequence[int], pad_id: int
) -> tuple[torch.Tensor, torch.Tensor]:
    places = torch.arange(ids.shape[1], device=ids.device)
    mask = places[None, :] < torch.tensor(lengths, device=ids.device)[:, None]
    return ids.masked_fill(~mask, pad_id), mask.long()


def _read_token_ids(loaded: LoadedModel, *, checks: bool) -> torch.Tensor:
    args, kwargs = (
        (loaded.check_args, loaded.check_kwargs) if checks else (loaded.args, loaded.kwargs)
    )
    given = [*args, *kwargs.values()]
    known = len(given) == 1 and set(kwargs) <= {"input_ids"}
    ids = given[0] if known else None
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.dtype != torch.int64:
        raise UnsupportedError(
            f"the inputs of {loaded.name} are not token ids (batch, sequence) alone, which is all "
            "that can be cut and padded: leave inputs out"
        )
    return ids
