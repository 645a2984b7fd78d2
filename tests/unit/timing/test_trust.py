"""Numbers that are not to go by: how they are told, that each place says so, and that none of them
is recommended, compared or called a share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import mean, median

import pytest

from ftax import compare
from ftax.ladders.lines import compute_lines
from ftax.ladders.receipt import Receipt
from ftax.records.store import read_records
from ftax.reports.tables.knee_table import draw_knees
from ftax.reports.tables.measurement_table import make_measurement_table
from ftax.reports.tables.receipt_table import make_line_table
from ftax.reports.tables.runtime_table import make_runtime_tables
from ftax.reports.tables.sweep_table import _make_cells
from ftax.sweeps.knee_record import KneePoint
from ftax.sweeps.results import SweepResults
from ftax.timing.differences import HostComparison
from ftax.timing.measurement import QUEUED, Measurement, describe_doubts, describe_page_faults
from ftax.timing.session import _describe_disturbance
from ftax.timing.trust import (
    find_disturbance,
    find_doubt,
    find_doubt_of_mean,
    find_doubt_of_waits,
    find_growth,
)
from support.evidence import EAGER, FLAT, TAPE
from support.records import make_measurement
from support.report_results import make_environments, make_knee
from support.runtimes_receipt import (
    ORT,
    make_cpu_receipt,
    make_gpu_receipt,
    make_runtime,
    make_work,
)
from support.sweeps import make_cell, make_measured
from support.tables import read_column

RESULTS = Path(__file__).parents[3] / "bench" / "results"


def queue(measurement: Measurement, *ratios: float) -> Measurement:
    """The same, with the share of requests that waited in each round, or in all of them."""
    rounds = len(measurement.samples_ns)
    waits = list(ratios) if len(ratios) == rounds else [ratios[0]] * rounds
    return replace(measurement, checks={**measurement.checks, QUEUED: waits})


# --- what is in doubt ---------------------------------------------------------------------------


def test_rounds_that_agree_are_believed():
    assert find_doubt([100.0, 110.0, 90.0], queued_ratio=0.1) == ""
    assert find_doubt([100.0, 118.0 * 2, 100.0]) == ""  # 1.45 times the median
    assert find_doubt_of_mean([100.0, 110.0], (90.0, 120.0)) == ""


def test_rounds_that_become_longer_all_along_are_found():
    rising = [100.0 + 2 * i + (7 * i) % 5 for i in range(30)]
    growth = find_growth(rising)
    assert growth is not None and 1.3 < growth < 1.6
    assert find_growth(rising[::-1]) is None
    assert find_growth(rising[:19]) is None  # too few to tell
    assert find_growth([100.0 + i / 10 for i in range(30)]) is None  # by 3 %
    assert find_growth([100.0] * 15 + [200.0] * 5 + [100.0] * 10) is None  # a neighbour
    assert find_growth([100.0] * 24 + [115.0] * 6) is None  # or one that comes and stays
    assert find_growth([100.0 + i % 3 + 15 * (i >= 15) for i in range(30)]) is None
    assert find_growth([100.0] * 30) is None


def test_a_mean_far_from_the_median_of_its_rounds_is_not():
    assert "3.33 times their median" in find_doubt([5.0, 5.0, 40.0])
    assert "0.551 times their median" in find_doubt([1.0] * 9 + [19.0] * 10)
    assert find_doubt([0.0, 0.0, 3.0])  # a median of 0 divides nothing


def test_requests_that_waited_for_a_cpu_are_not_however_alike():
    """The fault that was seen: 15.7 ms, 15.5 to 16.0, of work that takes 5 us."""
    assert "waited for a CPU" in find_doubt([15_700_000.0] * 20, queued_ratio=1.0)
    assert find_doubt_of_waits(0.5) and not find_doubt_of_waits(0.49)
    assert not find_doubt_of_waits(None)


def test_an_interval_below_zero_or_none_at_all_is_not():
    assert "below 0" in find_doubt_of_mean([100.0, 110.0], (-5.0, 215.0))
    assert "single round" in find_doubt_of_mean([100.0], None)


def test_waits_are_those_of_the_middle_round_that_counts():
    rounds = make_measurement([100] * 7)
    assert rounds.queued_ratio is None and rounds.queued_ratios == ()
    assert queue(rounds, 0, 0, 0, 0, 1, 1, 1).doubt == ""
    assert queue(rounds, 0, 0, 0, 1, 1, 1, 1).doubt
    left_out = queue(replace(rounds, counted="quiet"), 0, 0, 0, 1, 1, 0.2, 0)
    left_out = replace(left_out, checks={**left_out.checks, "disturbed_rounds": [3, 4]})
    assert left_out.queued_ratio == 0.0
    unequal = replace(rounds, checks={QUEUED: [1.0]})  # of another program: nobody knows
    assert unequal.queued_ratio is None


# --- the receipt --------------------------------------------------------------------------------


def test_lines_of_a_rung_in_doubt_are_not_resolved_and_have_no_share():
    """A tape of 15.7 ms below a Python eager of 52 us was a share of -30,319 %."""
    rungs = (
        make_runtime(EAGER, 52.0),
        make_runtime(FLAT, 40.0),
        queue(make_runtime(TAPE, 15_700.0), 1.0),
    )
    glue, bindings, operators = compute_lines(rungs)
    assert glue.resolved and not glue.doubt
    assert bindings.interval_ns[1] < 0  # resolved, if it were a matter of intervals alone
    for line in (bindings, operators):
        assert not line.resolved and line.rounds_needed is None
        assert line.doubt.startswith("eager/cpp: requests waited for a CPU")
    receipt = Receipt(rungs=rungs)
    rows = {row[0].split("\n")[0]: row for row in make_line_table(receipt).rows}
    assert rows["interpreter and bindings"][0].endswith("(not resolved)")
    assert rows["interpreter and bindings"][3] == "-"
    assert rows["model glue"][3] == "23.1%"
    assert any("eager/cpp is not resolved" in text for text in receipt.collect_warnings())
    assert "Python's cost is not resolved: eager/cpp: requests waited" in receipt.recommendation
    assert "No other runtime measured here is faster" in receipt.recommendation


def test_a_part_below_nothing_is_no_tax_and_says_why_it_can_be():
    eager, tape = make_runtime(EAGER, 100.0), make_runtime(TAPE, 150.0)
    slower, operators = compute_lines([eager, tape])
    assert slower.interval_ns[1] < 0
    assert not slower.resolved and not slower.doubt
    assert slower.problem == "below 0, since rungs differ in memory behaviour"
    assert not operators.resolved and operators.problem.startswith("it came out larger than")
    rows = make_line_table(Receipt(rungs=(eager, tape))).rows
    assert not any("not resolved" in row[0] for row in rows)
    faulting = use_kernel(tape, faults=900, system_ns=0)
    slower = compute_lines([use_kernel(eager, faults=0, system_ns=0), faulting])[0]
    assert slower.problem.endswith(": eager/cpp has 900 page faults a call, eager/python 0")


def use_kernel(rung: Measurement, *, faults: int, system_ns: int) -> Measurement:
    """With so many page faults and so much system time in each call of each round."""
    calls = [len(samples) - rung.dropped_per_round for samples in rung.samples_ns]
    counted = {
        "page_faults": [faults * count for count in calls],
        "system_ns": [system_ns * count for count in calls],
    }
    return replace(rung, checks={**rung.checks, **counted})


def test_page_faults_are_a_finding_where_the_kernel_takes_five_percent():
    eager = make_runtime(EAGER, 1_000.0)
    receipt = make_cpu_receipt()
    rungs = (use_kernel(receipt.rungs[0], faults=300, system_ns=10**9), *receipt.rungs[1:])
    (found,) = [
        text for text in replace(receipt, rungs=rungs).collect_warnings() if "page faults" in text
    ]
    assert "of eager/python (300 a call)" in found and "MALLOC_TRIM_THRESHOLD_=" in found
    for quiet in (
        eager,
        use_kernel(eager, faults=300, system_ns=int(eager.latency_ns * 0.04)),
        use_kernel(eager, faults=0, system_ns=10**9),  # it waits for a driver, say
    ):
        assert describe_page_faults([quiet]) == []
    use = use_kernel(eager, faults=300, system_ns=7).kernel_use
    assert use is not None and (use.page_faults, use.system_ns) == (300.0, 7.0)
    assert eager.kernel_use is None


def test_nothing_is_recommended_against_an_eager_in_doubt():
    receipt = make_cpu_receipt(make_runtime(ORT, 500.0))
    rungs = (queue(receipt.rungs[0], 1.0), *receipt.rungs[1:])
    text = replace(receipt, rungs=rungs).recommendation
    assert text.startswith("Python's cost is not resolved: eager/python: requests waited")
    assert "gives back" not in text and "largest part" not in text
    on_gpu = make_gpu_receipt(make_runtime(ORT, 500.0))
    rungs = (queue(on_gpu.rungs[0], 1.0), *on_gpu.rungs[1:])
    text = replace(on_gpu, rungs=rungs).recommendation
    assert "bound at batch 1: " not in text and "gives back" not in text
    assert "not resolved: eager/python" in text


def test_a_receipt_that_is_not_to_go_by_says_so_first():
    receipt = make_cpu_receipt(make_runtime(ORT, 500.0))
    assert str(receipt.details).startswith("Receipt: ")
    doubted = replace(receipt, rungs=(queue(receipt.rungs[0], 1.0), *receipt.rungs[1:]))
    assert str(doubted.details).startswith("Nothing below is resolved: requests waited for a CPU")
    assert str(doubted).startswith("! All of this is not resolved: requests waited for a CPU")


def test_a_runtime_in_doubt_has_no_speed_up_and_is_not_recommended():
    """However fast it seems; and one that seems 20 times as slow is no "0.05x"."""
    for latency_us in (50.0, 20_000.0):
        receipt = make_cpu_receipt(queue(make_runtime(ORT, latency_us), 1.0))
        (row,) = [row for row in receipt.runtimes if row.label == "onnxruntime/cpp"]
        assert row.doubt and not row.is_faster and row.calls_to_pay_back is None
        assert "onnxruntime" not in receipt.recommendation
        table = make_runtime_tables(receipt)[0]
        (cells,) = [line for line in table.rows if line[0] == "onnxruntime"]
        named = dict(zip(table.columns, cells, strict=True))
        assert named["speed-up"] == "not resolved"
        assert named["latency"].endswith(", not resolved")


def test_what_a_runtime_in_doubt_saves_is_not_split():
    receipt = make_gpu_receipt(
        queue(make_runtime(ORT, 800.0), 1.0), evidence=[make_work(ORT, 440.0, same=False)]
    )
    table = make_runtime_tables(receipt)[1]
    (cells,) = [line for line in table.rows if line[0] == "onnxruntime"]
    named = dict(zip(table.columns, cells, strict=True))
    assert named["saved"] == named["tax removed"] == named["tax left"] == "not resolved"
    assert named["device time removed"] == "200 us"


# --- other places that show a number -------------------------------------------------------------


def test_ftax_bench_marks_it():
    good, bad = make_measurement([100, 101, 99]), queue(make_measurement([100, 101, 99]), 1.0)
    table = make_measurement_table([good, bad])
    assert read_column(table, "latency") == ["100 ns", "100 ns, not resolved"]
    assert describe_doubts([good]) == []
    flat = queue(make_measurement([100, 101, 99], runtime="flat"), 1.0)
    (told,) = describe_doubts([bad, good, flat])
    assert told.startswith("eager/python, flat/python are not resolved: requests waited")
    hosts = HostComparison(python=bad, cpp=make_measurement([50, 51, 49], host="cpp"))
    assert "is not resolved: eager/python" in hosts.describe()


def test_a_comparison_with_it_cannot_tell():
    a = make_measurement([100, 101, 99, 100])
    b = make_measurement([200, 201, 199, 200], host="cpp")
    assert compare(a, b).verdict == "slower" and not compare(a, b).doubt
    found = compare(a, queue(b, 1.0))
    assert found.verdict == "cannot-tell" and found.doubt.startswith("b: requests waited")
    assert "cannot tell, not resolved (b): requests waited" in found.describe()
    far = compare(make_measurement([100, 100, 900]), make_measurement([100, 100, 101], host="cpp"))
    assert far.doubt.startswith("a: the mean")


@pytest.mark.parametrize(("waiting", "is_told"), [(1, False), (2, True)])
def test_processes_are_told_apart_unless_half_of_a_side_waited(waiting, is_told):
    a = [make_measurement([100] * 4, index=i, pid=i + 1) for i in range(4)]
    b = [
        make_measurement([200 + i] * 4, index=i, pid=i + 9, session="e" * 16, host="cpp")
        for i in range(4)
    ]
    b[:waiting] = [queue(item, 1.0) for item in b[:waiting]]
    assert bool(compare(a, b).doubt) == is_told


def test_a_knee_does_not_take_waiting_for_a_plateau():
    rounds = (15e6,) * 20
    point = KneePoint(size=2, plateau_values_ns=rounds, values_ns=rounds)
    assert point.judge(0.1, 0.99) == "on"
    assert replace(point, queued_ratio=1.0).judge(0.1, 0.99) == "unsure"


def test_a_cell_of_a_sweep_has_no_overhead():
    cell = make_measured(make_cell(), values_ns=(100.0, 101.0, 99.0), busy_ns=50.0)
    waited = replace(cell, facts={"queued_ratio": 1.0})
    assert not cell.doubt and waited.doubt
    table = _make_cells("cells", [cell, waited])
    assert read_column(table, "latency") == ["100 ns", "100 ns, not resolved"]
    assert read_column(table, "overhead") == ["50%", "-"]


def test_a_cell_of_a_sweep_that_was_measured_beside_others_is_marked():
    few, many = _describe_disturbance(8, [0, 1]), _describe_disturbance(8, [*range(8)])
    cells = [
        make_measured(make_cell(batch=batch), values_ns=(100.0, 101.0, 99.0), warnings=warnings)
        for batch, warnings in ((1, ()), (2, (few,)), (4, (many,)))
    ]
    assert [bool(cell.disturbance) for cell in cells] == [False, False, True]
    told = read_column(_make_cells("cells", cells), "latency")
    assert told == ["100 ns", "100 ns", "100 ns, disturbed"]
    results = SweepResults(cells=tuple(cells), machines={})
    assert results.describe() == "3 measured (1 disturbed)"


@pytest.mark.parametrize(("disturbed", "is_told"), [(None, False), (5, False), (6, True)])
def test_a_probed_size_is_marked_once_most_of_its_rounds_are_disturbed(disturbed, is_told):
    rounds = (15e6,) * 10
    point = KneePoint(
        size=2, plateau_values_ns=rounds, values_ns=rounds, disturbed_rounds=disturbed
    )
    knee = replace(make_knee("eager", make_environments()[0], last_on=4), points=(point,))
    answers, points = draw_knees(knee).tables
    assert answers.rows[0][6].endswith("; disturbed at 2") == is_told
    told = "on the plateau" + (": the host was disturbed in 6 of 10 rounds" if is_told else "")
    assert points.rows[0][-1] == told


def test_no_result_on_record_is_doubted_for_its_mean():
    """What docs/statistics.md says of the limit of 1.5: honest results stay far below it."""
    receipts = [
        receipt
        for path in RESULTS.glob("*.jsonl*")
        for record in read_records(path, skip_bad=True).records
        for receipt in getattr(record, "parts", (record,))
        if isinstance(receipt, Receipt)
    ]
    found = [rows for item in receipts for rows in (*item.rungs, *item.others)]
    assert len(found) > 500
    for rows in found:  # a host may disturb all rounds, and says so
        is_disturbed = bool(find_disturbance(rows.warnings))
        most = 1.4 if is_disturbed else 1.2
        assert 1 / most <= mean(rows.values_ns) / median(rows.values_ns) <= most
        assert is_disturbed or find_growth(rows.values_ns) is None
