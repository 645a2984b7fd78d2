"""Numbers that a captured call reads of tensors and only returns, and what is said of others."""

from __future__ import annotations

import copy
import functools
import json
import logging
import math
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ftax
from ftax.captures.returned_reads import Unusable
from support.captures import Hidden, count

pytestmark = pytest.mark.usefixtures("record_at_once")


def make_training() -> tuple[nn.Module, Callable[..., Any]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)

    def step(x: torch.Tensor, target: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return {
            "loss": loss.item(),
            "seen": x.size(0),
            "gradient": float(model[0].weight.grad[0, 0]),
        }

    return model, step


@pytest.mark.usefixtures("alone")
def test_a_training_step_returns_its_loss_as_a_number():
    (model, step), (twin, twins_step) = make_training(), make_training()
    batches = [(torch.randn(4, 8), torch.randn(4, 1)) for _ in range(20)]
    captured = ftax.capture(step, batches[0])
    seed = torch.random.get_rng_state()
    found = [captured(*batch) for batch in batches]
    torch.random.set_rng_state(seed)
    assert found == [twins_step(*batch) for batch in batches]
    assert all(map(torch.equal, model.parameters(), twin.parameters()))
    assert count(captured, "replayed") >= 18
    facts = captured.explain().programs[-1]
    assert (facts.baked, facts.checked) == ((), 0)


@pytest.mark.usefixtures("alone", "no_grad")
def test_a_number_that_a_replay_returns_is_checked():
    hidden = Hidden()
    captured = ftax.capture(lambda x: (x * hidden.read()).sum().item(), torch.ones(3))
    hidden.set(3.0)
    captured.audit(1)
    with pytest.raises(ftax.RunnerError, match="output 0 has other values"):
        captured(torch.ones(3))


@pytest.mark.usefixtures("alone", "no_grad")
def test_a_number_that_only_other_inputs_have_used_is_told():
    def run(x: torch.Tensor) -> Any:
        total = x.sum().item()
        return (x, total) if x[0] > 0 else (x, total * 2)

    with pytest.raises(ftax.UnsupportedError, match="only returns in some calls, and uses in oth"):
        ftax.capture(run, torch.ones(3), check_inputs=-torch.ones(3))


@pytest.mark.usefixtures("no_grad")
def test_beside_other_threads_nothing_stands_in_the_place_of_float():
    found: list[Any] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.0):
            x = torch.tensor(2.5)
            found.append((float, type(float(x)), x.item(), x.tolist()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        captured = ftax.capture(lambda x: (x.sum().item(), x.tolist()), torch.ones(3))
        with pytest.raises(ftax.UnsupportedError, match="reads a number"):
            ftax.capture(lambda x: float(x.sum()), torch.ones(3))
    finally:
        is_over.set()
        thread.join()
    assert captured(torch.ones(3) * 2) == (6.0, [2.0] * 3)
    assert set(map(repr, found)) == {repr((float, float, 2.5, 2.5))}


@pytest.mark.usefixtures("alone", "no_grad")
def test_after_an_error_all_is_as_it_was():
    def run(x: torch.Tensor) -> Any:
        total = float(x.sum())
        if isinstance(total, float):
            raise ValueError("no")
        return total

    with pytest.raises(ftax.RunnerError, match="no"):
        ftax.capture(run, torch.ones(3))
    assert "item" not in vars(torch.Tensor)
    assert "float" not in globals()


def log_it(x: torch.Tensor) -> torch.Tensor:
    total = x.sum()
    logging.getLogger("ftax.tests").error("total %s", total)  # here
    return total


def log_number(x: torch.Tensor) -> float:
    total = x.sum().item()
    logging.getLogger("ftax.tests").error("total %.3f", total)  # here
    return total


def print_item(x: torch.Tensor) -> torch.Tensor:
    print(x.sum().item())  # here
    return x * 2


def print_later(x: torch.Tensor) -> torch.Tensor:
    total = x.sum().item()
    print("first")
    print("total", f"{total:.3f}")  # here
    return x * 2


def print_tensor(x: torch.Tensor) -> torch.Tensor:
    print("x", x)  # here
    return x * 2


def print_list(x: torch.Tensor) -> torch.Tensor:
    print(x.tolist())  # here
    return x * 2


def print_text(x: torch.Tensor) -> torch.Tensor:
    print(f"{x.mean():.3f}")  # here
    return x * 2


@pytest.mark.usefixtures("alone", "no_grad")
def test_a_library_that_makes_records_of_logs_is_not_the_line_to_move(
    monkeypatch: pytest.MonkeyPatch,
):
    source = """
def make_record(*args, **kwargs):
    bool(args[5][0])
    return make(*args, **kwargs)
"""
    space: dict[str, Any] = {"make": logging.getLogRecordFactory()}
    exec(compile(source, "/elsewhere/log.py", "exec"), space)
    monkeypatch.setattr(logging, "_logRecordFactory", space["make_record"])
    with pytest.raises(
        ftax.UnsupportedError, match=r"move test_returned_reads\.py:\d+, which prints"
    ):
        ftax.capture(log_number, torch.ones(3))


@pytest.mark.usefixtures("alone", "no_grad")
@pytest.mark.parametrize(
    "run", [log_it, log_number, print_item, print_later, print_tensor, print_list, print_text]
)
def test_the_line_that_prints_is_the_one_to_move(run: Callable[..., Any]):
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    first = run.__code__.co_firstlineno
    line = next(place for place in range(first, first + 9) if lines[place - 1].endswith("# here"))
    words = rf"move test_returned_reads\.py:{line}, which prints it, out of"
    with pytest.raises(ftax.UnsupportedError, match=words):
        ftax.capture(run, torch.ones(3))


@pytest.mark.usefixtures("alone", "no_grad")
def test_a_print_of_several_lines_is_named_by_its_first():
    def run(x: torch.Tensor) -> torch.Tensor:
        print(
            "total",
            x.sum().item(),
        )
        return x

    line = run.__code__.co_firstlineno + 3
    with pytest.raises(ftax.UnsupportedError, match=rf"move test_returned_reads\.py:{line}"):
        ftax.capture(run, torch.ones(3))


USES: dict[str, Callable[[Any], Any]] = {
    "add": lambda v: v + 1,
    "add to": lambda v: 1 + v,
    "negate": lambda v: -v,
    "equal": lambda v: v == 1,
    "less": lambda v: v < 1,
    "larger of two": lambda v: max(v, 1),
    "hash": hash,
    "key": lambda v: {v: 1},
    "in a set": lambda v: {v},
    "truth": bool,
    "not": lambda v: not v,
    "float": float,
    "int": int,
    "complex": complex,
    "round": round,
    "abs": abs,
    "power": lambda v: 2**v,
    "index": lambda v: [1, 2][v],
    "range": range,
    "size": lambda v: [0] * v,
    "text": str,
    "repr": repr,
    "format": lambda v: f"{v:.3f}",
    "percent": lambda v: "%s" % v,  # noqa: UP031
    "attribute": lambda v: v.real,
    "method": lambda v: v.is_integer(),
    "class": lambda v: v.__class__,
    "instance": lambda v: isinstance(v, float),
    "length": len,
    "iterate": lambda v: [*v],
    "unpack": lambda v: dict(v),
    "item": lambda v: v[0],
    "contains": lambda v: 1 in v,
    "write an item": lambda v: v.__setitem__(0, 1),
    "nan": math.isnan,
    "floor": math.floor,
    "sum": lambda v: sum([v]),
    "copy": copy.copy,
    "deep copy": copy.deepcopy,
    "pickle": pickle.dumps,
    "json": json.dumps,
    "array": np.array,
    "numpy": np.sin,
    "numpy's number": np.float64,
    "tensor": torch.tensor,
    "operand": lambda v: torch.ones(2) * v,
    "fill": lambda v: torch.full((2,), v),
    "write": lambda v: torch.ones(2).fill_(v),
    "cache": lambda v: functools.cache(lambda w: w)(v),
    "dispatch": lambda v: functools.singledispatch(lambda w: w)(v),
    "bytes": bytes,
    "call": lambda v: v(),
    "delete": lambda v: delattr(v, "x"),
    "set": lambda v: setattr(v, "x", 1),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_each_use_is_noted_or_raises(use: Callable[[Any], Any]):
    noted: list[Any] = []
    number = Unusable(noted.append)
    try:
        use(number)
    except Exception:
        return
    assert noted


@pytest.mark.parametrize(
    "use",
    [
        lambda v: (v, [v], {"a": v}),
        lambda v: [v].pop(),
        lambda v: v is None,
        lambda v: next(iter([v])),
        lambda v: functools.partial(lambda w: w, v)(),
        torch.utils._pytree.tree_leaves,
    ],
    ids=["containers", "pop", "none", "iterate", "call", "flatten"],
)
def test_passing_it_on_is_no_use(use: Callable[[Any], Any]):
    noted: list[Any] = []
    use(Unusable(noted.append))
    assert not noted
