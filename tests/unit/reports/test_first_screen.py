"""The first screen: one screen long, each quantity once, and question marks with one reason."""

import math
from dataclasses import replace

import pytest

from ftax.instruments.phases import Phase
from ftax.ladders.receipt import FIRST, Receipt, Unavailable
from ftax.ladders.skew import CollectiveTime
from ftax.reports.tables import first_screen
from ftax.reports.tables.first_screen import draw_receipt_first
from ftax.reports.terminal import to_text
from ftax.timing.measurement import FAULTS, SYSTEM
from ftax.timing.trust import DISTURBED_IN
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

CAPTURE, COMPILE = ("capture", "python"), ("compile-reduce-overhead", "python")
MANY = [
    make_runtime(CAPTURE, 300.0, seconds=1.8),
    make_runtime(COMPILE, 250.0, outputs=CLOSE, seconds=25.0),
    make_runtime(("onnxruntime", "python"), 200.0, outputs=CLOSE, seconds=9.0),
    *(make_runtime((f"other-{place}", "cpp"), 400.0 + place) for place in range(9)),
]


def of_a_step(receipt, step, units, ladder="eager"):
    def change(items):
        return tuple(
            replace(item, cell=replace(item.cell, step=step, units=units)) for item in items
        )

    return replace(
        receipt, rungs=change(receipt.rungs), others=change(receipt.others), ladder_name=ladder
    )


def make_disturbed():
    """Beside a neighbour, and so noisy that no line is resolved."""
    rungs = [
        make_runtime(place, 1000.0, noise=noise)
        for place, noise in ((EAGER, 0.4), (FLAT, -0.4), (TAPE, 0.4))
    ]
    warning = f"{DISTURBED_IN} 5 of 6 rounds (steal time), too many to leave out; --patience waits"
    return Receipt(rungs=(replace(rungs[0], warnings=(warning,)), *rungs[1:]))


def make_compiled():
    names = ("compile", "compile-without-guards", "compile-graph", "inductor-graph",
             "inductor-call", "inductor-cpp-call")  # fmt: skip
    rungs = [
        make_runtime((name, "python"), 1000.0 - 150 * place) for place, name in enumerate(names)
    ]
    return Receipt(rungs=tuple(rungs), others=tuple(MANY), ladder_name="compile")


def make_changing():
    receipt = make_cpu_receipt()
    top = receipt.rungs[0]
    checks = {**top.checks, "same_work": {"problem": "one call more"}}
    return replace(receipt, rungs=(replace(top, checks=checks), *receipt.rungs[1:]))


RECEIPTS = {
    "cpu": make_cpu_receipt(*MANY),
    "gpu": make_gpu_receipt(*MANY, evidence=[make_work(COMPILE, 200.0, same=False)]),
    "nothing": make_cpu_receipt(make_runtime(ORT, 2000.0)),
    "train": of_a_step(make_cpu_receipt(*MANY), "train", 4),
    "decode": of_a_step(make_cpu_receipt(*MANY), "decode", 8),
    "compile": make_compiled(),
    "disturbed": make_disturbed(),
    "changing": make_changing(),
}


@pytest.mark.parametrize("legend", [False, True])
@pytest.mark.parametrize("kind", RECEIPTS)
def test_it_is_one_screen_and_no_line_is_wider_than_it(kind, legend):
    drawn = RECEIPTS[kind].draw(saved="Saved in receipt.jsonl.", legend=legend)
    lines = to_text(drawn, width=80).splitlines()
    assert len(lines) <= 35 and max(map(len, lines)) <= 80
    assert max(map(len, to_text(drawn, width=40).splitlines())) <= 40


@pytest.mark.parametrize("kind", RECEIPTS)
def test_all_of_it_fits_into_40_columns_too(kind):
    for width in (40, 80):
        assert max(map(len, to_text(RECEIPTS[kind].details, width=width).splitlines())) <= width


def test_it_answers_on_a_cpu():
    text = to_text(make_cpu_receipt(*MANY[:3]).draw(), width=80)
    title, answer, _, *lines = text.splitlines()
    assert title.startswith("mlp  cpu  fp32  batch 1  ") and ", torch " in title
    assert answer == "1,000 us a call, of which 30 % (30 to 30) is Python"
    assert lines[:3] == [
        "model glue                100 us  10 %  ###",
        "interpreter and bindings  200 us  20 %  ######",
        "operators                 700 us  70 %  ####################",
    ]
    assert lines[4:8] == [
        "What gives it back                     us a call  times  outputs        ready in",
        "onnxruntime                                  200   5.0x  within 2e-06      9.0 s",
        'torch.compile(mode="reduce-overhead")        250   4.0x  within 2e-06       25 s',
        "ftax.capture                                 300   3.3x  bitwise equal     1.8 s",
    ]
    assert lines[9] == 'Paste (torch.compile(mode="reduce-overhead")):'
    assert lines[10] == "    model.eval()  # as it was measured"
    assert lines[-1] == (
        "print(receipt.details): the code for onnxruntime, rungs, percentiles, costs"
    )


@pytest.mark.parametrize(("high", "told"), [(0.8, ", of which at most 80 % is Python"), (2.9, "")])
def test_a_share_that_may_be_all_or_nothing_is_not_told(high, told, monkeypatch):
    share = ((0.4, -0.1, high), "is Python")
    monkeypatch.setattr(first_screen, "_compute_share_above", lambda _: share)
    assert to_text(make_cpu_receipt().draw(), width=80).splitlines()[1] == f"1,000 us a call{told}"


def test_it_answers_on_a_gpu():
    text = to_text(make_gpu_receipt().draw(), width=80)
    assert "4,600 us a call, of which 86 % (86 to 86) are not the GPU's work\n" in text
    assert "kernels                     640 us  14 %  ########\n" in text
    assert "The same work without Python takes 759 us (6.1x); --runtimes capture measures" in text


def test_what_a_capture_would_give_is_told_unless_it_was_measured_or_refused():
    receipt = make_cpu_receipt()
    assert "700 us (1.4x); --runtimes capture measures" in str(receipt)
    slow = make_cpu_receipt(make_runtime(CAPTURE, 1100.0))
    assert "Nothing that was measured gives it back" in str(slow)
    reason = "cannot capture mlp: it reads a clock: give a time"
    missing = Unavailable(runtime="capture", host="python", reason=reason, error=reason)
    refused = " ".join(str(replace(receipt, unavailable=(missing,))).split())
    told = "700 us (1.4x). ftax.capture refuses it: it reads a clock: give a time. print(receipt"
    assert told in refused
    left_out = replace(missing, error="")  # it was not tried
    told = str(replace(receipt, unavailable=(left_out,)))
    assert "700 us (1.4x); --runtimes capture measures" in told


def test_what_has_no_ladder_says_why():
    receipt = make_cpu_receipt()
    missing = Unavailable(
        runtime="eager",
        host="cpp",
        reason="cannot tape this step: it returns no tensor: return one",
    )
    alone = replace(receipt, rungs=receipt.rungs[:1], unavailable=(missing,))
    told = "a call Nothing is taken apart: it returns no tensor: return one. print("
    assert told in " ".join(str(alone).split())


def test_a_runtime_stands_there_once_and_instruments_do_not():
    receipt = make_cpu_receipt(
        make_runtime(("torchscript", "cpp"), 300.0), make_runtime(("torchscript", "python"), 400.0),
        make_runtime(("mine", "cpp"), 350.0),
    )  # fmt: skip
    text = to_text(receipt.draw(), width=80)
    rows = [line.split("  ")[0] for line in text.splitlines() if line.count("x  bitwise")]
    assert rows == ["mine, called from C++", "torch.jit.trace"]
    assert "flat" not in text and "tape" not in text


def test_what_is_pasted_stands_in_the_table_however_many_are_faster():
    faster = [make_runtime((f"mine-{place}", "cpp"), 200.0 + place) for place in range(9)]
    receipt = make_cpu_receipt(*faster, make_runtime(CAPTURE, 300.0))
    rows = [line.split("  ")[0] for line in str(receipt).splitlines() if "x  bitwise" in line]
    assert rows == [*(f"mine-{place}, called from C++" for place in range(4)), "ftax.capture"]
    assert "Paste:\n    import ftax" in str(receipt) and "5 more runtimes" in str(receipt)


@pytest.mark.parametrize(("capture_us", "pasted"), [(310.0, "ftax.capture"), (340.0, "torch.jit")])
def test_a_capture_is_pasted_where_another_is_hardly_faster(capture_us: float, pasted: str):
    trace = make_runtime(("torchscript", "python"), 300.0)
    text = str(make_cpu_receipt(trace, make_runtime(CAPTURE, capture_us)))
    assert pasted in text[text.index("Paste") :]


def test_what_is_faster_but_not_right_is_said_apart():
    text = str(make_cpu_receipt(make_runtime(ORT, 100.0, outputs=WRONG)).draw())
    assert "What gives it back" not in text
    assert "Faster, but not advised: onnxruntime, called from C++, 10x (outputs differ" in text


def test_an_unresolved_receipt_has_one_reason_first_and_question_marks():
    text = str(make_disturbed())
    assert " ".join(text.split()).startswith(
        "! What each layer costs is not resolved: other programs used the CPU in 5 of 6 rounds; "
        "leave the machine alone, or --patience 60 waits until it is quiet. mlp cpu"
    )
    taken = CollectiveTime(
        runtime="eager", host="python", calls=1, exposed_ns=(1.0,), aligned_ns=(1.0,)
    )
    with_ranks = str(replace(make_disturbed(), collectives=(taken,)))
    assert "leave the machine alone. mlp cpu" in " ".join(with_ranks.split())  # none is patient
    rows = [line.split() for line in text.splitlines() if line.startswith("model glue")]
    assert rows == [["model", "glue", "?", "?"]]
    assert text.count("not resolved") == 1 and "noise" not in text
    assert "(1 note)" in text and "steal time" in str(make_disturbed().details)


def test_what_was_interrupted_says_so_first():
    receipt = replace(make_cpu_receipt(), warnings=("interrupted after 6 rounds",))
    first = str(receipt).splitlines()[0]
    assert first == "! Interrupted after 6 rounds; run it again to the end."


def test_noise_alone_is_told_with_how_long_to_measure():
    rungs = (make_runtime(EAGER, 1000.0, noise=0.01), make_runtime(FLAT, 999.0, noise=-0.01),
             make_runtime(TAPE, 500.0, noise=0.01))  # fmt: skip
    receipt = Receipt(rungs=rungs)
    seconds = math.ceil(receipt.lines[0].rounds_needed * (1.0 + 0.999 + 0.5) / 1e3)
    assert 2 <= seconds < 60  # or the next line says little
    told = f"! Model glue is not resolved: noise is larger; --duration {seconds} should do."
    assert str(receipt).splitlines()[0] == told
    close = (rungs[0], make_runtime(FLAT, 1000.0, noise=-0.01), rungs[2])
    assert str(Receipt(rungs=close)).splitlines()[0].endswith("; it may as well be nothing.")


def test_work_that_changes_has_no_ladder_and_says_what_to_do():
    text = " ".join(str(make_changing()).split())
    assert text.startswith("! Not the same work in each call: one call more. Measure a step whose")
    assert "1,000 us a call print(receipt.details)" in text


def test_a_step_names_its_units():
    assert "1,000 us a step of 8 tokens (125 us a token), of" in str(RECEIPTS["decode"])
    assert "us a step  times" in str(RECEIPTS["train"])


def test_what_the_loader_adds_stands_below_the_lines():
    phases = (Phase(name="forward", host_ns=7e5), Phase(name="loader", host_ns=5e4))
    receipt = replace(RECEIPTS["train"], phases=phases)
    lines = to_text(receipt.draw(), width=80).splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("+ loader"))
    assert lines[place].split() == ["+", "loader", "50", "us", "5", "%"]
    assert lines[place - 1].startswith("operators")
    noisy = replace(make_disturbed(), phases=phases)
    assert ("+ loader" in str(noisy)) == (not noisy.rungs[0].doubt)


def test_page_faults_are_told_with_their_remedy():
    receipt = make_cpu_receipt()
    rounds = len(receipt.rungs[0].samples_ns)
    checks = {FAULTS: [300.0] * rounds, SYSTEM: [2e5] * rounds}
    top = replace(receipt.rungs[0], checks={**receipt.rungs[0].checks, **checks})
    text = " ".join(str(replace(receipt, rungs=(top, *receipt.rungs[1:]))).split())
    assert "Page faults take 20% of eager/python (300 a call)" in text
    assert "MALLOC_TRIM_THRESHOLD_=" in text and "MALLOC_TRIM" not in str(receipt)


def test_that_it_was_measured_on_one_thread_is_said_before_the_title():
    receipt = replace(make_cpu_receipt(), preparation={FIRST: "Measured on one thread."})
    assert str(receipt).splitlines()[0] == "Measured on one thread."


def test_a_function_is_called_by_its_name():
    text = str(of_a_step(make_cpu_receipt(), "step", 1))
    assert text.startswith("mlp  cpu") and "1,000 us a call, of which" in text


def test_lines_are_explained_where_that_is_asked_for():
    receipt = make_gpu_receipt()
    told = "model glue = module calls, hooks, the model's own Python; interpreter and"
    assert told in " ".join(str(draw_receipt_first(receipt, legend=True)).split())
    assert told not in " ".join(str(receipt).split())


def test_what_could_not_be_measured_is_counted_and_shown_with_all():
    missing = Unavailable(runtime="jax", host="python", reason="not installed")
    receipt = replace(make_cpu_receipt(), unavailable=(missing,), warnings=("a", "b"))
    assert "costs (3 notes)" in " ".join(str(receipt).split())
    assert "not installed" in str(receipt.details) and "! a\n! b\n" in str(receipt.details)


def test_a_notebook_has_the_same_answer():
    html = RECEIPTS["gpu"]._repr_html_()
    assert "are not the GPU&#x27;s work" in html and "What gives it back" in html
    assert html.count("<table") == 2 < RECEIPTS["gpu"].details._repr_html_().count("<table")
    assert GRAPH[0] not in html
