"""Python's time by line and by module: rows and the rest sum to the lines of the ladder."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import ftax
from ftax.instruments.python_samples import LineSamples, PythonSamples
from ftax.ladders import python_time
from ftax.ladders.python_time import By, compute_python_time, find_problem
from ftax.ladders.receipt import OperatorCost, Receipt
from ftax.records.store import read_records
from ftax.reports.html.page import make_page
from ftax.reports.html.sources import read_sources
from ftax.reports.tables.python_table import draw_python
from ftax.reports.terminal import to_text
from ftax.steps.equal_modules import ModuleGroup
from ftax.timing.plan import Plan
from support.records import make_measurement

GROUPS = (
    ModuleGroup(name="", kind="Net", paths=("",), calls=1),
    ModuleGroup(name="layers.*", kind="Layer", paths=("layers.0", "layers.1"), calls=2),
    ModuleGroup(name="head", kind="Linear", paths=("head",), calls=1),
)
SPIN_NS = 300_000
SAMPLES = PythonSamples(
    samples=1000,
    calls=400,
    call_ns=1100.0,
    lines=(
        LineSamples(line="net.py:4 forward", group=1, samples=300),
        LineSamples(line="net.py:9 forward", group=0, samples=100),
        LineSamples(line="net.py:4 forward", group=0, samples=50),
    ),
    groups=GROUPS,
)


def make_cost(module: str, call_ns: float) -> OperatorCost:
    return OperatorCost(
        index=0, operator="aten::linear", module=module, build_ns=5, call_ns=call_ns, release_ns=5
    )


def make_receipt(tape_ns: int = 400, **changes: object) -> Receipt:
    fields: dict[str, object] = {
        "rungs": (
            make_measurement([1000, 1010, 990] * 2),
            make_measurement([600, 615, 585] * 2, runtime="flat"),
            make_measurement([tape_ns, tape_ns + 4, tape_ns - 4] * 2, host="cpp"),
        ),
        "operator_costs": (
            make_cost("layers.0", 100.0),
            make_cost("layers.1", 90.0),
            make_cost("head", 40.0),
        ),
        "python_samples": SAMPLES,
    }
    return Receipt(**(fields | changes))  # type: ignore[arg-type]


def test_rows_are_shares_of_the_latency_and_sum_with_the_rest_to_the_lines() -> None:
    receipt = make_receipt()
    found = compute_python_time(receipt, "line")
    assert [(row.name, row.kind, row.time_ns) for row in found.rows] == [
        ("net.py:4 forward", "2 kinds", pytest.approx(350)),
        ("net.py:9 forward", "(model)", pytest.approx(100)),
        (python_time.SLOWER, "", pytest.approx(150)),
    ]
    assert found.names == ("model glue", "interpreter and bindings")
    lines = sum(line.time_ns for line in receipt.lines if line.name in found.names)
    assert sum(row.time_ns for row in found.rows) == pytest.approx(lines) == found.time_ns


def test_modules_have_their_operators_beside_them() -> None:
    rows = compute_python_time(make_receipt(), "module").rows
    assert [(row.name, row.kind, row.calls, row.time_ns, row.operators_ns) for row in rows] == [
        ("layers.*", "Layer", 2, pytest.approx(300), 210),
        ("", "Net", 1, pytest.approx(150), 0),
        ("head", "Linear", 1, 0, 50),
        (python_time.SLOWER, "", None, pytest.approx(150), None),
    ]


def test_intervals_are_those_of_shares_and_of_the_latency() -> None:
    (first, second, rest) = compute_python_time(make_receipt(), "line").rows
    assert first.interval_ns is not None
    # Wilson's interval of 350 of 1000 is 0.321 to 0.380; the latency is known within a percent.
    assert first.interval_ns == pytest.approx((321, 380), abs=2)
    for row in (first, second, rest):
        assert row.interval_ns is not None
        assert row.interval_ns[0] < row.time_ns < row.interval_ns[1]


def test_python_that_a_gpu_hides_is_taken_off() -> None:
    receipt = make_receipt(tape_ns=900)
    cells = [replace(rung.cell, device="cuda:0") for rung in receipt.rungs]
    rungs = tuple(replace(r, cell=cell) for r, cell in zip(receipt.rungs, cells, strict=True))
    *_, rest = compute_python_time(replace(receipt, rungs=rungs), "line").rows
    assert (rest.name, rest.time_ns) == (python_time.HIDDEN, pytest.approx(-350))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"python_samples": None}, "where Python's time goes was not sampled: only Python eager"),
        (
            {
                "python_samples": None,
                "warnings": ("where Python's time goes was not sampled: not permitted",),
            },
            "where Python's time goes was not sampled: not permitted",
        ),
        ({"python_samples": replace(SAMPLES, samples=99)}, "99 samples are too few"),
        ({"rungs": make_receipt().rungs[:2]}, "there is no rung without Python"),
    ],
)
def test_what_cannot_be_told_is_said(changes: dict[str, object], told: str) -> None:
    receipt = make_receipt(**changes)
    assert find_problem(receipt).startswith(told)
    assert "by line" not in str(receipt.details)


@pytest.mark.parametrize(("by", "limit"), [("line", 5), ("module", 5), ("module", 1)])
def test_a_table_sums_to_the_lines(by: By, limit: int) -> None:
    text = to_text(draw_python(make_receipt(), by=by, limit=limit), width=140)
    assert "= model glue + interpreter and bindings" in text
    assert "600 ns" in text and "60.0%" in text and python_time.SLOWER in text
    assert "1,000 samples of 400 calls after the rounds, each 1.1 us while" in text
    assert ("2 others" in text) is (limit == 1)
    assert ("layers.*" in text) is (by == "module")


def test_what_is_in_doubt_is_said_first() -> None:
    few = make_receipt(
        rungs=(make_measurement([1000, 1010]), make_measurement([400, 404], host="cpp"))
    )
    text = to_text(draw_python(few, by="line", limit=5), width=140)
    assert text.startswith("Nothing below is resolved: ") and "a call (not resolved)" in text
    assert "by line, a call (not resolved)" in to_text(few.details, width=140)


def test_a_receipt_has_both_tables_and_keeps_the_samples_in_its_file(tmp_path: Path) -> None:
    receipt = make_receipt()
    receipt.save(tmp_path / "receipts.jsonl")
    (loaded,) = Receipt.load(tmp_path / "receipts.jsonl")
    assert loaded.python_samples == SAMPLES
    text = to_text(loaded.details, width=140)
    assert "Python of mlp by line, a call" in text and "Python of mlp by module, a call" in text


def test_the_page_has_both_tables(tmp_path: Path) -> None:
    make_receipt().save(tmp_path / "receipts.jsonl")
    text = make_page(read_sources([tmp_path / "receipts.jsonl"]))
    assert "Python by line and by module" in text and python_time.SLOWER in text


def test_a_receipt_of_before_has_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "receipts.jsonl"
    make_receipt().save(path)
    record = json.loads(path.read_text())
    del record["record"]["python_samples"]
    path.write_text(json.dumps(record) + "\n")
    (loaded,) = read_records(path).records
    assert isinstance(loaded, Receipt) and loaded.python_samples is None


def test_programs_get_all_rows_under_the_header_that_the_page_shows() -> None:
    page = (Path(__file__).parents[3] / "docs" / "results.md").read_text("utf-8")
    (shown,) = re.findall(
        r"`--by module` or `--by line`[^\n]+\n\n```csv\n(.*?)```", page, re.DOTALL
    )
    written = draw_python(make_receipt(), by="module", limit=1).to_numbers().to_csv()
    assert written.splitlines()[0] == "".join(shown.split())
    rows = list(csv.DictReader(io.StringIO(written)))
    assert [(row["part"], row["name"], row["calls"]) for row in rows] == [
        ("module", "layers.*", "2"),
        ("module", "", "1"),
        ("module", "head", "1"),
        ("rest", python_time.SLOWER, ""),
    ]


# --- measured ------------------------------------------------------------------------------------


class Spin(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        end = time.perf_counter_ns() + SPIN_NS
        while time.perf_counter_ns() < end: pass  # noqa: E701  # fmt: skip
        return x.relu()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(12))
        self.spin = Spin()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        result: torch.Tensor = self.spin(x)
        return result


@pytest.mark.timing
def test_a_planted_delay_is_its_line_and_all_lines_sum_to_what_the_rungs_say() -> None:
    plan = Plan(duration_s=3.0)
    receipt = ftax.tax(Net(), (torch.ones(1, 8),), runtimes="none", plan=plan, threads=1)
    assert find_problem(receipt) == ""
    first, *_, rest = compute_python_time(receipt, "line").rows
    assert first.name.startswith(f"test_python_time.py:{Spin.forward.__code__.co_firstlineno + 2} ")
    assert (first.kind, first.time_ns) == ("spin", pytest.approx(SPIN_NS, rel=0.1))
    found = compute_python_time(receipt, "module")
    # The layers and the model itself take about as long: a neighbour may change their order.
    assert [(row.name, row.calls) for row in found.rows[:1]] == [("spin", 1)]
    assert [row.calls for row in found.rows if row.name == "layers.*"] == [12]
    assert abs(rest.time_ns) < 0.2 * found.time_ns


def test_stacks_that_cannot_be_read_cost_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int) -> None:
        raise PermissionError(1, "Operation not permitted", "/proc/self/mem")

    monkeypatch.setattr("ftax_run.sampler.find_python", refuse)
    plan = Plan(rounds=3, warmup=2, round_ms=1.0)
    receipt = ftax.tax(Net(), (torch.ones(1, 8),), runtimes="none", plan=plan)
    assert receipt.python_samples is None and receipt.floors_ns
    (told,) = (text for text in receipt.warnings if "was not sampled" in text)
    assert "stacks of this process cannot be read" in told and "not permitted" in told
    assert find_problem(receipt) == told
