"""Eager in the channels-last memory format, which cuDNN and oneDNN may prefer for convolutions.

The model is copied, so weights are on the device twice. The format is a property of the weights,
and the rungs that are measured beside this one must keep theirs. From Python images come as eager
gets them, and its first convolution converts them; the tape of host cpp has them converted.
"""

from __future__ import annotations

import copy
import functools
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ftax.errors import UnsupportedError, describe
from ftax.runtimes.candidates import check_both_inputs
from ftax.runtimes.eager.eager import prepare_call, prepare_eager
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from ftax.steps.tensors import copy_into
from ftax.timing.candidate import Candidate, Host

_RUNTIME = "eager-channels-last"
_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


def prepare_channels_last(workspace: Workspace, host: Host) -> Candidate:
    """A copy of the model in channels-last, or the tape of that and of converted images.

    Raises UnsupportedError for a model without two-dimensional convolutions.
    """
    if not any(isinstance(module, _CONVOLUTIONS) for module in workspace.loaded.module.modules()):
        raise UnsupportedError(
            f"{workspace.loaded.name} has no Conv2d or ConvTranspose2d, whose memory format could "
            "be channels-last"
        )
    variant, cost = workspace.variant(_RUNTIME, _convert)
    if host == "cpp":
        prepared = prepare_eager(variant, host, runtime=_RUNTIME)
        feed = functools.partial(copy_into, variant.loaded.flat_inputs())
        prepared = replace(prepared, feed=feed)
    else:
        loaded = workspace.loaded
        call = functools.partial(variant.loaded.module, *loaded.args, **loaded.kwargs)
        prepared = prepare_call(variant, _RUNTIME, call)
    prepared = replace(prepared, preparation=prepared.preparation.costing(cost))
    # Against the model in its own format, whatever its copy was checked against.
    return replace(prepared, checks=check_both_inputs(workspace, prepared))


def _convert(loaded: LoadedModel) -> LoadedModel:
    try:
        module = copy.deepcopy(loaded.module)
    except Exception as error:  # a module may hold anything
        raise UnsupportedError(
            f"copy.deepcopy cannot copy {loaded.name}: {describe(error)}"
        ) from error
    # The positional form alone is typed for a memory format.
    module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    args, kwargs, check_args, check_kwargs = (
        pytree.tree_map(_convert_leaf, tree)
        for tree in (loaded.args, dict(loaded.kwargs), loaded.check_args, dict(loaded.check_kwargs))
    )
    pair = replace(
        loaded.pair,
        args=args,
        kwargs=kwargs,
        check_args=check_args,
        check_kwargs=check_kwargs,
    )
    return replace(loaded, module=module, pair=pair)


def _convert_leaf(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.dim() == 4 and leaf.is_floating_point():
        return leaf.contiguous(memory_format=torch.channels_last)
    return leaf
