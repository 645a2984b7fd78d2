"""Where a step waits: found on a CPU, where the same operators read memory without any wait."""

import inspect
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

import ftax
from ftax.ladders.receipt import Receipt
from ftax.reports.tables.receipt_table import make_wait_table
from ftax.steps.load import load_model
from ftax.tape.waits import Wait, _WaitLog, find_waits
from support.small_models import load_function


def find_lines(function) -> int:
    return inspect.getsourcelines(function)[1]


def read_twice(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = x * x.sum().item()
    return x


def choose(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].sum() + x.nonzero().sum() + x[0] + x[[0, 1]].sum()


def test_a_read_is_told_with_its_line_and_how_often():
    (wait,) = find_waits(load_function(read_twice))
    line = find_lines(read_twice) + 2
    place = f"test_waits.py:{line} in read_twice"
    assert wait == Wait(operator="aten::item", place=place, count=2)


def test_sizes_that_values_make_are_waits_and_plain_indices_are_none():
    found = find_waits(load_function(choose))
    assert [wait.operator for wait in found] == ["aten::index.Tensor", "aten::nonzero"]


def test_a_training_step_tells_who_reads_its_step_count():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    step = ftax.train(model, lambda m, x: m(x).sum(), optimizer, (torch.ones(2, 4),))
    (wait,) = find_waits(load_model(step))
    assert wait.count == 2  # a parameter each
    assert wait.operator == "aten::_local_scalar_dense"


def test_a_receipt_shows_them_and_survives_a_file(tmp_path):
    plan = ftax.Plan(rounds=2, warmup=2, round_ms=2.0)
    module = nn.Linear(4, 1)
    receipt = ftax.tax(
        module, torch.ones(2, 4), plan=plan, runtimes="none", operators=False, progress=False
    )
    assert receipt.waits == () and receipt.to_dict()["waits"] == []
    fields = {**receipt.to_dict(), "waits": [{"operator": "a", "place": "b.py:1", "count": 3}]}
    changed = Receipt.from_dict(fields)
    changed.save(tmp_path / "r.jsonl")
    (again,) = Receipt.load(tmp_path / "r.jsonl")
    assert again.waits == (Wait(operator="a", place="b.py:1", count=3),)
    assert make_wait_table(again).rows == (("a", "b.py:1", "3"),)


@pytest.mark.parametrize(
    ("copy", "waits"),
    [
        (lambda here, there: here.to("meta"), True),
        (lambda here, there: there.copy_(here), True),
        (lambda here, there: here.to("meta", non_blocking=True), False),
        (lambda here, there: there.copy_(here, non_blocking=True), False),
        (lambda here, there: there.copy_(here, True), False),
        (lambda here, there: here.to(torch.float64), False),
        (lambda here, there: here.copy_(here + 1), False),
        (lambda here, there: there.copy_(there.clone()), False),
    ],
)
def test_copies_between_host_and_device_wait_in_both_directions(
    copy: Callable[[torch.Tensor, torch.Tensor], object], waits: bool
):
    here, there = torch.ones(2), torch.ones(2, device="meta")  # which stands for a GPU
    with _WaitLog(torch.device("meta")) as log:
        copy(here, there)
    assert sum(log.found.values()) == waits


def test_a_library_that_makes_the_tokens_tells_its_own_waits():
    step = ftax.decode(ftax.load_model("llama-160m", tiny=True).module, context=16, tokens=4)
    own = find_waits(load_model(replace(step, through_library=None)))
    assert own == ()
    found = find_waits(load_model(step))
    stops = [wait for wait in found if wait.place.startswith("transformers/generation")]
    assert max(wait.count for wait in stops) == 4  # a token each
