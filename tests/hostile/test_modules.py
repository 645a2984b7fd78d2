"""Nothing false looks true: every odd module is measured right, refused in words, or marked, and
all that it could reach is afterwards as it was.

Nothing of ftax judges here. What is looked at before and after, the third input, and the comparison
of outputs are written again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
import os
import random
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hostile import modules as _modules  # noqa: F401  # enters the table
from hostile.table import TABLE, Case
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin
from torch.utils import _pytree as pytree

import ftax
import ftax.ladders.measure_receipt
from ftax.ladders.choice import prepare_all
from ftax.ladders.ladder import EAGER
from ftax.ladders.receipt import Receipt
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import load, measuring
from support.small_models import normal

# Enough time for the calls in a row; rounds and warm-up are counted and not timed.
SHORT = ftax.Plan(rounds=3, warmup=2, duration_s=5.0, round_ms=0.2)
SETTING = ftax.Setting()


def _choose(cases: Mapping[str, Case]) -> list[Any]:
    return [pytest.param(case, id=name, marks=case.marks) for name, case in cases.items()]


# Tape, refusal and restoration are there without a receipt. What a receipt says is asked of one, as
# is what fails in one of many calls.
DIRECT = {
    name: case
    for name, case in TABLE.items()
    if case.outcome != "marked" and not (case.outcome == "right" and case.words)
    if case.runtimes == "none" and not name.startswith("RaisesAtCall")
}
OTHERS = {name: case for name, case in TABLE.items() if name not in DIRECT}
SOME = {name: DIRECT[name] for name in list(DIRECT)[::5]}


@pytest.mark.parametrize("case", _choose(DIRECT))
def test_a_tape_is_the_model_or_is_refused(case: Case) -> None:
    module, inputs = case.make(), case.inputs(0)
    second = case.inputs(1) if case.check else None
    before = Look(module, inputs, second)
    reasons, space = [], None
    try:
        with contextlib.redirect_stdout(io.StringIO()), measuring(module, SETTING, inputs, second):
            space = Workspace(load(module, inputs, second, SETTING))
            prepared, unavailable = prepare_all(space, EAGER.list_places("cpu"), None)
            reasons = [item.reason for item in unavailable]
    except ftax.errors.FtaxError as error:
        prepared, reasons = [], [str(error)]
    assert Look(module, inputs, second).differs_from(before) == []
    if case.outcome == "refused":
        assert len(prepared) <= 1
        assert any(case.words in reason for reason in reasons)
        return
    assert reasons == [] and space is not None
    assert len(prepared) == 3
    assert all(item.checks.judge_outputs().equal for item in prepared)
    check_third_input(case, space)


@pytest.mark.parametrize("case", _choose(OTHERS))
def test_nothing_false_looks_true(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    check_receipt(case, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("case", _choose(SOME))
def test_a_receipt_is_honest_too(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    check_receipt(case, monkeypatch)


@pytest.mark.parametrize("at", [1, 2, 5, 6, 12, 20, 60])
def test_an_interruption_leaves_all_as_it_was(at: int) -> None:
    module, inputs = Interrupted(at), (normal(3, 4),)
    before = Look(module, inputs)
    with contextlib.suppress(KeyboardInterrupt):
        receipt = ftax.tax(module, inputs, runtimes="none", operators=False, plan=SHORT)
        assert any("interrupted" in text for text in receipt.collect_warnings())
    assert Look(module, inputs).differs_from(before) == []


class Interrupted(nn.Module):
    """Ctrl-C is pressed during one of its calls, and all that it could leave is left."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.calls, self.table = at, [], torch.zeros(4)
        self.weight = nn.Parameter(torch.ones(4))
        self.dropout = nn.Dropout()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append(x)
        self.late = self.table.add_(1) + torch.rand(4)
        self.weight.mul_(2)
        os.environ["HOSTILE"] = "1"
        if len(self.calls) == self.at:
            raise KeyboardInterrupt
        return x * 2


def check_receipt(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = []
    run_tax = ftax.ladders.measure_receipt.run_tax
    monkeypatch.setattr(
        ftax.ladders.measure_receipt,
        "run_tax",
        lambda found, *rest: (spaces.append(found), run_tax(found, *rest))[1],
    )
    module, inputs = case.make(), case.inputs(0)
    given = {"check_inputs": case.inputs(1)} if case.check else {}
    looks = [Look(module, inputs, given)]
    refusal, receipt = "", None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            receipt = ftax.tax(
                module, inputs, runtimes=case.runtimes, operators=False, plan=SHORT, **given
            )
    except ftax.errors.FtaxError as error:
        refusal = str(error)
    looks.append(Look(module, inputs, given))
    assert looks[1].differs_from(looks[0]) == []
    if receipt is None:
        assert case.outcome == "refused"
        assert case.words in refusal
        return
    check_honesty(receipt)
    if case.outcome == "refused":
        assert len(receipt.rungs) == 1
        assert any(case.words in item.reason for item in receipt.unavailable)
        return
    assert case.words in "\n".join(receipt.collect_warnings())
    if case.outcome == "right":
        assert not receipt.work_problem
        assert len(receipt.rungs) == 3
        assert all(row.outputs_equal for row in receipt.runtimes)
        check_third_input(case, spaces[0])


def check_honesty(receipt: Receipt) -> None:
    """What no receipt may say, whatever was measured."""
    advice = receipt.recommendation
    praised = advice.split("Faster still, but not recommended")[0]
    if receipt.work_problem:
        assert len(receipt.lines) == 1 and receipt.python_tax_ns is None
        assert "gives back" not in advice
    for row in receipt.runtimes:
        if row.label != "eager/python" and (receipt.work_problem or not row.outputs_equal):
            assert row.excluded
            assert row.label.replace("/", " from ") not in praised
    assert str(receipt) and str(receipt.details)  # a name or a message that looks like markup
    assert Receipt.from_dict(receipt.to_dict()).lines == receipt.lines


def check_third_input(case: Case, space: Any) -> None:
    """The tape and the flat program that were timed, on inputs that ftax never saw."""
    third = case.inputs(2)
    tensors = list_tensors(third)
    module = case.make()
    module.eval()
    space.taped.tape.bind_inputs(tensors)
    for replay in (space.taped.tape.run, lambda: space.flat.function(*tensors)):
        outputs, expected = run(replay), run(lambda: call(module, third))
        assert len(outputs) == len(expected)
        for output, reference in zip(outputs, expected, strict=True):
            assert output.dtype == reference.dtype and output.shape == reference.shape
            assert same_values(output, reference)


def call(module: nn.Module, inputs: Any) -> Any:
    return module(**inputs) if isinstance(inputs, dict) else module(*inputs)


def run(function: Any) -> list[torch.Tensor]:
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(11)
        with contextlib.redirect_stdout(io.StringIO()):
            return [tensor.clone() for tensor in list_tensors(function())]


def list_tensors(value: Any) -> list[torch.Tensor]:
    if dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    found = []
    for leaf in pytree.tree_leaves(value, is_leaf=dataclasses.is_dataclass):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif dataclasses.is_dataclass(leaf):
            found += list_tensors(leaf)
    return found


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    return memory_of(a) == memory_of(b)


def memory_of(tensor: torch.Tensor) -> Any:
    """The bytes of a tensor's values, of whatever layout."""
    if isinstance(tensor, UninitializedTensorMixin) or tensor.is_meta:
        return "no memory"
    if tensor.is_nested:
        return [memory_of(part) for part in tensor.unbind()]
    tensor = tensor.detach()
    if type(tensor) is not torch.Tensor:
        tensor = tensor.as_subclass(torch.Tensor)
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    tensor = tensor.resolve_conj().resolve_neg().contiguous().clone()
    return bytes(tensor.reshape(-1).view(torch.uint8).tolist())


class Look:
    """All that a model can reach, as it is now: by name, something that compares."""

    def __init__(self, module: nn.Module, *given: Any) -> None:
        self.facts: dict[str, Any] = dict(_list_switches())
        self.alive: list[Any] = []  # so that no identity is used twice
        self._seen: set[int] = set()
        for name, part in nn.Module.named_modules(module):
            self._walk(f"module {name}", vars(part))
        self._walk("given", given)

    def differs_from(self, before: Look) -> list[str]:
        names = {**before.facts, **self.facts}
        missing = object()
        return [
            name
            for name in names
            if before.facts.get(name, missing) != self.facts.get(name, missing)
        ]

    def _walk(self, name: str, value: Any) -> None:
        self.alive.append(value)
        if isinstance(value, nn.Module | int | float | str | type(None)):
            self.facts[name] = id(value) if isinstance(value, nn.Module) else value
            return
        if not isinstance(value, tuple):
            self.facts[name] = id(value)
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, torch.Tensor):
            self.facts[f"{name}: tensor"] = describe_tensor(value)
        elif isinstance(value, torch.Generator):
            self.facts[f"{name}: state"] = bytes(value.get_state().tolist())
        elif isinstance(value, Mapping):
            self.facts[f"{name}: keys"] = list(value)
            for key, item in value.items():
                self._walk(f"{name}[{key!r}]", item)
        elif isinstance(value, list | tuple | deque | set):
            self.facts[f"{name}: length"] = len(value)
            for place, item in enumerate(value):
                self._walk(f"{name}[{place}]", item)
        elif hasattr(type(value), "__slots__"):
            for slot in type(value).__slots__:
                self._walk(f"{name}.{slot}", getattr(value, slot, None))


def describe_tensor(tensor: torch.Tensor) -> list[Any]:
    facts = [tensor.dtype, tensor.requires_grad, memory_of(tensor)]
    if isinstance(tensor, UninitializedTensorMixin):
        return facts
    facts.append(tensor.is_inference())
    if tensor.layout is torch.strided and not tensor.is_nested:
        facts += [tensor.shape, tensor.stride(), tensor.data_ptr(), tensor.grad is None]
    return facts


def _list_switches() -> Iterator[tuple[str, Any]]:
    yield "grad mode", (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    yield "default dtype", torch.get_default_dtype()
    yield "default device", getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    yield "threads", (torch.get_num_threads(), torch.get_num_interop_threads())
    yield "deterministic", torch.are_deterministic_algorithms_enabled()
    yield "only warned", torch.is_deterministic_algorithms_warn_only_enabled()
    yield "autocast", [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")]
    yield "autocast to", torch.get_autocast_dtype("cpu")
    yield "precision", torch.get_float32_matmul_precision()
    yield "random numbers", bytes(torch.get_rng_state().tolist())
    yield "random numbers of Python", random.getstate()
    yield "random numbers of numpy", str(np.random.get_state())
    yield "environment", dict(os.environ)
    yield "folder", os.getcwd()
    yield "garbage", gc.isenabled()
    yield "Python's threads", [t.name for t in threading.enumerate() if not t.daemon]
    hooks = nn.modules.module
    yield "hooks", (len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks))
    yield "modes", torch._C._len_torch_dispatch_stack() + torch._C._len_torch_function_stack()
