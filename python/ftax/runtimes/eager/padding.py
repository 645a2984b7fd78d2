"""Batches of texts of natural lengths, padded to one length: what nested tensors save work on.

The lengths do not come from the model's inputs but from a normal distribution fitted to the Penn
Treebank (paper section 4.1), with a fixed seed. So every run of one batch size has the same
lengths, and they belong to what was measured.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from dataclasses import replace

import torch

from ftax.errors import UnsupportedError
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model, flatten_outputs
from ftax.tape.tape import preserve_state

MEAN_TOKENS, DEVIATION_TOKENS = 20.92, 10.18  # paper section 4.1
_SEED = 0


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
