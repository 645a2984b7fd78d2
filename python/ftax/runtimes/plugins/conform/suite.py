"""The list of checks, and the loop that runs them.

A check is here if breaking its promise makes a printed number wrong, and the comparison of outputs
before each measurement does not notice.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import nn

from ftax.errors import InvalidArgumentError, check_number
from ftax.runtimes.plugins.case import make_case
from ftax.runtimes.plugins.conform.report import Conformance, Finding
from ftax.runtimes.plugins.shared_library import split_name
from ftax.runtimes.plugins.trial import Answer, WorkerSession, open_session
from ftax.steps.given import Model, load
from ftax.steps.inputs import make_generator
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting, SettingOptions, normalize_device, read_setting
from ftax.steps.spec import TORCH_DTYPES, Dtype
from ftax.timing.watched import ProgressChoice, watched

LIMIT_S = 60.0
_WIDTHS = (32, 64, 16)  # of the model that libraries are tried on by default
_BATCH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """``function`` is one of `checks`."""

    name: str
    function: str
    devices: tuple[str, ...] = ("cpu", "cuda")


CHECKS = (
    Check(name="interface version", function="check_interface"),
    Check(name="refuses an unknown config", function="check_unknown_config"),
    Check(name="outputs equal eager's", function="check_outputs"),
    Check(name="prepare is no inference", function="check_prepare"),
    Check(name="uses the given stream", function="check_stream", devices=("cuda",)),
    Check(name="is done when its stream is", function="check_done", devices=("cuda",)),
    Check(name="enqueue does not wait", function="check_no_wait", devices=("cuda",)),
)


def conform(
    library: str | os.PathLike[str],
    model: Model | None = None,
    inputs: Any = None,
    *,
    limit_s: float = LIMIT_S,
    progress: ProgressChoice = None,
    **options: Unpack[SettingOptions],
) -> Conformance:
    """Try a shared library that implements ``ftax/runner.h``, each check in its own process.

    Args:
        library: its path, or "path?config".
        model: what it runs; left out, a small two-layer perceptron (`make_perceptron`).
        inputs: of a module, as for `ftax.tax`; models by name bring their own.
        limit_s: how long one check may take, once it has begun and has a CPU.
        options: the fields of `ftax.Setting` that say how the model is built; for the perceptron
            ``dtype`` and ``device``.

    Raises:
        InvalidArgumentError: there is no such file, or an argument is wrong.
    """
    check_number("limit_s", limit_s)
    path, config = split_name(os.fspath(library))
    loaded = _load(model, inputs, read_setting(options, conform.__kwdefaults__))
    case = make_case(loaded)
    findings = []
    with watched(progress, path) as tell, open_session(path, config, case) as session:
        for place, check in enumerate(CHECKS):
            if tell:
                tell(check.name, place, len(CHECKS))
            answer = _run(session, check, loaded.device, limit_s)
            findings.append(Finding(name=check.name, status=answer.status, reason=answer.reason))
    return Conformance(
        plugin=Path(path).name,
        config=config,
        model=loaded.name,
        device=loaded.device,
        findings=tuple(findings),
    )


def explain_perceptron(dtype: Dtype, device: str) -> str:
    """For whose library failed on the model that it was tried on, and is for another one."""
    tensors = make_case(make_perceptron(dtype=dtype, device=device)).describe()
    return (
        f"was tried on a perceptron, two layers with a relu between them: {tensors}. If it is for "
        "another model, use --model, or give that model and its inputs to ftax.conform"
    )


def make_perceptron(*, dtype: Dtype = "fp32", device: str = "cpu") -> LoadedModel:
    """first: 32 to 64, relu, second: 64 to 16; input (4, 32). Weights and inputs are always the
    same."""
    generator = make_generator(0, 0)
    layers = nn.Sequential()
    layers.add_module("first", nn.Linear(_WIDTHS[0], _WIDTHS[1]))
    layers.add_module("between", nn.ReLU())
    layers.add_module("second", nn.Linear(_WIDTHS[1], _WIDTHS[2]))
    with torch.no_grad():
        for weight in layers.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) / weight.shape[-1] ** 0.5)
    kind = TORCH_DTYPES[dtype]
    first, second = (
        torch.randn(_BATCH, _WIDTHS[0], generator=generator).to(device, kind) for _ in range(2)
    )
    return load_model(layers.to(device, kind), inputs=first, check_inputs=second)


def _load(model: Model | None, inputs: Any, setting: Setting) -> LoadedModel:
    given = [*setting.chosen, *([] if inputs is None else ["inputs"])]
    for name in given:
        if name in setting.of_running:
            raise InvalidArgumentError(
                f"{name} says how a model is timed, and conform times nothing: leave {name} out"
            )
        if model is None and name not in ("dtype", "device"):
            raise InvalidArgumentError(
                f"{name} is given without a model, and the perceptron has only dtype and device: "
                "give the model that it is of (--model bert-base)"
            )
    if model is not None:
        return load(model, inputs, None, setting)
    device = "cpu" if setting.device is None else normalize_device(setting.device)
    return make_perceptron(dtype=setting.dtype or "fp32", device=device)


def _run(session: WorkerSession, check: Check, device: str, limit_s: float) -> Answer:
    if device.split(":")[0] not in check.devices:
        return Answer(status="skipped", reason=f"says nothing on {device}")
    return session.run(f"ftax.runtimes.plugins.conform.checks:{check.function}", limit_s=limit_s)
