"""Claims on today's results: hand-made latencies in which the answer is known."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ftax.paper.claims import testing as claims
from ftax.paper.claims.claim import RequiredCell
from ftax.paper.claims.claim_verdict import Verdict
from ftax.paper.claims.testing import find_claim, list_claims, required_cells
from ftax.records.store import append_record, read_records
from ftax.runtimes.catalogue import find_runtime
from ftax.sweeps.results import SweepResults
from support.claim_results import (
    GRAPHS,
    RESAMPLES,
    SHARES,
    judge,
    judge_one,
    make_cell,
    make_graph_results,
    make_results,
    make_series,
)


def test_a_claim_that_holds():
    verdict = judge_one(GRAPHS, make_graph_results(60.0))
    assert (verdict.paper, verdict.today) == ("holds", "holds")
    assert (verdict.machine, verdict.reason) == ("NVIDIA H200", "")
    assert verdict.shares == {"holds": 1.0}
    (test,) = verdict.tests
    assert (test.today, test.share, test.paper) == ("holds", 1.0, True)
    cut = next(value for value in verdict.values if value.name == "cut_b1")
    assert cut.paper == pytest.approx((73.34,), abs=0.01)
    assert cut.today == pytest.approx((60.0,))
    assert 59.5 < cut.low[0] < 60 < cut.high[0] < 60.5


@pytest.mark.parametrize(
    ("cut_pct", "outcome", "of_test"),
    [(-10.0, "does not hold", "does not hold"), (20.0, "changed", "another size")],
)
def test_a_claim_that_does_not_hold_or_does_in_another_size(cut_pct, outcome, of_test):
    verdict = judge_one(GRAPHS, make_graph_results(cut_pct))
    assert verdict.today == outcome
    assert [test.today for test in verdict.tests] == [of_test]
    assert verdict.shares == {outcome: 1.0}


def test_some_conditions_of_several_are_a_change():
    rising = judge_one(SHARES, make_series(lambda b: 3.0 + b, kernel_ms=lambda _: 2.0))
    assert [test.today for test in rising.tests] == ["does not hold", "does not hold"]
    falling = make_series(lambda b: 10.0 + b, kernel_ms=lambda b: 6.0 + b, noise=0.0005)
    verdict = judge_one(SHARES, falling)
    assert [test.today for test in verdict.tests] == ["holds", "another size"]
    assert verdict.today == "changed"


def test_what_rounds_do_not_tell_apart_is_not_resolved():
    verdict = judge_one(GRAPHS, make_graph_results(40.5, noise=0.02))
    assert verdict.today == "not resolved"
    assert 0.05 < verdict.shares["changed"] < 0.95
    assert [test.today for test in verdict.tests] == ["not resolved"]
    assert re.fullmatch(
        r"of the resamples: (holds|changed) in \d+%, (holds|changed) in \d+%", verdict.reason
    )
    assert judge_one(GRAPHS, make_graph_results(45.0, noise=0.02)).today == "holds"


def test_a_cell_that_was_not_measured_is_named():
    cells = make_graph_results(60.0)
    without = [cell for cell in cells if (cell.cell.runtime, cell.cell.batch) != ("cuda-graph", 4)]
    verdict = judge_one(GRAPHS, without)
    assert verdict.today == "cannot be tested here"
    assert verdict.reason == "bert-base cuda-graph/python fp16 b4 s128 was not measured"
    values = {value.name: value for value in verdict.values}
    assert values["cut_b4"].today == () and values["cut_b4"].why == verdict.reason
    assert values["cut_b8"].today == pytest.approx((60.0,))


def test_a_cell_that_failed_says_why():
    cells = [
        *make_graph_results(60.0),
        make_cell(RequiredCell("bert-base", "cuda-graph/python", "fp16", 2, 128), None),
    ]
    verdict = judge_one(GRAPHS, list({cell.cell.key(): cell for cell in cells}.values()))
    assert verdict.reason == ("bert-base cuda-graph/python fp16 b2 s128: unavailable, no library")


def test_conditions_that_can_be_tested_are_although_others_cannot():
    cells = [
        *make_series(lambda _: 5.0),
        *make_series(lambda _: 5.0, dtype="fp32"),
        *make_series(lambda _: 5.0, model="resnet-50", dtype="fp32"),
    ]
    verdict = judge_one("S4-flat-eager-batch", cells)
    assert verdict.today == "holds"
    assert verdict.tested == 3
    assert verdict.reason == (
        "1 of 4 conditions not tested: resnet-50 eager/python fp16 b1 was not measured"
    )


def test_only_the_batches_that_formulas_look_at_are_needed():
    latencies = {"eager/python": 3.0, "torchscript/python": 2.0, "onnxruntime/python": 1.0}
    cells = [
        cell
        for framework, latency in latencies.items()
        for model in ("bert-base", "resnet-50")
        for dtype in ("fp16", "fp32")
        for cell in make_series(
            lambda _, latency=latency: latency,
            model=model,
            framework=framework,
            dtype=dtype,
            batches=(1,),
        )
    ]
    assert judge_one("S4.1-faster-at-b1", cells).today == "holds"
    assert judge_one("S4.1-gain-shrinks", cells).today == "cannot be tested here"


def test_kernel_time_is_needed_where_a_claim_is_about_it():
    verdict = judge_one(SHARES, make_series(lambda b: 10.0 + b))
    assert verdict.reason == "bert-base eager/python cuda fp16 b1 s128 has no summed kernel time"


def test_every_claim_has_a_verdict_or_a_reason(tmp_path):
    verdicts = claims.test_claims(make_results(make_graph_results(60.0)), resamples=RESAMPLES)
    assert [verdict.id for verdict in verdicts] == [claim.id for claim in list_claims()]
    for verdict in verdicts:
        assert verdict.reason or verdict.today in ("holds", "changed", "does not hold")
    kept = tuple(verdict for verdict in verdicts if verdict.section.startswith("4.1"))
    for verdict in kept:
        append_record(tmp_path / "verdicts.jsonl", verdict)
    stored = read_records(tmp_path / "verdicts.jsonl").records
    assert len(stored) > 5 and stored == kept
    assert all(isinstance(verdict, Verdict) for verdict in stored)


def test_results_without_a_measured_cell_test_nothing():
    place = RequiredCell("bert-base", "eager/python", "fp16", 1, 128)
    for cells in ([], [make_cell(place, None)]):
        verdict = judge_one(GRAPHS, cells)
        assert verdict.reason == "the results hold no measured cell"


def test_a_condition_that_needs_a_model_nothing_stands_for_has_another_formula():
    cells = [
        cell
        for framework, latency in (("eager/python", 10.0), ("onnxruntime/python", 2.862))
        for model in ("bert-base", "resnet-50")
        for dtype in ("fp16", "fp32")
        for cell in make_series(
            lambda _, x=latency: x, model=model, framework=framework, dtype=dtype, batches=(1,),
            noise=0.0001,
        )
    ]  # fmt: skip
    assert judge_one("S4.1-avg-ort", cells).today == "holds"
    slower = [replace(cell, values_ns=tuple(2 * v for v in cell.values_ns)) for cell in cells[1:]]
    verdict = judge_one("S4.1-avg-ort", [cells[0], *slower])
    assert (verdict.today, verdict.tests[0].paper) == ("changed", False)


def test_what_no_measurement_tells_says_so():
    peak = judge_one("S5-peak-2.75x", make_graph_results(60.0))
    assert peak.reason == (
        "it compares peak rates of two GPUs from Table 2; no latency tells a peak rate"
    )
    assert (peak.paper, peak.tests[0].paper, peak.tests[0].today) == ("holds", True, "not tested")
    own = judge_one("X-repeat-3090", make_graph_results(60.0))
    assert own.reason.startswith("it compares numbers of the paper with each other")


def test_claims_without_data_of_the_paper_are_tested_with_formulas_of_ours():
    cells = [
        make_cell(place, 1.0 if "onnxruntime" in place.framework else 0.95)
        for place in required_cells([find_claim("S5-fnet")])
    ]
    verdict = judge_one("S5-fnet", cells)
    assert (verdict.paper, verdict.today) == ("no data", "changed")
    assert [test.paper for test in verdict.tests] == [None, None]
    variants = {"bert-6x768": 5.0, "bert-24x768": 20.0, "bert-1536": 10.5}
    places = required_cells([find_claim("S4.2.1-fig6-bert-variants")])
    wide = [
        make_cell(
            place,
            max(variants.get(place.model, 10.0), place.batch * (2 if "1536" in place.model else 1)),
        )
        for place in places
    ]
    assert judge_one("S4.2.1-fig6-bert-variants", wide).today == "holds"


def test_required_cells_are_cells_that_can_be_measured():
    cells = required_cells()
    assert RequiredCell("bert-base", "nested/python", "fp16", 128, 128) in cells
    assert RequiredCell("bert-base", "onnxruntime/python", "fp16", 128, 1) in cells
    assert RequiredCell("resnet-50", "torchscript/python", "fp32", 8, None) in cells
    assert RequiredCell("fnet", "eager/python", "fp16", 1, 128) in cells
    assert {cell.dtype for cell in cells} == {"fp16", "fp32"}
    for framework in {cell.framework for cell in cells}:
        runtime, host = framework.split("/")
        assert host in find_runtime(runtime).hosts
    some = required_cells([find_claim(GRAPHS)])
    assert {cell.framework for cell in some} == {"eager/python", "cuda-graph/python"}
    assert some < cells


def knee_at(knee, low=5.0):
    """Latencies of a host of ``low`` ms until the device takes longer, from ``knee`` on."""
    return lambda batch: low * max(1.0, batch / knee)


def make_split(knee, framework="eager/python", low=5.0, host=0.0, **fields):
    """Cells whose kernels take what the device needs; a device-bound one has ``host`` ms more."""
    return make_series(
        lambda batch: max(low, low * batch / knee) + host,
        kernel_ms=lambda batch: low * batch / knee,
        framework=framework,
        noise=1e-4,
        **fields,
    )


def test_what_is_large_is_past_todays_knee():
    """Batch 32 was large for the paper's GPU. Here the knee is 64, and only 128 is past it."""
    cells = [
        *make_series(knee_at(64)),
        *make_series(lambda batch: knee_at(64)(batch) * (0.3 if batch <= 64 else 1.0),
                     framework="cuda-graph/python"),
    ]  # fmt: skip
    verdict = judge_one("S4.1-cudagraphs-large", cells)
    assert [test.today for test in verdict.tests] == ["holds", "holds"]
    flat = [
        *make_series(lambda _: 5.0),
        *make_series(lambda _: 2.0, framework="cuda-graph/python"),
    ]
    (_, large) = judge_one("S4.1-cudagraphs-large", flat).tests
    assert (large.today, large.why) == (
        "not tested", "the largest batch that was measured is still on the plateau",
    )  # fmt: skip


def test_nested_tensors_are_held_against_graphs_past_the_knee():
    padded = make_series(lambda batch: 1.1 * knee_at(64)(batch), framework="padded/python")
    nested = make_series(lambda batch: 4.9 if batch < 128 else 6.0, framework="nested/python")
    graph = make_series(lambda batch: 1.0 if batch < 128 else 9.9, framework="cuda-graph/python")
    verdict = judge_one("S4.1-nested-large", [*make_series(knee_at(64)), *padded, *nested, *graph])
    assert [test.today for test in verdict.tests] == ["another size", "holds"]
    assert "past eager's knee nested tensors are faster than CUDA graphs" in verdict.sentence


@pytest.mark.parametrize(("extra_ms", "outcome"), [(0.05, "holds"), (1.0, "does not hold")])
def test_a_graph_removes_overhead_wherever_there_is_some(extra_ms, outcome):
    """What a graph leaves is held against what eager loses, not against the kernels' time, which
    on a fast GPU is as short as the host's part of a graph's launch."""
    graph = make_series(
        lambda batch: 5.0 * batch / 64 + extra_ms,
        kernel_ms=lambda batch: 5.0 * batch / 64,
        framework="cuda-graph/python",
    )
    verdict = judge_one("S3.2-cuda-graphs-remove-overhead", [*make_split(64), *graph])
    assert verdict.today == outcome


def test_a_share_may_rise_by_what_the_machine_drifts():
    kernels = (1.0, 1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 100.0)
    latencies = (10.0, 10.4, 10.0, 10.0, 10.0, 10.0, 16.5, 101.0)
    cells = [
        replace(cell, kernel_ns=1e6 * kernel, busy_ns=1e6 * kernel)
        for cell, kernel in zip(
            make_series(lambda batch: latencies[batch.bit_length() - 1], noise=1e-5), kernels
        )
    ]
    assert judge_one(SHARES, cells).tests[0].today == "does not hold"
    anchors = [
        make_cell(
            RequiredCell("bert-768", "eager/python", "fp16", 1, 128),
            latency,
            options={"repetition": mark},
            busy_ns=1e6,
        )
        for mark, latency in enumerate((9.0, 9.5, 10.0, 10.5, 11.0), start=1)
    ]
    assert judge_one(SHARES, [*cells, *anchors]).tests[0].today == "holds"


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("S4.2.1-width-table1", {("bert-1536", 1, 128): 0.7}),
        ("S5-table1-batch", {("bert-768", 4, 128): 0.7}),
        ("S5-table1-seq", {("bert-768", 1, 512): 0.7}),
    ],
)
def test_what_costs_nothing_may_be_faster_but_not_slower(name, factors):
    def make(factor):
        return [
            make_cell(place, factor if (place.model, place.batch, place.sequence) in factors else 1)
            for place in required_cells([find_claim(name)])
        ]

    assert judge_one(name, make(0.7)).today == "holds"
    assert judge_one(name, make(1.2)).today == "does not hold"


def test_a_framework_that_runs_other_models_does_not_run_this_one():
    places = sorted(required_cells([find_claim("S5-fft-unsupported")]), key=str)

    def make(*failed):
        return [
            make_cell(place, None if place.framework in failed else 1.0)
            for place in (*places, *(place._replace(model="bert-base") for place in places))
            if place.model == "fnet" or place.framework != "onnxruntime/python"
        ]

    assert judge_one("S5-fft-unsupported", make()).today == "does not hold"
    verdict = judge_one("S5-fft-unsupported", make("torchscript/python", "onnxruntime/python"))
    assert [test.today for test in verdict.tests] == ["not tested", "not tested"]
    verdict = judge_one("S5-fft-unsupported", [
        *make("torchscript/python"),
        *make_series(lambda _: 1.0, framework="torchscript/python"),
    ])  # fmt: skip
    assert [test.today for test in verdict.tests] == ["holds", "does not hold"]


@pytest.mark.parametrize(("encoder", "outcome"), [(5.8, "holds"), (7.0, "changed")])
def test_funnels_work_is_counted_with_and_without_its_decoder(encoder, outcome):
    macs = {"bert-base": 10.0, "funnel": 8.0, "funnel-base": encoder}
    cells = [
        make_cell(place, 1.0, macs=round(macs[place.model] * 1e9))
        for place in required_cells([find_claim("S4.2.2-funnel-macs")])
    ]
    verdict = judge_one("S4.2.2-funnel-macs", cells)
    assert verdict.today == outcome
    assert [value.today for value in verdict.values] == [
        pytest.approx((20.0,)), pytest.approx((100 - 10 * encoder,)),
    ]  # fmt: skip


def test_fewer_kernels_and_less_memory_are_counted():
    made = [
        make_cell(
            RequiredCell("bert-base", f"{name}/python", "fp16", 1, 128), 1.0,
            kernels=kernels, device_bytes=1_000_000 * megabytes,
        )
        for name, kernels, megabytes in (
            ("eager", 165, 250), ("torchscript", 382, 240), ("onnxruntime", 307, 400),
        )
    ]  # fmt: skip
    verdict = judge_one("S2-compilation-fewer-launches", made)
    assert [test.today for test in verdict.tests] == [
        "does not hold", "does not hold", "holds", "does not hold",
    ]  # fmt: skip
    assert verdict.sentence.startswith("On NVIDIA H200: TorchScript takes less memory than eager.")


def test_results_of_a_sweep_are_read_from_its_folder(tmp_path):
    made = make_results(make_graph_results(60.0))
    for record in (*made.machines.values(), *made.cells):
        append_record(tmp_path / "cells.jsonl", record)
    assert judge(GRAPHS, SweepResults.load(tmp_path)) == judge(GRAPHS, made)
