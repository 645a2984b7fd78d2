"""`ftax compare`: results from files and cells, more than two, and the exit codes of a gate."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

import ftax
from ftax.cli import ending
from ftax.cli.commands import app
from ftax.errors import RunnerError
from ftax.ladders.pairs import PairRuns
from ftax.records.store import append_record
from ftax.timing.call_inputs import CallInput
from support.fleet import A100, H100, make_cell, make_machine
from support.forks import run_command
from support.records import make_measurement
from support.runtimes_receipt import ORT, make_cpu_receipt, make_runtime


def run(*arguments, cwd=None):
    return run_command("compare", *map(str, arguments), cwd=cwd, environment={"COLUMNS": "80"})


def make_receipt(label="", eager_us=1000.0):
    return make_cpu_receipt(make_runtime(ORT, 300.0), eager_us=eager_us).with_label(label)


def test_two_receipts_are_told_line_by_line_and_kept(tmp_path):
    make_receipt("main").save(tmp_path / "before.jsonl")
    make_receipt("branch", 1500.0).save(tmp_path / "after.jsonl")
    result = run("before.jsonl", "after.jsonl", "--json", "c.jsonl", cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    assert "branch against main: slower" in result.stdout
    assert "branch against main, line by line" in result.stdout
    assert "What changed most is operators" in result.stdout
    assert result.stderr == "appended 1 record to c.jsonl\n"
    (record,) = ftax.read_records(tmp_path / "c.jsonl").records
    assert record.lines[0].name == "model glue"
    assert "".join(str(record).split()) == "".join(result.stdout.split())


def test_labels_of_one_file_are_its_results(tmp_path):
    path = tmp_path / "r.jsonl"
    for label, eager_us in (("first", 1000.0), ("second", 900.0), ("third", 1100.0)):
        make_receipt(label, eager_us).save(path)
    result = run(path)
    assert result.returncode == 1, result.stderr
    assert "second against first: faster" in result.stdout
    assert "third against first: slower" in result.stdout
    twice = run(path, path)
    assert twice.returncode == 1, twice.stderr
    assert twice.stdout.count("against") > 5  # six results, the first of which is the measure


def test_results_without_labels_go_by_their_files(tmp_path):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        make_receipt().save(tmp_path / folder / "r.jsonl")
    result = run("x/r.jsonl", "y/r.jsonl", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "y/r.jsonl against x/r.jsonl: cannot tell" in result.stdout
    named = run("x/r.jsonl", "y/r.jsonl", "--label", "old", "--label", "new", cwd=tmp_path)
    assert "new against old: cannot tell" in named.stdout
    same = run("x/r.jsonl", "x/r.jsonl", cwd=tmp_path)
    assert "x/r.jsonl (2) against x/r.jsonl (1): cannot tell" in same.stdout


@pytest.mark.parametrize(
    ("values", "fail_on", "code"),
    [
        ([100, 101, 99], "slower", 0),
        ([100, 101, 99], "unsure", 5),  # two processes of the same code may differ by 5 %
        ([90, 110, 130], "slower", 0),
        ([90, 110, 130], "unsure", 5),
        ([200, 201, 199], "slower", 1),
        ([103, 104, 102], "slower", 0),
        ([200, 201, 199], "unsure", 1),
        ([50, 51, 49], "unsure", 0),
    ],
)
def test_a_gate_fails_on_what_it_is_told_to(tmp_path, values, fail_on, code):
    make_measurement([100, 101, 99]).save(tmp_path / "a.jsonl")
    make_measurement(values, session="f" * 16).save(tmp_path / "b.jsonl")
    result = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--fail-on", fail_on)
    assert result.returncode == code, result.stdout + result.stderr
    assert ("cannot be told whether it is slower by more than 5%" in result.stderr) == (code == 5)


@pytest.mark.parametrize(
    ("change", "fail_on", "code", "verdict"),
    [
        (1.0, "unsure", 0, "equal"),
        (1.03, "unsure", 0, "slower"),  # for certain, and by less than the margin
        (1.05, "slower", 0, "slower"),
        (1.05, "unsure", 5, "slower"),  # by more or by less than the margin
        (1.2, "unsure", 1, "slower"),
        (0.8, "unsure", 0, "faster"),
    ],
)
def test_a_gate_knows_of_pairs_by_turns_what_is_within_the_margin(
    tmp_path, change, fail_on, code, verdict
):
    for label, level in (("before", 1.0), ("after", change)):
        for place, own in enumerate((1.0, 1.002, 0.998, 1.001, 0.999)):
            luck = 1.0 if label == "before" else own
            item = make_measurement(
                [round(100_000 * level * luck)] * 5, index=place, pid=place + 1,
                checks={"rounds_a_turn": 5},
            )  # fmt: skip
            item.with_label(label).save(tmp_path / "r.jsonl")
    result = run(tmp_path / "r.jsonl", "--fail-on", fail_on)
    assert result.returncode == code, result.stdout + result.stderr
    assert f"after against before: {verdict}" in result.stdout


def test_inputs_that_differ_are_refused_in_words(tmp_path):
    for name, tokens in (("a", 64), ("b", 27)):
        inputs = [{"name": "input_ids", "dtype": "int64", "shape": (1, tokens), "digest": name}]
        item = make_measurement([100, 101, 99], inputs=tuple(CallInput(**each) for each in inputs))
        item.save(tmp_path / f"{name}.jsonl")
    refused = run("a.jsonl", "b.jsonl", cwd=tmp_path)
    assert refused.returncode == 2
    assert "input_ids is int64 (1, 64) for a and int64 (1, 27) for b" in refused.stderr
    allowed = run("a.jsonl", "b.jsonl", "--allow-different-inputs", cwd=tmp_path)
    assert allowed.returncode == 0 and "input_ids is int64 (1, 64)" in allowed.stdout


def test_other_machines_are_refused_with_exit_code_2_unless_allowed(tmp_path):
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    make_measurement([100, 101, 99]).save(a)
    make_measurement([100, 101, 99]).save(b)
    line = json.loads(b.read_text())
    line["record"]["environment"]["software"]["torch"] = "9.9.9"
    b.write_text(json.dumps(line) + "\n")
    refused = run(a, b)
    assert refused.returncode == 2 and "--allow-different" in refused.stderr
    allowed = run(a, b, "--allow-different")
    assert allowed.returncode == 0 and "torch is" in allowed.stdout


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["one.jsonl"], "one.jsonl holds one result; give another file"),
        (["one.jsonl", "both.jsonl"], "has receipts, measurements or runs side by side"),
        (["one.jsonl", "knee.jsonl"], "has no receipt, no measurement and no run"),
        (["one.jsonl", "bert-base"], "give results files or cells, not some of each"),
        (["bert-base"], "bert-base is one cell; give another"),
        (["a:b:c:d", "bert-base"], "write MODEL[:RUNTIME[:HOST]]"),
        (["one.jsonl", "one.jsonl", "--fail-on", "faster"], "'slower', 'unsure'"),
    ],
)
def test_what_is_no_comparison_is_refused_in_words(tmp_path, names, words):
    make_measurement([100, 101, 99]).save(tmp_path / "one.jsonl")
    make_measurement([100, 101, 99]).save(tmp_path / "both.jsonl")
    make_receipt().save(tmp_path / "both.jsonl")
    ftax.compare(make_receipt(), make_receipt()).save(tmp_path / "knee.jsonl")
    result = run(*names, cwd=tmp_path)
    assert result.returncode == 2
    assert words in " ".join(result.stderr.split())


def test_a_file_of_both_hosts_is_compared_host_by_host(tmp_path):
    for label, cost in (("before", 100), ("after", 80)):
        for host in ("python", "cpp"):
            measurement = make_measurement([cost, cost + 1, cost - 1], host=host)
            measurement.with_label(label).save(tmp_path / "r.jsonl")
    result = run(tmp_path / "r.jsonl")
    assert result.returncode == 0, result.stderr
    assert "eager/cpp" in result.stdout and result.stdout.count("faster") >= 3


def test_labels_are_given_when_measuring(tmp_path):
    path = tmp_path / "r.jsonl"
    command = ("bench", "bert-1x64", "--runtime", "flat", "--rounds", "3")
    done = run_command(*command, "--label", "before", "--json", str(path))
    assert done.returncode == 0, done.stderr
    assert [item.label for item in ftax.Measurement.load(path)] == ["before"]


def write_sweep(folder, latencies_us, machine=None):
    machine = machine or make_machine(H100)
    cells = [make_cell(machine, us, batch=batch) for batch, us in latencies_us.items()]
    for record in (machine, *cells):
        append_record(folder / "cells.jsonl", record)
    return machine


def test_sweeps_are_compared_cell_by_cell(tmp_path):
    for name, us in (("before", 100.0), ("after", 130.0)):
        (tmp_path / name).mkdir()
        write_sweep(tmp_path / name, {1: us, 2: 100.0})
    result = run("before/", "after", "--json", "c.jsonl", cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    assert "after against before: 2 cells, 0 faster, 1 slower, 0 equal" in result.stdout
    assert len(ftax.read_records(tmp_path / "c.jsonl").records) == 2
    turned = run("after", "before/cells.jsonl", cwd=tmp_path)
    assert turned.returncode == 0 and "1 faster" in turned.stdout
    named = run("before", "after", "--label", "old", "--label", "new", cwd=tmp_path)
    assert "new against old: 2 cells" in named.stdout


def test_cells_whose_inputs_differ_are_refused_in_words(tmp_path):
    for name, tokens in (("before", 64), ("after", 27)):
        (tmp_path / name).mkdir()
        inputs = (CallInput(name="input_ids", dtype="int64", shape=(1, tokens)),)
        machine = make_machine(H100)
        append_record(tmp_path / name / "cells.jsonl", machine)
        append_record(tmp_path / name / "cells.jsonl", replace(make_cell(machine), inputs=inputs))
    refused = run("before", "after", cwd=tmp_path)
    assert refused.returncode == 2
    words = "input_ids is int64 (1, 64) for before and int64 (1, 27) for after"
    assert words in refused.stderr
    allowed = run("before", "after", "--allow-different-inputs", cwd=tmp_path)
    assert allowed.returncode == 0, allowed.stderr


def test_machines_of_one_sweep_are_compared(tmp_path):
    for gpu, us in ((H100, 100.0), (A100, 100.0)):
        write_sweep(tmp_path, {1: us}, make_machine(gpu))
    result = run(tmp_path)
    assert result.returncode == 0, result.stderr
    assert "A100 against H100: 1 cell, 0 faster, 0 slower, 0 equal, 1 cannot tell" in result.stdout
    assert "the GPU is NVIDIA H100 for H100" in " ".join(result.stdout.split())


def test_sweeps_are_not_compared_with_what_is_none(tmp_path):
    for name in ("s", "empty"):
        (tmp_path / name).mkdir()
    write_sweep(tmp_path / "s", {1: 100.0})
    make_measurement([100, 101, 99]).save(tmp_path / "m.jsonl")
    for sides, words in (
        (("s", "m.jsonl"), "m.jsonl is no folder of a sweep, and s is one"),
        (("s", "s", "--batch", "2"), "--batch is given, but the sides are results files"),
        (("s", "empty"), "so empty is no folder of a sweep; `ftax sweep -o FOLDER` writes one"),
        (("s",), "no two machines have a cell in common"),
    ):
        result = run(*sides, cwd=tmp_path)
        assert result.returncode == 2 and words in " ".join(result.stderr.split())


MAKE = """
import torch
from torch import nn

def make():
    layers = [nn.Linear(16, 16) for _ in range({layers})]
    return nn.Sequential(*layers), (torch.ones(1, 16),)
"""
QUICK = ("--rounds", "5", "--warmup", "3", "--duration", "1", "--threads", "1")


def test_code_is_compared_by_turns_in_pairs_of_processes(tmp_path):
    """Five processes import torch, which takes 15 s and more."""
    for name, layers in (("old", 4), ("new", 24)):
        (tmp_path / f"{name}.py").write_text(MAKE.format(layers=layers))
    result = run("old.py:make", "new.py:make", *QUICK, "--json", "r.jsonl", cwd=tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "new.py:make against old.py:make: slower" in result.stdout
    assert "from 5 pairs of processes by turns" in " ".join(result.stdout.split())
    *measured, comparison = ftax.read_records(tmp_path / "r.jsonl").records
    assert len(measured) == 10 and comparison.unit == "pair"
    assert [item.label for item in measured[::5]] == ["old.py:make", "new.py:make"]
    assert len({item.process.pid for item in measured}) == 10
    assert measured[0].inputs[0].describe() == "float32 (1, 16)"
    again = run("r.jsonl", cwd=tmp_path)  # the measurements are of turns, and say so
    assert again.returncode in (1, 2), again.stderr


@pytest.mark.slow
def test_what_one_side_raises_is_told_and_both_are_built_before_either_is_measured(tmp_path):
    (tmp_path / "old.py").write_text(MAKE.format(layers=2))
    (tmp_path / "new.py").write_text("def make():\n    raise ValueError('no weights')\n")
    result = run("old.py:make", "new.py:make", *QUICK, cwd=tmp_path)
    assert result.returncode == 4
    assert "ftax: new.py:make: calling new.py:make failed: ValueError" in result.stderr
    assert "no weights" in result.stderr


def make_repository(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        who = ["-c", "user.name=n", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *who, *command], cwd=folder, check=True, capture_output=True)


def test_a_base_that_lacks_what_is_compared_is_refused_before_anything_is_built(tmp_path):
    make_repository(tmp_path, old=MAKE.format(layers=4))
    (tmp_path / "new.py").write_text(MAKE.format(layers=4))
    for arguments, words in (
        (["new.py:make"], "--base HEAD: that revision has no new.py to compare with"),
        (["old.py:make", "--base-python", "none/python"], "none/python is no program"),
    ):
        result = run(*arguments, "--base", "HEAD", *QUICK, cwd=tmp_path)
        assert result.returncode == 2 and words in result.stderr


@pytest.mark.slow
def test_a_base_of_another_python_has_that_pythons_packages(tmp_path, monkeypatch):
    """It imports torch afresh, for each of five pairs."""
    make_repository(tmp_path, m="import compiled\n" + MAKE.format(layers=4))
    (tmp_path / "m.py").write_text(MAKE.format(layers=24))
    command = ("m.py:make", "--base", "HEAD", *QUICK)
    refused = run(*command, cwd=tmp_path)
    assert refused.returncode == 4
    assert "No module named 'compiled' (" in refused.stderr
    assert "if it is a compiled extension, build it there with --setup" in refused.stderr
    site = tmp_path / "there" / "site-packages"
    site.mkdir(parents=True)
    (site / "compiled.py").touch()
    python = tmp_path / "there" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    result = run(*command, "--base-python", "there/python", cwd=tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("m.py:make", "--setup", "true"), "--setup is given without --base"),
        (("m.py:make", "n.py:make", "--base", "HEAD"), "--base compares one model of your code"),
        (("m.py:make", "--base", "HEAD"), "--base: "),  # in no repository
        (("m.py:make", "n.py:make", "--label", "x"), "--label is given as x, and there are 2"),
    ],
)
def test_what_the_sides_cannot_be_is_said_before_anything_is_built(tmp_path, arguments, words):
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == 2 and words in result.stderr


@pytest.mark.parametrize(
    ("ended", "code"), [(KeyboardInterrupt(), 130), (RunnerError("it died"), 4)]
)
@pytest.mark.parametrize("pairs", [1, 3])
def test_what_ends_the_pairs_leaves_what_was_measured(ended, code, pairs, tmp_path, monkeypatch):
    def run_pairs(sides, _judge, **_options):
        found = [
            [
                make_measurement([100, 101], index=place, checks={"rounds_a_turn": 5})
                for place in range(pairs)
            ]
            for _ in sides
        ]
        return PairRuns(sides=found, confidence=0.995, ended=ended)

    monkeypatch.setattr("ftax.ladders.verdict.run_pairs", run_pairs)
    path = tmp_path / "sides.jsonl"
    command = ["compare", "gpt2", "gpt2", "--json", str(path)]
    assert ending.run(app, command) == code
    kinds = [record.kind for record in ftax.read_records(path).records]
    assert kinds == ["measurement"] * 2 * pairs + ["comparison"] * (pairs > 1)
