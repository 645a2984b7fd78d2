"""The command line: exit codes, formats, and errors in one sentence."""

import csv
import io
import json
import signal
import time
from dataclasses import replace

import pytest

import ftax
from support.forks import Running, run_command
from support.records import make_measurement

QUICK = ("--tiny", "--rounds", "4", "--warmup", "2")
ENVIRONMENT = {"COLUMNS": "200", "OMP_NUM_THREADS": "1"}  # one thread: what is tested is not speed


def run(*arguments):
    return run_command(*arguments, environment=ENVIRONMENT)


def start(*arguments):
    return Running(*arguments, environment=ENVIRONMENT)


def test_tax_prints_a_receipt_and_saves_it(tmp_path):
    path = tmp_path / "receipt.jsonl"
    result = run("tax", "bert-1x64", *QUICK, "--runtimes", "none", "--json", str(path))
    assert result.returncode == 0, result.stderr
    assert "interpreter and bindings" in result.stdout
    record = json.loads(path.read_text())
    assert record["kind"] == "receipt"
    assert len(record["record"]["rungs"]) == 3


def test_tax_has_quick_runtimes_and_says_what_it_left_out(tmp_path):
    path = tmp_path / "receipt.jsonl"
    result = run("tax", "bert-1x64", *QUICK, "--json", str(path))
    assert result.returncode == 0, result.stderr
    record = json.loads(path.read_text())["record"]
    names = {measurement["cell"]["runtime"] for measurement in record["others"]}
    assert {"torchscript", "torchscript-frozen"} <= names and not {"compile", "aoti"} & names
    assert "--runtimes available tries " in result.stderr


@pytest.mark.slow
def test_the_first_screen_explains_its_lines_once_and_the_last_receipt_is_kept(tmp_path):
    path = tmp_path / "receipt.jsonl"
    quick = ("tax", "bert-1x64", *QUICK, "--runtimes", "none", "--threads", "1")
    first, again = run(*quick), run(*quick, "--json", str(path))
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    told = "The lines: model glue = module calls"
    assert told in first.stdout and told not in again.stdout
    assert "Kept until the next (--json FILE saves it). ftax show --all:" in first.stdout
    assert f"Saved in {path}. ftax show --all:" in " ".join(again.stdout.split())
    assert "appended" not in again.stderr
    assert max(len(item.stdout.splitlines()) for item in (first, again)) <= 35
    short, whole, printed = run("show"), run("show", "--all"), run(*quick, "--all")
    assert short.stdout.partition("ftax show")[0] in again.stdout
    assert "Percentiles of all samples" in whole.stdout and "Percentiles" in printed.stdout
    assert "Receipt: bert-1x64" in whole.stdout and "Receipt: bert-1x64" in printed.stdout


@pytest.mark.usefixtures("own_cache")
def test_without_a_last_receipt_show_asks_for_a_file():
    shown = run("show")
    assert shown.returncode == 2 and "there is no last receipt here: give FILE" in shown.stderr


@pytest.mark.slow
def test_where_nothing_can_be_kept_the_screen_says_how_to_see_all(monkeypatch):
    monkeypatch.setenv("FTAX_CACHE", "/proc/nowhere")
    quick = ("tax", "bert-1x64", *QUICK, "--runtimes", "none")
    result = run(*quick)
    assert result.returncode == 0, result.stderr
    assert "the same command with --all: " in " ".join(result.stdout.split())


def test_csv_is_csv_and_markdown_is_markdown():
    result = run("models", "--csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert {"bert-base", "resnet-50", "gpt2"} <= {row["name"] for row in rows}
    result = run("runtimes", "--markdown")
    assert "| eager | cpp | works here |" in result.stdout
    assert "flat is Python by definition" in result.stdout


def test_a_file_of_several_cells_of_a_runtime_is_no_side_of_a_comparison(tmp_path):
    path = tmp_path / "mixed.jsonl"
    measurement = make_measurement([100, 101])
    measurement.save(path)
    replace(measurement, cell=replace(measurement.cell, batch=8)).save(path)
    result = run("compare", str(path), str(path))
    assert result.returncode == 2
    assert "measurements of 2 cells" in result.stderr


@pytest.mark.slow
def test_ctrl_c_between_processes_leaves_the_answer_of_those_that_ran(tmp_path):
    path = tmp_path / "processes.jsonl"
    command = ("bench", "bert-1x64", "--rounds", "4", "--processes", "99")
    process = start(*command, "--json", str(path))
    for line in process.stderr:
        if "process 2 of 99" in line:
            process.send_signal(signal.SIGINT)
            break
    result = process.end(timeout=60)
    assert result.returncode == 130, result.stderr
    said = "interrupted; this is the answer of 1 of 99 processes, and the same command"
    assert said in result.stderr
    assert {json.loads(line)["kind"] for line in path.read_text().splitlines()} == {"measurement"}


def test_bench_takes_the_hosts_that_a_runtime_has():
    result = run("bench", "bert-1x64", "--runtime", "flat", "--rounds", "3")
    assert result.returncode == 0, result.stderr
    assert "flat" in result.stdout and "cpp" not in result.stdout


def test_knee_prints_the_answer_and_its_sizes_and_saves_each_runtime(tmp_path):
    path = tmp_path / "knees.jsonl"
    options = ("--tiny", "--high", "2", "--rounds", "8", "--runtime", "eager,cuda-graph")
    result = run("knee", "bert-base", *options, "--threads", "1", "--json", str(path))
    assert result.returncode == 0, result.stderr
    assert "Knee over batch: bert-base" in result.stdout
    assert "each beside batch 1" in result.stdout
    assert "cuda-graph does not run on cpu" in " ".join(result.stdout.split())
    assert "batch 2: round" in result.stderr
    (line,) = path.read_text().splitlines()
    record = json.loads(line)
    assert record["kind"] == "knee"
    assert [point["size"] for point in record["record"]["points"]] == [2]
    assert len(record["record"]["points"][0]["values_ns"]) == 8


def test_ctrl_c_keeps_the_knees_that_are_done(tmp_path):
    path = tmp_path / "knees.jsonl"
    options = ("--high", "2", "--rounds", "20", "--runtime", "eager", "--host", "both")
    process = start("knee", "bert-1x64", *options, "--json", str(path))
    for line in process.stderr:
        if "eager/cpp: batch 1: preparing" in line:
            break
    process.send_signal(signal.SIGINT)
    result = process.end(timeout=120)
    assert result.returncode == 130, result.stderr
    assert "eager" in result.stdout
    assert len(path.read_text().splitlines()) >= 1
    said = f"interrupted; the tables are of the sizes and runtimes until then, it is in {path}"
    assert said in result.stderr


def test_ops_names_operators_and_modules():
    result = run("ops", "bert-base", "--tiny", "--by", "call", "--limit", "500")
    assert result.returncode == 0, result.stderr
    assert "aten::linear" in result.stdout
    assert "encoder.layer.11.attention" in result.stdout


@pytest.mark.parametrize(
    ("by", "told"),
    [("module", "encoder.layer.*.attention.self "), ("line", "modeling_bert.py:")],
)
def test_ops_says_whose_python_it_is(by, told, tmp_path):
    saved = str(tmp_path / "receipt.jsonl")
    result = run("ops", "bert-base", "--tiny", "--by", by, "--duration", "2", "--json", saved)
    assert result.returncode == 0, result.stderr
    assert told in result.stdout and "= model glue + interpreter" in result.stdout
    shown = run("show", saved, "--all")
    assert told in shown.stdout and f"by {by}, a call" in shown.stdout


@pytest.mark.slow
def test_a_sweep_in_which_nothing_was_measured_is_no_success(tmp_path):
    most = str(2**31 - 1)  # of them no tensor has the bytes
    huge = run("sweep", "--model", "mamba", "--tiny", "--batch", most, "--seq", most, "--quick",
               "-o", str(tmp_path / "huge"))  # fmt: skip
    assert huge.returncode == 4
    assert "1 failed" in huge.stderr and "no cell was measured" in huge.stderr
    none = run("sweep", "--model", "gpt2", "--tiny", "--runtime", "nested", "--quick",
               "-o", str(tmp_path / "none"))  # fmt: skip
    assert none.returncode == 3
    assert "1 unavailable" in none.stderr and "no cell was measured" in none.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("tax", "bert-bass"), 2, "bert-base"),
        (("bench", "gpt2", "--host", "fortran"), 2, "give python, cpp or both"),
        (("bench", "gpt2", "--runtime", "onnxruntme"), 2, "did you mean 'onnxruntime'"),
        (("bench", "gpt2", "--runtime", "onnx"), 2, "did you mean 'onnxruntime'"),
        (("bench", "gpt2", "--tiny", "--rounds", "0"), 2, "--rounds is 0"),
        (("bench", "gpt2", "--tiny", "--duration", "-1"), 2, "--duration is -1"),
        (("tax", "gpt2", "--tiny", "--precision", "5"), 2, "--precision is 5; it is a share"),
        (("tax", "gpt2", "--tiny", "--precision", "nan"), 2, "--precision is nan"),
        (("compare", __file__, "x.jsonl"), 2, "is code and holds no results"),
        (("sweep", "service:make"), 2, "measure code with `ftax tax`"),
        (("sweep", "--model", "service:make"), 2, "models has 'service:make', which is code"),
        (("bench", "gpt2", "--tiny", "--cpus", "a"), 2, "write 0,1 or 2-5"),
        (("bench", "gpt2", "--tiny", "--cpus", "5-2"), 2, "write 0,1 or 2-5"),
        (("tax", "gpt2", "--json", "nowhere/r.jsonl"), 2, "nowhere/r.jsonl: its folder does not"),
        (("compare", "gpt2", "gpt2", "--json", "."), 2, ".: Is a directory"),
        (("bench", "gpt2", "--json", __file__), 2, "so it is no results file"),
        (("tax", "gpt2", "--trace", "nowhere/t.json"), 2, "there is no folder nowhere"),
        (("trace", "gpt2", "--chrome", "."), 2, ". is a folder"),
        (("runtimes", "--device", "gpu"), 2, "device is 'gpu'"),
        (("bench", "gpt2", "--tiny", "--batch", "0"), 2, "batch"),
        (("bench", "gpt2", "--set", "optimization"), 2, "write optimization=basic"),
        (("bench", "gpt2", "--set", "optimization=all"), 2, "eager has no option 'optimization'"),
        (("bench", "resnet-50", "--tiny", "--transfers"), 2, "device is 'cpu'"),
        (("compare", "missing.jsonl", "gone.jsonl"), 2, "missing.jsonl"),
        (("report", "gone.jsonl"), 2, "there is no gone.jsonl"),
        (("tax", "bert-base", "--dtype", "fp12"), 2, "fp12"),
        (("knee", "bert-base", "--tiny", "--over", "heads"), 2, "'batch' or 'sequence'"),
        (("knee", "bert-base", "--tiny", "--batch", "4"), 2, "give --low"),
        (("knee", "resnet-50", "--tiny", "--over", "sequence"), 2, "resnet-50 takes images"),
        (("knee", "bert-base", "--tiny", "--runtime", "cuda-graph"), 3, "does not run on cpu"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(arguments, code, message):
    result = run(*arguments)
    assert result.returncode == code
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("times", "pause_s"), [(1, 0.0), (3, 0.0), (3, 0.02), (3, 0.2)])
def test_ctrl_c_once_or_again_leaves_what_was_measured(times, pause_s, tmp_path):
    path = tmp_path / "receipt.jsonl"
    options = ("tax", "bert-1x64", "--runtimes", "none", "--rounds", "100000")
    process = start(*options, "--json", str(path))
    for line in process.stderr:
        if line.rstrip().endswith(": round"):
            break
    time.sleep(1.5)  # some rounds on an idle machine, one on a very busy one
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(pause_s)
    result = process.end(timeout=120)
    assert result.returncode == 130, result.stderr
    assert "bert-1x64  cpu  fp32" in result.stdout and "nterrupted after" in result.stdout
    said = f"interrupted; the receipt is of what was measured until then, it is in {path}"
    assert said in result.stderr
    (receipt,) = ftax.Receipt.load(path)
    assert receipt.interrupted and receipt.rungs[0].stop_reason == "interrupted"
    assert len(receipt.rungs[0].samples_ns) >= 1
    assert [file.name for file in tmp_path.iterdir()] == ["receipt.jsonl"]


@pytest.mark.parametrize("device", ["cuda:99999", "cuda:00"])
@pytest.mark.parametrize(
    "command",
    [
        ("tax", "bert-1x64"),
        ("runtimes",),
        ("doctor",),
        ("sweep", "--model", "bert-base"),
        ("paper", "--plan"),
    ],
)
def test_a_device_that_cannot_be_is_refused_as_it_was_typed(command, device):
    """An index is kept in eight bits, and 99999 became -97."""
    result = run(*command, "--device", device)
    assert result.returncode == 2
    assert f"device is '{device}'" in result.stderr and result.stderr.count("\n") <= 2


def test_doctor_prints_the_floors():
    result = run("doctor", "--csv")
    assert result.returncode == 0, result.stderr
    assert "empty operator, C++" in result.stdout
