"""Each rule of the recommendation, on a receipt made for it."""

from dataclasses import replace

from ftax.instruments.trace.timeline import Waits
from ftax.ladders.receipt import Receipt
from ftax.runtimes.adoption import find_lines
from support.evidence import EAGER, FLAT, GRAPH, TAPE
from support.runtimes_receipt import (
    CLOSE,
    ORT,
    WRONG,
    make_cpu_receipt,
    make_gpu_receipt,
    make_runtime,
    make_work,
)

FAST_ORT = [make_work(ORT, 440.0, kernels=60, same=False)]


def test_host_bound_with_a_graph_and_a_better_alternative():
    text = make_gpu_receipt(
        make_runtime(ORT, 560.0, outputs=CLOSE, seconds=9.0, from_cache=True), evidence=FAST_ORT
    ).recommendation
    assert text.startswith("Host-bound at batch 1: 86% (86% to 86%) of 4,600 us is tax.")
    assert "The largest part of the tax is model glue: 1,584 us (34%; 1,582 to 1,586 us)." in text
    assert (
        "A CUDA graph of the same kernels gives back 3,841 us, 759 us a call (6.06x; 6.06 to 6.06)."
        in text
    )
    assert "onnxruntime called from C++ gives back 4,040 us, 560 us a call (8.21x; " in text
    assert "3,840 us less tax and 200 us less device time (kernels: 40 fewer" in text
    assert "preparing it takes 10 s, paid back after 2,476 calls" in text
    assert "it is 199 us faster than that" in text


def test_waits_for_the_device_are_told():
    receipt = make_gpu_receipt()
    assert "waits for the device" not in receipt.recommendation

    def wait(counts, units=1):
        waits = Waits(counts=counts, wait_ns=(700_000,) * 3, masked_ns=(160_000,) * 3)
        first, *rest = receipt.rungs
        cell = replace(first.cell, step="decode", units=units)
        evidence = tuple(
            replace(item, waits=waits) if item.place == first.place else item
            for item in receipt.evidence
        )
        rungs = (replace(first, cell=cell), *rest)
        return replace(receipt, rungs=rungs, evidence=evidence).recommendation

    told = "While it is issued it waits for the device"
    assert f"{told} 1 time; of these waits 540 us are exposed, as traced." in wait((1, 1, 1))
    assert f"{told} 16 times, 2 a token; of these" in wait((16, 16, 18), units=8)
    assert told not in wait((0, 0, 0))


def test_device_bound():
    text = make_gpu_receipt(eager_us=2800.0, busy_us=1900.0).recommendation
    assert text.startswith("Device-bound at batch 1: 32% (32% to 32%) of 2,800 us is tax.")


def test_neither_side_for_certain_is_said():
    text = make_gpu_receipt(eager_us=2000.0, busy_us=1000.0).recommendation
    assert text.startswith("Whether host or device binds at batch 1 is not resolved: 50%")


def test_a_tax_that_is_within_its_error_is_not_resolved():
    rungs = (make_runtime(EAGER, 1000.0, noise=0.2), make_runtime(GRAPH, 999.0, noise=-0.2))
    receipt = Receipt(rungs=rungs, evidence=(make_work(EAGER, 990.0), make_work(GRAPH, 990.0)))
    text = receipt.recommendation
    assert text.startswith("Device-bound at batch 1: the tax is not resolved (-")
    assert "largest part" not in text
    assert text.endswith("No other runtime measured here is faster than Python eager for certain.")


def test_on_a_cpu_the_cost_of_python_stands_in():
    text = make_cpu_receipt(make_runtime(ORT, 500.0, outputs=CLOSE)).recommendation
    assert text.startswith("Python costs 300 us of 1,000 us (30%;")
    assert "The tape, without Python, of the same operators gives back 300 us" in text
    assert "onnxruntime called from C++ gives back 500 us" in text
    assert "it is 200 us faster than that" in text
    assert "bound" not in text


def test_an_alternative_slower_than_the_graph_is_said_to_be():
    text = make_gpu_receipt(make_runtime(ORT, 2000.0)).recommendation
    assert "it is 1,241 us slower than that" in text


def test_an_alternative_as_fast_as_the_graph_is_not_ranked():
    text = make_gpu_receipt(make_runtime(ORT, 758.8, noise=0.01)).recommendation
    assert "which of the two is faster is not resolved" in text


def test_instruments_are_not_recommended():
    rungs = (make_runtime(EAGER, 1000.0), make_runtime(FLAT, 500.0))
    text = Receipt(rungs=rungs).recommendation
    assert "flat" not in text
    assert text.endswith("No other runtime measured here is faster than Python eager for certain.")


def test_nothing_faster():
    rungs = (make_runtime(EAGER, 1000.0), make_runtime(TAPE, 1200.0))
    text = Receipt(rungs=rungs, others=(make_runtime(ORT, 1500.0),)).recommendation
    assert text.endswith("No other runtime measured here is faster than Python eager for certain.")


def test_a_faster_one_with_other_outputs_is_named_and_not_recommended():
    text = make_gpu_receipt(
        make_runtime(ORT, 100.0, outputs=WRONG), make_runtime(("torchscript", "cpp"), 600.0)
    ).recommendation
    assert "torchscript called from C++ gives back 4,000 us" in text
    assert text.endswith(
        "Faster still, but not recommended, is onnxruntime/cpp (outputs differ by 5.0e-01 "
        "(limit 1e-02))."
    )
    slow = make_gpu_receipt(
        make_runtime(ORT, 3000.0, outputs=WRONG), make_runtime(("torchscript", "cpp"), 600.0)
    )
    assert "onnxruntime" not in slow.recommendation


def test_what_repeats_a_number_is_named_and_instruments_are_not():
    checks = {"outputs": CLOSE, "baked": "aten::item in Model"}
    flat, other = (
        replace(make_runtime(place, latency_us), checks=checks)
        for place, latency_us in ((FLAT, 500.0), (ORT, 400.0))
    )
    receipt = Receipt(rungs=(make_runtime(EAGER, 1000.0), flat), others=(other,))
    text = receipt.recommendation
    assert "is faster than Python eager for certain. Faster, but not recommended, is" in text
    assert "onnxruntime/cpp (right only while a number" in text
    assert "flat" not in text


def test_lines_that_cannot_be_ranked_are_both_named():
    rungs = (
        make_runtime(EAGER, 1000.0, noise=0.02),
        make_runtime(FLAT, 790.0, noise=-0.02),
        make_runtime(TAPE, 600.0, noise=0.02),
    )
    text = Receipt(rungs=rungs).recommendation
    assert "The largest part of the tax is model glue: 210 us (21%; " in text
    assert " or interpreter and bindings: 190 us (19%; " in text
    assert "; their intervals do not tell which." in text


def test_a_line_that_is_not_resolved_may_be_the_largest():
    rungs = (
        make_runtime(EAGER, 1000.0, noise=0.4),
        make_runtime(FLAT, 990.0, noise=-0.4),
        make_runtime(TAPE, 980.0),
    )
    receipt = Receipt(rungs=rungs)
    assert [line.resolved for line in receipt.lines[:1]] == [False]
    text = receipt.recommendation
    assert "The largest part" not in text


def test_what_autograd_costs_too_is_said():
    rungs = (
        make_runtime(EAGER, 1000.0),
        make_runtime(("tape-with-autograd", "cpp"), 700.0),
        make_runtime(TAPE, 300.0),
    )
    text = Receipt(rungs=rungs, ladder_name="autograd").recommendation
    assert text.startswith("Python costs 300 us of 1,000 us (30%; ")
    assert "). With autograd it is 700 us (70%; " in text
    assert "The largest part of the tax is autograd: 400 us (40%; " in text


def test_what_has_another_baseline_is_not_recommended():
    text = make_gpu_receipt(
        make_runtime(("padded", "python"), 100.0),
        make_runtime(("nested", "python"), 50.0, baseline="padded"),
    ).recommendation
    assert "nested" not in text and "padded" not in text


def test_a_graph_that_ran_other_kernels_is_not_said_to_run_the_same():
    receipt = make_gpu_receipt()
    evidence = [
        make_work(GRAPH, 640.0, same=False) if item.runtime == "cuda-graph" else item
        for item in receipt.evidence
    ]
    text = Receipt(rungs=receipt.rungs, evidence=tuple(evidence)).recommendation
    assert "A CUDA graph of the same operators, with other kernels, gives back" in text


def test_code_adopts_the_fastest_from_python_that_is_faster_and_right():
    receipt = make_cpu_receipt(
        make_runtime(("torchscript", "cpp"), 300.0),
        make_runtime(("torchscript-frozen", "python"), 350.0, outputs=WRONG),
        make_runtime(("torchscript", "python"), 400.0),
        make_runtime(("compile", "python"), 500.0),
    )
    first, inputs, requests, *lines = receipt.adoption.splitlines()
    assert inputs.startswith("# inputs: the tensors of one request, a tuple")
    assert requests.startswith("# requests: such tuples")
    assert first.startswith("# torchscript, called from Python: 400 us a call (2.50x; ")
    assert lines == find_lines("torchscript").splitlines()


def test_code_for_a_step_captures_the_step():
    def of_a_step(row):
        return replace(row, cell=replace(row.cell, step="train"))

    receipt = make_cpu_receipt(
        make_runtime(("compile", "python"), 300.0), make_runtime(("capture", "python"), 400.0)
    )
    rungs, others = (tuple(map(of_a_step, rows)) for rows in (receipt.rungs, receipt.others))
    receipt = replace(receipt, rungs=rungs, others=others)
    first, step, inputs, *lines = receipt.adoption.splitlines()
    assert step.startswith("# step: the ftax.Step that was measured")
    assert inputs.startswith("# inputs: its arguments")
    assert max(map(len, receipt.adoption.splitlines())) <= 76  # printed with an indent of 4
    assert first.startswith("# capture, called from Python: 400 us a call (2.50x; ")
    assert lines == find_lines("capture", step=True).splitlines()


def test_nothing_is_adopted_that_is_not_faster_for_certain():
    slower, unsure = (("compile", "python"), 1200.0, 0.002), (("compile", "python"), 999.0, 0.2)
    for place, latency_us, noise in (slower, unsure):
        receipt = make_cpu_receipt(make_runtime(place, latency_us, noise=noise))
        assert receipt.adoption == ""


def test_an_instrument_has_no_code():
    rungs = (make_runtime(EAGER, 1000.0), make_runtime(FLAT, 500.0))
    assert Receipt(rungs=rungs).adoption == ""
