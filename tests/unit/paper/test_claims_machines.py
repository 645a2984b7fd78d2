"""Claims and machines: one that stands for the paper's GPUs, several, and those it names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ftax.paper.claims.measured import list_gpus
from ftax.paper.claims.testing import find_claim, required_cells
from support.claim_results import (
    GRAPHS,
    judge,
    judge_one,
    make_cell,
    make_graph_results,
    make_machine,
    make_results,
    make_series,
)


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("S4.1-torchscript-other-gpus", 7),
        ("S4.3-bound-on-all-gpus", 7),
        ("S4.2.2-funnel-large-other-gpus", 4),
    ],
)
def test_what_is_said_of_several_gpus_is_not_tested_with_one(name, gpus):
    cells = [make_cell(place, 1.0) for place in required_cells([find_claim(name)])]
    verdict = judge_one(name, cells)
    assert verdict.today == "cannot be tested here"
    assert verdict.reason == f"it is about {gpus} GPUs, and these are results of one"
    assert verdict.sentence == f"Not tested: {verdict.reason}."


def make_torchscript(machine, torchscript_ms):
    """BERT at 2 ms in eager, on one machine in both dtypes."""
    return [
        cell
        for dtype in ("fp16", "fp32")
        for framework, latency in (("eager/python", 2.0), ("torchscript/python", torchscript_ms))
        for cell in make_series(
            lambda _, x=latency: x, framework=framework, dtype=dtype, machine=machine.id
        )
    ]


def test_a_claim_about_several_gpus_holds_if_it_does_on_each():
    first, second = make_machine("NVIDIA H200"), make_machine("NVIDIA B200")

    def judge_two(other, torchscript_ms):
        cells = [*make_torchscript(first, 1.0), *make_torchscript(other, torchscript_ms)]
        (verdict,) = judge("S4.1-torchscript-other-gpus", make_results(cells, first, other))
        return verdict

    both = judge_two(second, 1.0)
    assert (both.today, both.machine) == ("holds", "NVIDIA H200, NVIDIA B200")
    assert len(both.tests) == len(both.values) == 4
    assert [test.about.rpartition(" on ")[2] for test in both.tests] == (
        ["NVIDIA H200"] * 2 + ["NVIDIA B200"] * 2
    )
    assert both.notes[0] == "13 conditions on GPUs of the paper are 2 on one machine, NVIDIA H200"
    one = judge_two(second, 3.0)
    assert one.today == "changed"
    assert "on NVIDIA B200" in one.sentence.partition("Not so: ")[2]
    twins = judge_two(replace(second, environment=first.environment), 1.0)  # two ids, one GPU
    assert twins.reason == "it is about 7 GPUs, and these are results of one"


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
    (several,) = judge("S4.3-bound-on-all-gpus", make_two_gpus(1.0, 2.0))
    assert several.machine == "NVIDIA A100-SXM4-40GB, Tesla V100-PCIE-32GB"
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
    assert (gpu.view.device, gpu.label) == ("cpu", machine.environment.host.cpu_model)


def make_trend_results(latencies_ms):
    """Each GPU flat at 1 ms up to the batch of its knee, and growing from there."""
    machines = [make_machine(name) for name in latencies_ms]
    cells = [
        cell
        for machine, knee in zip(machines, latencies_ms.values(), strict=True)
        for model in ("bert-base", "resnet-50")
        for dtype in ("fp16", "fp32")
        for cell in make_series(
            lambda batch, knee=knee: max(1.0, batch / knee),
            model=model, dtype=dtype, machine=machine.id, noise=0.001,
        )
    ]  # fmt: skip
    return make_results(cells, *machines)


TRENDS = ("S4.3-prominence-trend", "S4.3-gpu-speed-matters-only-large")


@pytest.mark.parametrize("name", TRENDS)
def test_what_goes_with_the_speed_of_gpus_is_judged_over_all_that_were_measured(name):
    gpus = {"Tesla V100-PCIE-32GB": 2, "NVIDIA RTX A6000": 8, "NVIDIA H200": 32}
    (verdict,) = judge(name, make_trend_results(gpus))
    assert verdict.machine == "Tesla V100-PCIE-32GB, NVIDIA RTX A6000, NVIDIA H200"
    assert verdict.today in ("holds", "not resolved")  # at batch 1 all are alike
    at_large = [value for value in verdict.values if "b1" not in value.name.split("_")]
    assert {abs(value.today[0]) for value in at_large} == {1.0}


def test_a_trend_that_is_turned_around_does_not_hold():
    gpus = {"Tesla V100-PCIE-32GB": 32, "NVIDIA RTX A6000": 8, "NVIDIA H200": 2}
    (verdict,) = judge(TRENDS[0], make_trend_results(gpus))
    assert verdict.today == "does not hold"


def test_a_trend_needs_three_gpus_of_known_speed():
    gpus = {"Tesla V100-PCIE-32GB": 2, "NVIDIA RTX A6000": 8, "NVIDIA Unheard Of": 32}
    (verdict,) = judge(TRENDS[0], make_trend_results(gpus))
    assert verdict.today == "cannot be tested here"
    assert verdict.reason.startswith("it needs results of 3 GPUs whose peak rate is known here")
