"""`ftax show FILE`: results are printed again, and with `--all` the errors that they keep."""

from dataclasses import replace

import pytest
from torch import nn

import ftax
from ftax.cli.reading import list_errors
from ftax.errors import describe, tell_in_full
from ftax.ladders.receipt import Unavailable
from support.forks import run_command
from support.records import make_measurement
from support.runtimes_receipt import ORT, WRONG, make_cpu_receipt, make_runtime
from support.small_models import normal
from support.sweeps import make_cell, make_measured

MANY_LINES = "\n".join(f"line {number}: {'y' * 90}" for number in range(100))


def show(*arguments):
    return run_command("show", *map(str, arguments), environment={"COLUMNS": "80"})


def make_failed():
    try:
        raise RuntimeError(f"no such operator\n{MANY_LINES}")
    except RuntimeError as error:
        missing = Unavailable(
            runtime="torchscript", host="cpp", reason=describe(error), error=tell_in_full(error)
        )
    checks = {**WRONG, "problem": "it fails: RuntimeError", "error": "all of what it said"}
    receipt = make_cpu_receipt(make_runtime(ORT, 300.0, outputs=checks))
    return replace(receipt, unavailable=(missing,))


def test_a_receipt_is_printed_again_and_its_errors_on_demand(tmp_path):
    path, receipt = tmp_path / "receipt.jsonl", make_failed()
    receipt.save(path)
    short, whole = show(path), show(path, "--all")
    assert (short.returncode, whole.returncode) == (0, 0), whole.stderr
    assert "1,000 us a call, of which 30 % (30 to 30) is Python" in short.stdout
    assert "no such operator" not in short.stdout and len(short.stdout.splitlines()) <= 35
    assert f"ftax show {path} --all: rungs".replace(" ", "") in "".join(short.stdout.split())
    tables = whole.stdout.partition("Traceback")[0]
    assert "Receipt: mlp" in tables and "no such operator [...]" in tables
    assert "line 1: " not in tables and "ftax show FILE --all" in whole.stdout
    assert "torchscript/cpp:\nTraceback (most recent call last)" in whole.stdout
    assert f"no such operator\n{MANY_LINES}" in whole.stdout
    assert "onnxruntime/cpp, whose outputs were checked:\nall of what it said" in whole.stdout


def test_all_results_of_a_file_are_printed_and_markdown_too(tmp_path):
    path = tmp_path / "results.jsonl"
    for runtime in ("eager", "flat"):
        make_measurement([100, 110], runtime=runtime).save(path)
    shown = show(path)
    assert shown.returncode == 0 and "eager" in shown.stdout and "flat" in shown.stdout
    assert "| runtime |" in show(path, "--markdown").stdout
    several = show(path, "--csv")
    assert several.returncode == 2 and "has 2 results, whose columns differ" in several.stderr


def test_a_sweep_is_printed_from_its_folder_or_its_file(tmp_path):
    make_measured(make_cell()).save(tmp_path / "cells.jsonl")
    from_folder, from_file = show(tmp_path), show(tmp_path / "cells.jsonl")
    assert from_folder.returncode == 0, from_folder.stderr
    assert from_folder.stdout == from_file.stdout and "eager" in from_file.stdout


def test_a_file_without_what_is_printed_says_so(tmp_path):
    path = tmp_path / "other.jsonl"
    make_measured(make_cell()).save(path)
    result = show(path)
    assert result.returncode == 2 and f"`ftax report {path}` lists it" in result.stderr
    assert show(tmp_path / "none.jsonl").returncode == 2


def test_a_record_that_holds_long_texts_is_printed_in_short():
    long = "word " * 2000
    checks = {**WRONG, "problem": long}
    missing = Unavailable(runtime="torchscript", host="cpp", reason=long)
    receipt = make_cpu_receipt(make_runtime(ORT, 300.0, outputs=checks))
    shown = str(replace(receipt, unavailable=(missing,)).details)
    assert shown.count("word") < 400 and len(shown.splitlines()) < 80


class FailsOnceTraced(nn.Module):
    """With a message of so many lines, that holds its weights."""

    def __init__(self, lines):
        super().__init__()
        self.weight = nn.Parameter(normal(30, 30))
        self.lines = lines

    def forward(self, x):
        import torch

        if torch.jit.is_tracing():
            lines = "\n".join(f"line {number}: {'y' * 90}" for number in range(self.lines))
            raise ValueError(f"bad weights {self.weight}\n{lines}")
        return x @ self.weight


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_the_length_of_a_receipt_does_not_depend_on_that_of_its_errors():
    plan = ftax.Plan(rounds=3, warmup=2, round_ms=1.0)
    few, many = (
        ftax.tax(FailsOnceTraced(lines), normal(4, 30), runtimes=["torchscript"], plan=plan)
        for lines in (10, 60)
    )
    reasons = [[item.reason for item in receipt.unavailable] for receipt in (few, many)]
    said = "torch.jit.trace cannot trace FailsOnceTraced: bad weights tensor(...) [...]"
    assert reasons == [[said, said]] * 2
    for _, text in list_errors(many):
        assert "line 0: " in text and "line 59: " in text and "Traceback" in text


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_traceback_of_torchscript_is_in_the_record_and_not_in_the_table():
    class Picks(nn.Module):
        def forward(self, x):
            count = int((x > 0).sum())
            return x[x > 0].view(count)

    plan = ftax.Plan(rounds=3, warmup=2, round_ms=1.0)
    receipt = ftax.tax(Picks(), normal(9, 9), runtimes=["torchscript"], hosts=["cpp"], plan=plan)
    (row,) = (row for row in receipt.runtimes if row.label == "torchscript/cpp")
    assert "it fails" in row.outputs and "is invalid for input of size" in row.outputs
    assert "Traceback" not in str(receipt.details)
    (found,) = (text for name, text in list_errors(receipt) if name.startswith("torchscript/cpp,"))
    assert "Traceback of TorchScript" in found
