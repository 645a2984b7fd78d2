"""The steps that every model we build goes through: random weights, inputs, dtype and device.

A model is always built on the CPU in fp32 from its seed, and only then rounded and moved. So fp16
on a GPU has the rounded weights of fp32 on a CPU, in every process.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from ftax.errors import InvalidArgumentError
from ftax.records.record import JsonScalar
from ftax.steps.input_trees import flatten_tensors
from ftax.steps.inputs import (
    CALIBRATION_STREAM,
    CHECK_STREAM,
    WEIGHT_STREAM,
    InputPair,
    make_generator,
    make_input_pair,
)
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting
from ftax.steps.spec import TORCH_DTYPES, MakeInputs, ModelSpec, Shape
from ftax.steps.user_inputs import Given, read_user_inputs
from ftax.steps.weights import (
    build_unfilled,
    calibrate_batch_norms,
    calibrate_unit_layers,
    fill_weights,
    seeded_rng,
)


def build_random_module(
    build: Callable[[], nn.Module],
    make_inputs: MakeInputs,
    shape: Shape,
    seed: int,
    unit_layers: Collection[str] = (),
) -> nn.Module:
    """`build()` in eval mode, on the CPU in fp32, with weights from `seed`.

    `shape` is the input on which batch norms and the classes `unit_layers` are calibrated, if
    there are any.
    """
    with seeded_rng(seed):
        module = build_unfilled(build).eval()
    fill_weights(module, make_generator(seed, WEIGHT_STREAM))
    generator = make_generator(seed, CALIBRATION_STREAM)
    calibrate_unit_layers(module, unit_layers, lambda: make_inputs(module, shape, generator))
    calibrate_batch_norms(module, lambda: make_inputs(module, shape, generator))
    return module


def finish_built_model(
    module: nn.Module,
    spec: ModelSpec,
    given: Given | None,
    setting: Setting,
    *,
    again: str,
    options: Mapping[str, JsonScalar],
    warnings: tuple[str, ...] = (),
    check: Callable[[Setting], None],
) -> LoadedModel:
    """Rounds and moves `module`, gives it inputs, and fills in the record.

    `again` is what `load_model` builds the same of. `check` raises for a setting that does not fit,
    this one or one of another size.
    """
    check(setting)
    dtype, device = setting.dtype or "fp32", setting.device or "cpu"
    module.eval().requires_grad_(False).to(device=device, dtype=TORCH_DTYPES[dtype])
    has_sequence = spec.sequence is not None
    if given is None:
        size = setting.sequence or (spec.tiny_size if setting.tiny else spec.size)
        shape = Shape(batch=setting.batch or 1, size=size)
        pair = make_input_pair(
            spec.make_inputs,
            module,
            shape,
            seed=setting.seed,
            dtype=TORCH_DTYPES[dtype],
            device=device,
        )
        batch, sequence = shape.batch, size if has_sequence else None
    else:
        pair = pair_user_inputs(given.at(setting), device, setting.seed)
        batch, sequence = resolve_user_sizes(setting, pair)
    return make_loaded(
        module,
        pair,
        replace(setting, dtype=dtype, device=device, batch=batch, sequence=sequence),
        name=spec.name,
        options={
            "seed": setting.seed,
            "inputs": "random" if given is None else "given",
            "tiny": setting.tiny,
            **options,
        },
        source=spec.source,
        warnings=warnings,
        again=again if given is None else None,
        max_sequence=spec.max_size if has_sequence else None,
        finish=partial(
            finish_built_model,
            module,
            spec,
            given,
            again=again,
            options=options,
            warnings=warnings,
            check=check,
        )
        if given is None or given.makes
        else None,
    )


def make_loaded(
    module: nn.Module,
    pair: InputPair,
    setting: Setting,
    *,
    warnings: tuple[str, ...] = (),
    **own: Any,
) -> LoadedModel:
    """The module with its inputs, and ``own`` fields; a shared parameter counts once. What autocast
    of the caller's computes in is an option: other work than without it."""
    if kinds := _list_autocast():
        own["options"] = {**own.get("options", {}), "autocast": ", ".join(kinds)}
    return LoadedModel(
        module=module,
        pair=pair,
        setting=setting,
        parameter_count=sum(parameter.numel() for parameter in module.parameters()),
        warnings=(*warnings, *pair.warnings),
        **own,
    )


def _list_autocast() -> list[str]:
    """Dtypes of the autocast that is on around the caller, by kind of device: "cpu bfloat16"."""
    return [
        f"{kind} {str(torch.get_autocast_dtype(kind)).removeprefix('torch.')}"
        for kind in ("cpu", "cuda")
        if torch.is_autocast_enabled(kind)
    ]


def pair_user_inputs(given: Given, device: str, seed: int) -> InputPair:
    """The inputs that the user gave, on `device`."""
    return read_user_inputs(given, device=device, generator=make_generator(seed, CHECK_STREAM))


def refuse_variant(setting: Setting, kind: str) -> None:
    """Raises InvalidArgumentError for an option of building, which a module or step is past."""
    for name in ("attention", "use_cache", "tiny"):
        if getattr(setting, name):
            raise InvalidArgumentError(
                f"{name} is {getattr(setting, name)!r}, but a {kind} is already built: "
                f"leave {name} out and build the {kind} that way"
            )


def check_sequence(sequence: int, name: str, unit: str, least: int, most: int | None) -> None:
    """Raises InvalidArgumentError for a length that the model of this name does not take."""
    if least == most != sequence:
        raise InvalidArgumentError(
            f"sequence is {sequence}, but {name} takes {most} {unit} and no other number: "
            "leave sequence out"
        )
    if most is not None and sequence > most:
        raise InvalidArgumentError(
            f"sequence is {sequence}, but {name} takes at most {most} {unit}: "
            f"give {least} to {most}"
        )
    if sequence < least:
        raise InvalidArgumentError(
            f"sequence is {sequence}, but {name} takes at least {least} {unit}"
        )


def resolve_user_sizes(setting: Setting, pair: InputPair) -> tuple[int, int | None]:
    """Batch and sequence of a user's inputs: as told, else the first dimension, or 1, and None.

    Raises InvalidArgumentError for a told size that the first tensor does not have.
    """
    tensors = flatten_tensors((pair.args, dict(pair.kwargs)))
    if not tensors:  # there are only texts and such, of which the user may know the number
        return setting.batch or 1, setting.sequence
    tensor = tensors[0]
    shape = (tensor.size(0),) if tensor.is_nested else tuple(tensor.shape)
    for what, size in (("batch", setting.batch), ("sequence", setting.sequence)):
        if size is not None and size not in shape:
            raise InvalidArgumentError(
                f"{what} is {size}, but the first input has shape {shape}: "
                f"leave {what} out, or give inputs of that size"
            )
    first = shape[0] if shape else 1
    batch = first if setting.batch is None else setting.batch
    if batch == 0:
        raise InvalidArgumentError(
            f"batch is 0, as the first input has shape {shape}: give inputs of one request or more"
        )
    return batch, setting.sequence
