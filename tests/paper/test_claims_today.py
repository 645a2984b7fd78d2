"""Claims on today's results: hand-made latencies in which the answer is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from claim_results import BATCHES, make_cell, make_machine, make_results, make_series

from ftax import InvalidArgumentError
from ftax.paper import claims
from ftax.paper.claims_gpu import Sampler, list_gpus
from ftax.paper.claims_judge import judge_claim, judge_test, settle
from ftax.paper.claims_numbers import collect_numbers
from ftax.paper.claims_record import Verdict, find_claim
from ftax.paper.claims_scope import ADDED, RELATIONS, UNTESTABLE, RequiredCell
from ftax.paper.claims_today import PlannedOperand, Wanted, make_plan
from ftax.results import append_record, read_records
from ftax.runtimes import find_runtime
from ftax.sweep.results import SweepResults

GRAPHS = "S4.1-cudagraphs-small"
SHARES = "S3.2-share-falls"
RESAMPLES = 200


def judge(name, results, **options):
    verdicts = claims.test_claims(
        results, claims=[find_claim(name)], resamples=RESAMPLES, **options
    )
    assert {verdict.id for verdict in verdicts} == {name}
    return verdicts


def judge_one(name, cells, **options):
    (verdict,) = judge(name, make_results(cells), **options)
    return verdict


def make_graph_results(cut_pct, *, noise=0.002, batches=BATCHES):
    """Eager BERT at 10 ms, and CUDA graphs that cut this much of it."""
    return [
        *make_series(lambda _: 10.0, noise=noise, batches=batches),
        *make_series(
            lambda _: 10.0 * (1 - cut_pct / 100),
            framework="cuda-graph/python",
            noise=noise,
            batches=batches,
        ),
        *make_series(lambda _: 5.0, framework="nested/python", batches=batches),
    ]


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


def test_a_claim_that_does_not_hold():
    verdict = judge_one(GRAPHS, make_graph_results(-10.0))
    assert verdict.today == "does not hold"
    assert [test.today for test in verdict.tests] == ["does not hold"]
    assert verdict.shares == {"does not hold": 1.0}


def test_a_relation_of_another_size_is_a_change():
    verdict = judge_one(GRAPHS, make_graph_results(20.0))
    assert verdict.today == "changed"
    assert [test.today for test in verdict.tests] == ["another size"]


def test_some_conditions_of_several_are_a_change():
    rising = judge_one(SHARES, make_series(lambda b: 3.0 + b, kernel_ms=lambda _: 2.0))
    assert [test.today for test in rising.tests] == ["does not hold", "does not hold"]
    falling = make_series(lambda b: 10.0 + b, kernel_ms=lambda b: 6.0 + b, noise=0.0005)
    verdict = judge_one(SHARES, falling)
    assert [test.today for test in verdict.tests] == ["holds", "another size"]
    assert verdict.today == "changed"


def test_what_rounds_do_not_tell_apart_is_not_resolved():
    verdict = judge_one(GRAPHS, make_graph_results(40.05, noise=0.02))
    assert verdict.today == "not resolved"
    assert 0.05 < verdict.shares["changed"] < 0.95
    assert [test.today for test in verdict.tests] == ["not resolved"]
    assert verdict.reason.startswith("of the resamples: changed in ")
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


def test_one_round_gives_a_verdict_without_an_interval():
    cells = [replace(cell, values_ns=cell.values_ns[:1]) for cell in make_graph_results(60.0)]
    verdict = judge_one(GRAPHS, cells)
    assert (verdict.today, verdict.shares, verdict.resamples) == ("holds", {}, 0)
    assert all(value.low == () for value in verdict.values)
    assert verdict.notes[0].startswith("no interval: bert-base cuda-graph/python cuda fp16 b1")


def test_counts_have_no_interval():
    cells = make_series(lambda _: 1.0, dtype="fp32", macs=10**10, modules=100)
    numbers = collect_numbers(
        make_plan(find_claim("S4-time-per-mac")), lambda _: list_gpus(make_results(cells))[0],
        Sampler(resamples=RESAMPLES, seed=0),
    )  # fmt: skip
    assert numbers.point["g_b"] == 10.0
    assert {scope["g_b"] for scope in numbers.resamples} == {10.0}
    verdict = judge_one("S4.2.2-funnel-macs", cells)
    assert all(value.low == () for value in verdict.values)


def test_work_is_taken_from_any_cell_of_the_size():
    counted = make_series(lambda _: 1.0, framework="tape/cpp", batches=(128,), macs=2 * 10**9)
    cells = [*make_series(lambda _: 1.0, dtype="fp32"), *counted]
    (gpu,) = list_gpus(make_results(cells))
    wanted = Wanted(
        column="gmacs", cell=RequiredCell("bert-base", "eager/python", "fp32", 128, 128)
    )
    assert gpu.read(wanted) == 2.0
    assert (
        "has no count of macs"
        in gpu.read(
            replace(wanted, cell=RequiredCell("bert-base", "eager/python", "fp32", 1, 128))
        ).why
    )


def test_draws_belong_to_the_cell_and_to_the_seed():
    cells = make_graph_results(40.5, noise=0.02)
    forwards, backwards = judge_one(GRAPHS, cells), judge_one(GRAPHS, cells[::-1])
    assert forwards == backwards
    assert judge_one(GRAPHS, cells, seed=1).values != forwards.values
    with pytest.raises(InvalidArgumentError, match="resamples is 100; give at least 200"):
        claims.test_claims(make_results(cells), resamples=100)


def test_cells_of_one_session_are_resampled_together():
    def make(**fields):
        cells = make_graph_results(60.0, noise=0.1)
        drift = [cell.values_ns for cell in cells[: len(BATCHES)]]
        paired = [
            replace(cell, values_ns=tuple(0.4 * value for value in values))
            for cell, values in zip(cells[len(BATCHES) :], drift)
        ]
        eager = cells[: len(BATCHES)]
        return [replace(cell, **fields) for cell in (*eager, *paired)]

    def width(cells):
        value = judge_one(GRAPHS, cells).values[0]
        return value.high[0] - value.low[0]

    assert width(make(facts={"session": "s1"})) == pytest.approx(0.0, abs=1e-9)
    assert width(make()) > 1.0


def test_an_interval_is_as_wide_as_the_noise_says():
    noise, rounds = 0.01, 40
    cells = make_series(lambda _: 10.0, noise=noise, rounds=rounds)
    (gpu,) = list_gpus(make_results(cells))
    cell = cells[0]
    draws = Sampler(resamples=4000, seed=0).draw(gpu.cells[next(iter(gpu.cells))])
    assert draws.mean() == pytest.approx(cell.latency_ns / 1e6, rel=1e-3)
    assert draws.std() == pytest.approx(10.0 * noise / rounds**0.5, rel=0.35)


def test_tiny_models_test_nothing():
    cells = [
        replace(cell, cell=replace(cell.cell, options={"tiny": True}))
        for cell in make_graph_results(60.0)
    ]
    assert judge_one(GRAPHS, cells).today == "cannot be tested here"


def test_of_cells_that_differ_in_options_the_plainest_counts():
    place = RequiredCell("bert-base", "eager/python", "fp16", 1, 128)
    plain, special = make_cell(place, 1.0), make_cell(place, 9.0, options={"attention": "eager"})
    for cells in ([plain, special], [special, plain]):
        (gpu,) = list_gpus(make_results(cells))
        assert gpu.cells[place].latency_ns == pytest.approx(1e6)


def test_gpus_of_the_paper_are_one_machine_today():
    cells = [
        cell
        for dtype in ("fp16", "fp32")
        for framework, latency in (("eager/python", 2.0), ("torchscript/python", 1.0))
        for cell in make_series(lambda _, x=latency: x, framework=framework, dtype=dtype)
    ]
    verdict = judge_one("S4.1-torchscript-other-gpus", cells)
    assert verdict.today == "holds"
    assert len(verdict.tests) == 2
    assert len(verdict.values) == 2
    assert verdict.notes == (
        "13 conditions on GPUs of the paper are 2 on one machine; names of GPUs in formulas stand "
        "for NVIDIA H200",
    )


def make_two_gpus(a100_ms, v100_ms, **names):
    machines = make_machine("NVIDIA A100-SXM4-40GB"), make_machine("Tesla V100-PCIE-32GB")
    cells = [
        cell
        for machine, latency in zip(machines, (a100_ms, v100_ms), strict=True)
        for model in ("bert-base", "resnet-50")
        for dtype in ("fp16", "fp32")
        for cell in make_series(
            lambda _, x=latency: x, model=model, dtype=dtype, machine=machine.id
        )
    ]
    return make_results(cells, *machines)


def test_claims_that_compare_gpus_need_them():
    cells = [*make_series(lambda _: 1.0), *make_series(lambda _: 1.0, dtype="fp32")]
    verdict = judge_one("S5-a100-slower-bert", cells)
    assert verdict.today == "cannot be tested here"
    assert verdict.reason == (
        "it is about A100, V100 and needs results of each; these are of NVIDIA H200"
    )
    named = judge_one("S4.3-1080ti-bert-not-bound", cells)
    assert named.reason.startswith("it is about 1080Ti, 3090 and needs results of each")


def test_claims_that_compare_gpus_are_tested_on_those_that_there_are():
    (verdict,) = judge("S5-a100-slower-bert", make_two_gpus(2.0, 1.0))
    assert (verdict.today, len(verdict.tests)) == ("holds", 4)
    assert verdict.machine == "NVIDIA A100-SXM4-40GB, Tesla V100-PCIE-32GB"
    (faster,) = judge("S5-a100-slower-bert", make_two_gpus(1.0, 2.0))
    assert faster.today == "does not hold"
    (several,) = judge("S4.3-bound-on-all-gpus", make_two_gpus(1.0, 2.0))[:1]
    assert several.machine == "NVIDIA A100-SXM4-40GB"
    (missing,) = judge("S4.3-knee-newer-larger", make_two_gpus(1.0, 2.0))
    assert missing.today == "cannot be tested here"
    assert "there are no results of 1080Ti, 2080Ti, 3090, RTX-8000" in missing.reason


def test_machines_have_verdicts_of_their_own():
    first, second = make_machine("NVIDIA H200"), make_machine("NVIDIA B200")
    cells = [
        *(replace(cell, machine=first.id) for cell in make_graph_results(60.0)),
        *(replace(cell, machine=second.id) for cell in make_graph_results(20.0)),
    ]
    verdicts = judge(GRAPHS, make_results(cells, first, second))
    assert [(verdict.machine, verdict.today) for verdict in verdicts] == [
        ("NVIDIA H200", "holds"),
        ("NVIDIA B200", "changed"),
    ]


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA GeForce GTX 1080 Ti", "1080Ti"),
        ("NVIDIA GeForce RTX 3090", "3090"),
        ("Quadro RTX 8000", "RTX-8000"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("NVIDIA TITAN X (Pascal)", "TitanX"),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA H100", None),
    ],
)
def test_gpus_are_known_by_the_names_of_their_drivers(name, device):
    (gpu,) = list_gpus(make_results(make_series(lambda _: 1.0), make_machine(name)))
    known = ["1080Ti", "2080Ti", "3090", "A100", "A6000", "RTX-8000", "TitanX", "V100", "unknown"]
    assert [paper for paper in known if gpu.is_a(paper)] == ([device] if device else [])


def test_results_of_a_cpu_are_labelled_so():
    machine = make_machine(None)
    cells = make_series(lambda b: float(b), device="cpu", dtype="fp32")
    (gpu,) = list_gpus(make_results(cells, machine))
    assert (gpu.kind, gpu.label) == ("cpu", machine.environment.host.cpu_model)


def make_loose_plan(names):
    plan = make_plan(find_claim(GRAPHS))
    items = tuple(
        Wanted(column="latency_ms", cell=RequiredCell(name, "eager/python", "fp16", 1, 128))
        for name in names
    )
    operand = PlannedOperand(items=items, many=True, models=tuple(names))
    return replace(plan, operands={"x": operand, "y": operand})


@pytest.mark.parametrize(
    ("measured", "kept"), [("abcdef", "abcdef"), ("abcf", "abcf"), ("abc", "abc"), ("ab", "")]
)
def test_models_that_were_not_measured_are_left_out_of_long_lists(measured, kept):
    cells = [
        make_cell(RequiredCell(name, "eager/python", "fp16", 1, 128), 1.0 + ord(name))
        for name in measured
    ]
    (gpu,) = list_gpus(make_results(cells))
    numbers = collect_numbers(
        make_loose_plan("abcdef"), lambda _: gpu, Sampler(resamples=RESAMPLES, seed=0)
    )
    if not kept:
        assert len(numbers.point["x"]) == 6
        assert numbers.notes == ()
        return
    assert numbers.point["x"] == pytest.approx([1.0 + ord(name) for name in kept])
    assert len(numbers.resamples[0]["y"]) == len(kept)
    left_out = ", ".join(sorted(set("abcdef") - set(kept)))
    told = (f"over {len(kept)} of the paper's 6 models: no {left_out}",) if left_out else ()
    assert numbers.notes == told


def test_every_claim_has_a_verdict_or_a_reason(tmp_path):
    verdicts = claims.test_claims(make_results(make_graph_results(60.0)), resamples=RESAMPLES)
    assert [verdict.id for verdict in verdicts] == [claim.id for claim in claims.list_claims()]
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


def test_what_no_measurement_tells_says_so():
    reasons = {name: judge_one(name, make_graph_results(60.0)).reason for name in UNTESTABLE}
    assert reasons == UNTESTABLE
    own = judge_one("X-repeat-3090", make_graph_results(60.0))
    assert own.reason.startswith("it compares numbers of the paper with each other")


def test_claims_without_data_of_the_paper_are_tested_with_formulas_of_ours():
    cells = [
        make_cell(place, 1.0 if "onnxruntime" in place.framework else 0.95)
        for place in make_plan(find_claim("S5-fnet")).cells()
    ]
    verdict = judge_one("S5-fnet", cells)
    assert (verdict.paper, verdict.today) == ("no data", "changed")
    assert [test.paper for test in verdict.tests] == [None, None]
    variants = {"bert-6x768": 5.0, "bert-24x768": 20.0, "bert-1536": 10.5}
    places = make_plan(find_claim("S4.2.1-fig6-bert-variants")).cells()
    wide = [
        make_cell(
            place,
            max(variants.get(place.model, 10.0), place.batch * (2 if "1536" in place.model else 1)),
        )
        for place in places
    ]
    assert judge_one("S4.2.1-fig6-bert-variants", wide).today == "holds"


def test_required_cells_are_cells_that_can_be_measured():
    cells = claims.required_cells()
    assert RequiredCell("bert-base", "nested/python", "fp16", 128, 128) in cells
    assert RequiredCell("bert-base", "onnxruntime/python", "fp16", 128, 1) in cells
    assert RequiredCell("resnet-50", "torchscript/python", "fp32", 8, None) in cells
    assert RequiredCell("fnet", "eager/python", "fp16", 1, 128) in cells
    assert {cell.dtype for cell in cells} == {"fp16", "fp32"}
    for framework in {cell.framework for cell in cells}:
        runtime, host = framework.split("/")
        assert host in find_runtime(runtime).hosts
    some = claims.required_cells([find_claim(GRAPHS)])
    assert {cell.framework for cell in some} == {"eager/python", "cuda-graph/python"}
    assert some < cells


def test_own_formulas_and_relations_belong_to_claims():
    names = {claim.id for claim in claims.list_claims()}
    assert {*RELATIONS, *ADDED, *UNTESTABLE} <= names
    for name, relations in RELATIONS.items():
        assert set(relations) <= set(range(len(find_claim(name).tests)))


@pytest.mark.parametrize(
    ("holds", "outcome"),
    [(100, "holds"), (95, "holds"), (94, "not resolved")],
)
def test_95_of_100_resamples_have_to_agree(holds, outcome):
    resampled = [True] * holds + [False] * (100 - holds)
    assert judge_test(True, None, resampled, []) == (outcome, holds / 100)
    turned, share = judge_test(False, None, [not truth for truth in resampled], [])
    assert turned == ("does not hold" if outcome == "holds" else outcome)
    assert share == pytest.approx(1 - holds / 100)
    shares = {"holds": holds / 100, "changed": 1 - holds / 100}
    assert settle("holds", shares)[0] == outcome


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "not tested"], "holds"),
        (["holds", "does not hold"], "changed"),
        (["another size"], "changed"),
        (["does not hold", "not tested"], "does not hold"),
        (["not tested"], "cannot be tested here"),
        ([], "cannot be tested here"),
    ],
)
def test_conditions_make_a_verdict(outcomes, verdict):
    assert judge_claim(outcomes) == verdict


def test_results_of_a_sweep_are_read_from_its_folder(tmp_path):
    made = make_results(make_graph_results(60.0))
    for record in (*made.machines.values(), *made.cells):
        append_record(tmp_path / "cells.jsonl", record)
    assert judge(GRAPHS, SweepResults.load(tmp_path)) == judge(GRAPHS, made)
