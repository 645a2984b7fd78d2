"""What the benchmarks of runtimes say of a receipt, on receipts of given numbers."""

import argparse
import subprocess

import pytest
from runtime_bench import describe_fault, make_command
from runtime_cells import (
    describe,
    explain_absence,
    is_no_worse,
    judge_relation,
    list_missing,
    make_host_figures,
    make_runtime_figures,
)

from ftax.ladders.receipt import Receipt, Unavailable
from support.records import make_measurement

SECONDS = {"prepare_seconds": 7.0, "measure_seconds": 3.0, "total_seconds": 12.0}


def side(level_us, runtime, host="python", wobble=1):
    noise = [0, 7, -5, 3, -8, 6, 2, -4, 5, -6, 1, -1]
    return make_measurement(
        [1000 * level_us + wobble * n for n in noise], runtime=runtime, host=host
    )


@pytest.fixture
def cell():
    receipt = Receipt(
        rungs=(side(1000, "eager"), side(600, "eager", "cpp")),
        others=(
            side(700, "torchscript"),
            side(690, "torchscript", "cpp"),
            side(300, "onnxruntime"),
            side(310, "onnxruntime", "cpp"),
        ),
        unavailable=(
            Unavailable(runtime="flat", host="cpp", reason="flat is Python by definition"),
            Unavailable(runtime="tensorrt", host="python", reason="not installed"),
            Unavailable(runtime="cuda-graph", host="cpp", reason="does not run on cpu"),
            Unavailable(runtime="flat", host="python", reason="it broke"),
        ),
        preparation=SECONDS,
    )
    return describe(receipt)


def test_a_cell_has_every_row_with_what_it_saves_of_eager(cell):
    rows = {(row["runtime"], row["host"]): row for row in cell["rows"]}
    assert len(rows) == 6
    assert rows["eager", "python"]["latency_us"] == pytest.approx(1000)
    assert rows["onnxruntime", "python"]["saved_us"] == pytest.approx(700)
    low, high = rows["onnxruntime", "python"]["saved_interval_us"]
    assert low <= 700 <= high
    assert cell["after_preparation_seconds"] == 5.0


def test_relations_of_the_papers_table_are_judged_or_said_to_be_missing(cell):
    verdicts = {item["relation"]: item["verdict"] for item in cell["table_3"]}
    assert verdicts["eager > torchscript"] == "holds"
    assert verdicts["torchscript > onnxruntime"] == "holds"
    assert verdicts["cuda-graph ~ onnxruntime"] == "not measured"


@pytest.mark.parametrize(
    ("relation", "ratio", "interval", "verdict"),
    [
        (">", 2.0, (1.0, 3.0), "holds"),
        (">", 0.5, (-3.0, -1.0), "does not hold"),
        (">", 1.0, (-1.0, 1.0), "not resolved"),
        (">", 2.0, None, "not resolved"),
        ("~", 1.1, (5.0, 6.0), "holds"),
        ("~", 0.5, (-6.0, -5.0), "does not hold"),
        ("~", 1.3, (5.0, 6.0), "does not hold"),
    ],
)
def test_a_relation_needs_its_interval_on_one_side(relation, ratio, interval, verdict):
    assert judge_relation(relation, ratio, interval) == verdict


def test_cpp_is_no_worse_unless_it_is_slower_for_certain(cell):
    assert is_no_worse((-2.0, -1.0))
    assert is_no_worse((-1.0, 2.0))
    assert not is_no_worse((1.0, 2.0))
    assert not is_no_worse(None)
    hosts = {item["runtime"]: item for item in cell["hosts"]}
    assert hosts["torchscript"]["no_worse"]
    assert hosts["torchscript"]["difference_us"] == pytest.approx(-10)
    assert not hosts["onnxruntime"]["no_worse"]
    (figure,) = make_host_figures([cell], ["torchscript", "onnxruntime", "aoti"])
    assert (figure.value, figure.met) == (1.0, False)  # a pair that is missing does not pass
    assert make_host_figures([cell], ["torchscript"])[0].met


def test_only_what_should_be_there_is_missing(cell):
    assert list_missing(cell) == ["flat/python: it broke"]
    figures = {figure.name: figure for figure in make_runtime_figures([cell], 2)}
    assert figures["models"].met is False
    assert figures["mlp, batch 1: rows missing without need"].value == 1.0
    assert figures["mlp, batch 1: measuring after preparation"].met
    assert figures["mlp, batch 1: relations of Table 3 that hold, of 2"].value == 2.0


def test_a_gpu_has_to_have_what_a_developers_machine_may_lack():
    missing = "not installed: `pip install onnx`"
    cpu, gpu = ({"model": "bert-base", "device": device} for device in ("cpu", "cuda:0"))
    assert explain_absence(cpu, "torchscript", "cpp", missing) == "not installed"
    assert explain_absence(gpu, "torchscript", "cpp", missing) is None
    assert explain_absence(gpu, "tensorrt", "python", missing)
    assert explain_absence(gpu, "flat", "cpp", "").startswith("flat is Python")
    named = "jax with host python: not installed: `pip install jax torchax`"
    assert explain_absence(cpu, "jax", "python", named) == "not installed"


def test_what_a_model_has_no_use_for_is_not_missing():
    gpu = {"model": "bert-base", "device": "cuda:0"}
    reason = (
        "bert-base has no Conv2d or ConvTranspose2d, whose memory format could be channels-last"
    )
    assert explain_absence(gpu, "eager-channels-last", "python", reason)
    assert explain_absence(gpu, "eager-channels-last", "python", "it broke") is None


def test_a_worker_is_given_what_the_run_was(tmp_path):
    options = argparse.Namespace(
        folder=tmp_path, batch=4, dtype="fp16", device="cuda", duration=5.0, trace="none",
        tiny=True, runtimes=["aoti", "cuda-graph"],
    )  # fmt: skip
    command = make_command("bench/gpu_runtimes.py", options, "gpt2")
    assert command[1:4] == ["bench/gpu_runtimes.py", "--worker", "--tiny"]
    assert command[-3:] == ["--runtimes", "aoti", "cuda-graph"]
    assert command[command.index("--batch") + 1] == "4"
    assert command[command.index("--records") + 1].endswith("gpu_runtimes_records.jsonl")


def test_a_worker_out_of_time_is_named_by_its_last_line():
    late = subprocess.TimeoutExpired(["x"], 60.0, stderr=b"preparing eager\npreparing aoti (cpp)\n")
    assert describe_fault(late) == "not done after 60 s; its last line: preparing aoti (cpp)"
    assert describe_fault(ValueError("no JSON")) == "no JSON"
