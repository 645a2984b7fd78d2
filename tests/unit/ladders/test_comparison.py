"""Receipts against each other: which line changed, how sure that is, and what is not compared."""

import math
from dataclasses import replace

import pytest

import ftax
from ftax import InvalidArgumentError, compare
from ftax.ladders.receipt import Receipt
from ftax.records.store import append_record, read_records
from ftax.timing.comparison import compare_amounts
from ftax.timing.differences import HostComparison
from support.evidence import EAGER, FLAT, TAPE
from support.records import make_measurement
from support.runtimes_receipt import (
    ORT,
    WRONG,
    make_cpu_receipt,
    make_gpu_receipt,
    make_runtime,
)

NOISE = (-1.0, 1.0, -0.5, 0.5, -0.2, 0.2)


def make_receipt(eager_us=1000.0, flat_us=900.0, tape_us=700.0, *others, noise=0.002, run=1):
    """Runs are other processes, in whose rounds other things happen."""
    steps = NOISE[run % 6 :] + NOISE[: run % 6]
    rungs = [
        make_measurement(
            [round(latency_us * 1000 * (1 + noise * step)) for step in steps],
            runtime=place[0],
            host=place[1],
            pid=run,
            session=f"{run:016x}",
        )
        for place, latency_us in ((EAGER, eager_us), (FLAT, flat_us), (TAPE, tape_us))
    ]
    return Receipt(rungs=tuple(rungs), others=others)


def read_lines(comparison):
    return {line.name: line for line in comparison.lines}


def test_the_line_that_changed_is_found_and_the_others_are_equal():
    before, after = make_receipt(), make_receipt(800.0, 700.0, 500.0, run=2)
    found = compare(before, after)
    assert found.verdict == "faster" and found.runtime == "eager/python"
    assert found.ratio == pytest.approx(0.8, rel=1e-3)
    assert found.latency_a_ns == pytest.approx(before.latency_ns, rel=1e-5)
    assert found.latency_b_ns == pytest.approx(after.latency_ns, rel=1e-5)
    lines = read_lines(found)
    assert list(lines) == ["model glue", "interpreter and bindings", "operators"]
    assert {name: line.verdict for name, line in lines.items()} == {
        "model glue": "cannot-tell", "interpreter and bindings": "cannot-tell",
        "operators": "faster",
    }  # fmt: skip
    operators = lines["operators"]
    assert operators.difference_ns == pytest.approx(-200_000)
    assert operators.interval_ns[0] < -200_000 < operators.interval_ns[1] < 0
    assert sum(line.difference_ns for line in found.lines) == pytest.approx(
        after.latency_ns - before.latency_ns
    )


def test_the_errors_of_two_receipts_add_as_squares():
    before, after = make_receipt(), make_receipt(run=2)
    (line, *_) = compare(before, after, confidence=0.95).lines
    (a, *_), (b, *_) = before.lines, after.lines
    low = math.hypot(b.time_ns - b.interval_ns[0], a.interval_ns[1] - a.time_ns)
    assert line.interval_ns[0] == pytest.approx(line.difference_ns - low)


def test_several_receipts_a_side_are_compared_by_the_error_between_runs():
    """Each is precise, and they lie apart: no line of two runs may be told by its rounds."""
    levels = (1.0, 1.06, 0.95)
    a = [make_receipt(*(x * k for x in (1000, 900, 700)), run=i) for i, k in enumerate(levels, 1)]
    b = [make_receipt(*(x * k for x in (1020, 919, 714)), run=i) for i, k in enumerate(levels, 7)]
    found = compare(a, b)
    assert (found.unit, found.units_a, found.units_b) == ("process", 3, 3)
    assert found.verdict == "cannot-tell"
    assert read_lines(found)["operators"].verdict == "cannot-tell"
    assert compare(a[0], b[0]).verdict == "cannot-tell"  # 2 %, as two runs of one code may differ


def test_amounts_are_compared_by_welch_also_below_zero():
    a, b = [-3.0, 1.0, 2.0, 0.5], [4.0, 5.0, 6.0, 5.5]
    (low, high), verdict = compare_amounts(a, b, whole=30.0, confidence=0.95)
    # By hand: the variances are 4.7292 and 0.7292, the standard error is sqrt(5.4583 / 4), with
    # 3.9036 degrees of freedom, of which t is 2.804.
    half_width = 2.804 * math.sqrt(5.4583 / 4)
    assert (low, high) == pytest.approx((5 - half_width, 5 + half_width), abs=2e-3)
    assert verdict == "slower"  # by more than 5 % of the whole
    (low, high), verdict = compare_amounts(b, a, whole=30.0, confidence=0.95)
    assert high < -1.5 and verdict == "faster"
    assert compare_amounts(a, b, whole=40.0, confidence=0.95)[1] == "cannot-tell"


def test_every_runtime_of_both_is_compared_and_the_others_are_named():
    before = make_cpu_receipt(make_runtime(ORT, 300.0), make_runtime(("compile", "python"), 500.0))
    after = make_cpu_receipt(make_runtime(ORT, 250.0))
    found = compare(before, after, names=("main", "branch"))
    places = [item.runtime for item in found.runtimes]
    assert places == ["flat/python", "eager/cpp", "onnxruntime/cpp"]
    assert found.runtimes[-1].verdict == "faster"
    assert {item.name_b for item in (found, *found.runtimes)} == {"branch"}
    assert "compile/python is in main alone" in found.warnings


def test_a_measurement_is_compared_with_its_own_in_a_receipt():
    receipt = make_cpu_receipt(make_runtime(ORT, 300.0))
    cpp = make_runtime(ORT, 150.0)
    hosts = HostComparison(python=make_runtime(("eager", "python"), 1.0), cpp=make_runtime(TAPE, 1))
    found = compare(receipt, cpp)
    assert (found.runtime, found.verdict, found.lines) == ("onnxruntime/cpp", "faster", ())
    assert [compare(receipt, hosts).runtime] + [
        item.runtime for item in compare(receipt, hosts).runtimes
    ] == ["eager/python", "eager/cpp"]


def test_sides_of_one_cell_each_are_compared_whatever_they_run():
    found = compare(make_runtime(EAGER, 10.0), make_runtime(ORT, 5.0))
    assert (found.runtime, found.verdict) == ("eager/python and onnxruntime/cpp", "faster")


def test_lines_that_one_side_lacks_or_that_are_in_doubt_cannot_be_told():
    full = make_receipt()
    without_flat = replace(full, rungs=(full.rungs[0], full.rungs[2]))
    lines = read_lines(compare(full, without_flat))
    assert lines["Python"].a_ns is None and lines["Python"].difference_ns is None
    assert lines["model glue"].doubt == "one side has no such line"
    assert (lines["operators"].verdict, lines["operators"].doubt) == ("cannot-tell", "")
    waited = replace(full.rungs[1], checks={"queued_ratios": [1.0] * 6})
    doubtful = replace(full, rungs=(full.rungs[0], waited, full.rungs[2]))
    line = read_lines(compare(full, doubtful))["model glue"]
    assert line.verdict == "cannot-tell" and "requests waited" in line.doubt


def test_labels_name_the_sides_and_are_kept_in_the_file(tmp_path):
    receipt = make_cpu_receipt(make_runtime(ORT, 300.0))
    before, after = receipt.with_label("before"), receipt.with_label("after")
    before.save(tmp_path / "r.jsonl")
    (read,) = Receipt.load(tmp_path / "r.jsonl")
    assert read == before and read.label == "before" and read.others[0].label == "before"
    found = compare(before, after)
    assert (found.name_a, found.name_b) == ("before", "after")
    assert "after against before: cannot tell" in found.describe()
    assert compare(receipt, after).name_b == "b"  # one has none
    assert compare(before, before).name_a == "a"  # both the same
    assert compare(make_runtime(EAGER, 1.0).with_label("x"), before).name_a == "x"


def test_the_comparison_is_a_record_with_its_lines(tmp_path):
    found = compare(make_receipt(), make_receipt(800.0, 700.0, 500.0, run=2), names=("x", "y"))
    append_record(tmp_path / "r.jsonl", found)
    assert read_records(tmp_path / "r.jsonl").records == (found,)


def change_environment(receipt, **software):
    """The receipt as if of another torch."""
    rungs = []
    for rung in receipt.rungs:
        environment = replace(
            rung.environment, software=replace(rung.environment.software, **software)
        )
        rungs.append(replace(rung, environment=environment))
    return replace(receipt, rungs=tuple(rungs))


def test_other_machines_torches_and_threads_are_refused_unless_allowed():
    before = make_receipt()
    after = change_environment(make_receipt(run=2), torch="9.9.9")
    with pytest.raises(InvalidArgumentError, match=r"torch is .* for a and 9\.9\.9 for b.*allow"):
        compare(before, after)
    found = compare(before, after, allow_different=True)
    assert any("9.9.9 for b" in text for text in found.warnings)
    mixed = [before, change_environment(make_receipt(run=3), torch="1.1.1")]
    with pytest.raises(InvalidArgumentError, match=r"or 1\.1\.1 for a"):
        compare(mixed, [after, change_environment(make_receipt(run=4), torch="9.9.9")])


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        ("settings", {"num_threads": 77}, "threads are .* and 77 for b"),
        ("host", {"cpu_model": "Z80"}, "the CPU is .* and Z80 for b"),
        ("host", {"usable_cpus": 99}, "usable CPUs are .* and 99 for b"),
    ],
)
def test_each_difference_is_named(part, change, words):
    a = make_measurement([100, 101, 99])
    changed = replace(getattr(a.environment, part), **change)
    b = replace(a, environment=replace(a.environment, **{part: changed}))
    with pytest.raises(InvalidArgumentError, match=words):
        compare(a, b)


def test_machines_have_the_names_that_the_user_gives_them():
    a = make_measurement([100, 101, 99])
    here, there, unnamed = (
        replace(a, environment=replace(a.environment, machine=name)) for name in ("x", "y", "")
    )
    with pytest.raises(InvalidArgumentError, match="the machine is x for a and y for b"):
        compare(here, there)
    assert compare(here, unnamed).ratio == 1  # nobody knows


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ([], make_runtime(EAGER, 1.0), "no measurement"),
        ([make_cpu_receipt(), make_runtime(EAGER, 1.0)], make_cpu_receipt(), "give either"),
        (
            [make_runtime(EAGER, 1.0), make_runtime(FLAT, 1.0)],
            make_runtime(ORT, 1.0),
            "no runtime in common: a has eager/python, flat/python, b has onnxruntime/cpp",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_in_words(a, b, words):
    with pytest.raises(InvalidArgumentError, match=words):
        compare(a, b)


def test_a_run_counts_once_and_sides_have_two_names():
    one, other = make_measurement([100, 101, 102]), make_measurement([90, 91, 92])
    with pytest.raises(InvalidArgumentError, match="the same run more than once"):
        compare([one, one], [other, other])
    for names in (("x",), ("x", "x")):
        with pytest.raises(InvalidArgumentError, match="give two that differ"):
            compare(one, other, names=names)


def test_a_side_of_several_cells_of_one_runtime_is_refused():
    one = make_measurement([100, 101])
    other = replace(one, cell=replace(one.cell, batch=8))
    with pytest.raises(InvalidArgumentError, match=r"2 cells of eager/python .*b1.*b8"):
        compare([one, other], one)


def test_it_says_about_how_many_pairs_would_tell():
    """So many of the same spread do tell, and far fewer do not."""

    def make_sides(units):
        steps = [(2 * ((7 * i) % units) / (units - 1) - 1) for i in range(units)]
        return [
            [
                make_measurement(
                    [round(1_000_000 * (1 + spread * step))] * 5, index=i, pid=i + first,
                    checks={"rounds_a_turn": 5},
                )
                for i, step in enumerate(steps)
            ]
            for spread, first in ((0.0, 1), (0.1, 99_000))
        ]  # fmt: skip

    few = compare(*make_sides(5))
    needed = few.units_needed
    assert f"about {needed} pairs would tell" in " ".join(few.warnings)
    assert compare(*make_sides(needed | 1)).verdict == "equal"
    assert compare(*make_sides(needed // 4 | 1)).verdict == "cannot-tell"


def test_nothing_would_tell_what_is_told_or_what_waited():
    told = compare(make_runtime(EAGER, 1.0), make_runtime(EAGER, 2.0))
    assert told.units_needed is None
    waited = replace(make_runtime(EAGER, 1.0), checks={"queued_ratios": [1.0] * 6})
    assert compare(waited, make_runtime(EAGER, 1.0)).units_needed is None


def test_a_gpu_receipt_is_compared_down_to_its_kernels():
    found = compare(make_gpu_receipt(), make_gpu_receipt(eager_us=5000.0, busy_us=900.0))
    lines = read_lines(found)
    assert lines["kernels"].difference_ns == pytest.approx(260_000, rel=0.01)
    assert lines["kernels"].verdict == "slower"


def test_outputs_that_differ_are_told_of_every_runtime():
    before = make_cpu_receipt(make_runtime(ORT, 300.0, outputs=WRONG))
    found = compare(before, before)
    assert "outputs" in found.runtimes[-1].problems[0]
    assert "outputs differ" in str(found)


def test_ftax_compare_is_this_one():
    assert ftax.compare is compare


def test_what_is_no_result_is_named_with_what_is():
    with pytest.raises(
        InvalidArgumentError, match=r"has an int: give receipts, measurements or runs"
    ):
        ftax.compare(1, 2)
