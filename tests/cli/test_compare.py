"""`ftax compare`: results from files and cells, more than two, and the exit codes of a gate."""

import json
from dataclasses import replace

import pytest

import ftax
from ftax.cli import ending
from ftax.cli.commands import app
from ftax.errors import UnsupportedError
from ftax.records.store import append_record
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
    (record,) = ftax.read_records(tmp_path / "c.jsonl").records
    assert record.lines[0].name == "model glue"


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
    assert "y/r.jsonl against x/r.jsonl: equal" in result.stdout
    same = run("x/r.jsonl", "x/r.jsonl", cwd=tmp_path)
    assert "x/r.jsonl (2) against x/r.jsonl (1): equal" in same.stdout


@pytest.mark.parametrize(
    ("values", "fail_on", "code"),
    [
        ([100, 101, 99], "slower", 0),
        ([100, 101, 99], "unsure", 0),
        ([90, 110, 130], "slower", 0),
        ([90, 110, 130], "unsure", 1),
        ([200, 201, 199], "slower", 1),
        ([103, 104, 102], "slower", 0),  # as much as two processes of the same code may differ by
        ([103, 104, 102], "unsure", 1),
        ([200, 201, 199], "unsure", 1),
        ([50, 51, 49], "unsure", 0),
    ],
)
def test_a_gate_fails_on_what_it_is_told_to(tmp_path, values, fail_on, code):
    make_measurement([100, 101, 99]).save(tmp_path / "a.jsonl")
    make_measurement(values, session="f" * 16).save(tmp_path / "b.jsonl")
    result = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--fail-on", fail_on)
    assert result.returncode == code, result.stdout + result.stderr
    is_close = values == [103, 104, 102]
    assert ("no failure" in result.stderr) == (is_close and fail_on == "slower")


def test_a_gate_fails_on_a_small_change_between_processes(tmp_path):
    for name, values in (("a", [1000, 1010, 990]), ("b", [1030, 1040, 1020])):
        for process in range(5):
            session = f"{name}{process}".rjust(16, "f")
            item = make_measurement([value + process for value in values], session=session)
            item.save(tmp_path / f"{name}.jsonl")
    result = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert result.returncode == 1, result.stdout + result.stderr


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
        (["one.jsonl", "both.jsonl"], "has receipts and measurements"),
        (["one.jsonl", "knee.jsonl"], "has no receipt and no measurement"),
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
    assert "after against before: 2 cells, 0 faster, 1 slower, 1 equal" in result.stdout
    assert len(ftax.read_records(tmp_path / "c.jsonl").records) == 2
    turned = run("after", "before/cells.jsonl", cwd=tmp_path)
    assert turned.returncode == 0 and "1 faster" in turned.stdout


def test_machines_of_one_sweep_are_compared(tmp_path):
    for gpu, us in ((H100, 100.0), (A100, 100.0)):
        write_sweep(tmp_path, {1: us}, make_machine(gpu))
    result = run(tmp_path)
    assert result.returncode == 0, result.stderr
    assert "A100 against H100: 1 cell, 0 faster, 0 slower, 1 equal" in result.stdout
    assert "the GPU is NVIDIA H100 for H100" in " ".join(result.stdout.split())


def test_sweeps_are_not_compared_with_what_is_none(tmp_path):
    for name in ("s", "empty"):
        (tmp_path / name).mkdir()
    write_sweep(tmp_path / "s", {1: 100.0})
    make_measurement([100, 101, 99]).save(tmp_path / "m.jsonl")
    for sides, words in (
        (("s", "m.jsonl"), "m.jsonl is no folder of a sweep, and s is one"),
        (("s", "s", "--batch", "2"), "batch is given, but the sides are results files"),
        (("s", "empty"), "so empty is no folder of a sweep; `ftax sweep -o FOLDER` writes one"),
        (("s",), "no two machines have a cell in common"),
    ):
        result = run(*sides, cwd=tmp_path)
        assert result.returncode == 2 and words in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("second", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted; the table is of what was measured until then"),
        (UnsupportedError("it has no tape"), 3, "ftax: it has no tape"),
    ],
)
def test_a_first_side_is_kept_where_the_second_is_not_measured(
    second, code, said, tmp_path, monkeypatch, capsys
):
    """It was lost, with the words that the same command starts again."""
    answers = iter([make_measurement([100, 110])])

    def run_job(_job, _progress):
        for answer in answers:
            return (answer,)
        raise second

    monkeypatch.setattr("ftax.sweeps.processes.run_job", run_job)
    path = tmp_path / "sides.jsonl"
    assert ending.run(app, ["compare", "gpt2", "bert-base", "--json", str(path)]) == code
    shown = capsys.readouterr()
    assert "105 ns" in shown.out and said in shown.err
    assert len(ftax.Measurement.load(path)) == 1


def test_ctrl_c_in_the_rounds_of_the_first_side_begins_no_second(tmp_path, monkeypatch, capsys):
    measured = []

    def run_job(job, _progress):
        measured.append(job.model)
        return (replace(make_measurement([100, 110]), stop_reason="interrupted"),)

    monkeypatch.setattr("ftax.sweeps.processes.run_job", run_job)
    assert ending.run(app, ["compare", "gpt2", "bert-base"]) == 130
    assert measured == ["gpt2"]
    assert "--json FILE keeps it" in capsys.readouterr().err
