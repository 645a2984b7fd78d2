"""What the bench of runtimes says of a receipt, on receipts of given numbers."""

import pytest
from runtimes import compare_hosts, describe, make_figures

from ftax.ladders.receipt import Receipt, Unavailable
from support.records import make_measurement

SECONDS = {"prepare_seconds": 7.0, "measure_seconds": 3.0, "total_seconds": 12.0}


def side(level_us, runtime, host="python"):
    noise = [0, 7, -5, 3, -8, 6, 2, -4, 5, -6, 1, -1]
    return make_measurement([1000 * level_us + n for n in noise], runtime=runtime, host=host)


def make_receipt(*unavailable):
    return Receipt(
        rungs=(side(1000, "eager"), side(600, "eager", "cpp")),
        others=(
            side(690, "torchscript", "cpp"), side(700, "torchscript"),
            side(300, "onnxruntime"), side(310, "onnxruntime", "cpp"),
        ),
        unavailable=tuple(
            Unavailable(runtime=runtime, host=host, reason=reason)
            for runtime, host, reason in unavailable
        ),
        preparation=SECONDS,
    )  # fmt: skip


def test_cpp_is_no_worse_unless_it_is_slower_for_certain():
    receipt = make_receipt()
    hosts = {item["runtime"]: item for item in compare_hosts([*receipt.rungs, *receipt.others])}
    assert {name: item["no_worse"] for name, item in hosts.items()} == {
        "eager": True, "torchscript": True, "onnxruntime": False,
    }  # fmt: skip
    assert hosts["torchscript"]["difference_us"] == pytest.approx(-10)


def test_only_what_should_be_there_is_missing():
    cell = describe(
        make_receipt(
            ("flat", "cpp", "flat is Python by definition"),
            ("cuda-graph", "cpp", "does not run on cpu"),
            ("onnxruntime", "python", "not installed: `pip install onnx`"),
            ("eager-channels-last", "python", "mlp has no Conv2d or ConvTranspose2d"),
            ("flat", "python", "it broke"),
        )
    )
    assert cell["missing"] == ["flat/python: it broke"]
    figures = {figure.name: figure for figure in make_figures([cell], 2)}
    assert figures["models"].met is False
    assert figures["mlp, batch 1: rows missing without need"].value == 1
    assert figures["mlp, batch 1: measuring after preparation"].value == 5.0
    slower = figures["mlp, batch 1: runtimes that C++ drives no slower"]
    assert (slower.value, slower.met) == (2, False)
