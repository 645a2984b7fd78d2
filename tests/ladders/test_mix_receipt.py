"""The receipt of a mix: hand-computed means, what of a part carries over to them, and delays that
are planted in one part and weigh as much as it does."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import ftax
from ftax import InvalidArgumentError, ResultsError
from ftax.ladders.ladder import find_ladder, name_ladder
from ftax.ladders.lines import compute_lines
from ftax.ladders.mix_receipt import MixReceipt
from ftax.ladders.receipt import Receipt
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import load_parts, measuring
from ftax.steps.load import load_model
from ftax.steps.setting import Setting
from ftax.timing.mean import Mean
from ftax.timing.session import measure_together, require
from ftax.timing.trust import find_disturbance
from support.delays import find_moves, wait
from support.evidence import EAGER, FLAT, GRAPH, LAUNCHES, TAPE, make_all_evidence
from support.records import make_measurement

EQUAL = {"outputs": {"bitwise": True, "within_tolerance": True, "difference": 0.0, "problem": None}}
WRONG = {
    "outputs": {"bitwise": False, "within_tolerance": False, "difference": 0.5, "problem": "differ"}
}
CHANGED = {"same_work": {"observed": 9, "in_a_row": 3, "calls": 2, "problem": "one call more"}}
SHORT = {EAGER: [1000, 1010, 990], FLAT: [600, 615, 585], TAPE: [400, 404, 396]}
LONG = {EAGER: [2000, 2040, 1960], FLAT: [1500, 1520, 1480], TAPE: [1200, 1210, 1190]}


def make_receipt(rounds: dict[Any, list[int]], model: str = "short", **changes: Any) -> Receipt:
    """Rungs of these rounds."""
    rungs = tuple(name(rung, values * 2, model) for rung, values in rounds.items())
    return Receipt(**{"rungs": rungs, **changes})


def name(place: Any, values: list[int], model: str, **changes: Any) -> ftax.Measurement:
    made = make_measurement(values, runtime=place[0], host=place[1], **{"checks": EQUAL, **changes})
    return replace(made, cell=replace(made.cell, model=model))


def make_mix(short: Receipt | None = None, long: Receipt | None = None) -> MixReceipt:
    """A quarter of it is long."""
    parts = (short or make_receipt(SHORT), long or make_receipt(LONG, "long"))
    return MixReceipt(name="day", weights=(75.0, 25.0), parts=parts)


def test_lines_are_weighted_means_and_sum_to_the_mean_exactly():
    mix = make_mix()
    assert mix.latency_ns == pytest.approx(0.75 * 1000 + 0.25 * 2000, rel=1e-15)
    assert [line.name for line in mix.lines] == [
        "model glue", "interpreter and bindings", "operators"
    ]  # fmt: skip
    # 0.75 (1000 - 600) + 0.25 (2000 - 1500), and so on down the ladder
    assert [line.time_ns for line in mix.lines] == pytest.approx([425, 225, 600], rel=1e-12)
    assert math.fsum(line.time_ns for line in mix.lines) == pytest.approx(1250, rel=1e-14)
    assert mix.python_tax_ns is not None
    assert mix.python_tax_ns[0] == pytest.approx(650, rel=1e-12)


def test_a_mix_of_one_is_its_part():
    part = make_receipt(SHORT)
    mix = MixReceipt(name="day", weights=(3.0,), parts=(part,))
    assert mix.lines == part.lines
    assert mix.latency_ns == part.latency_ns


def test_rounds_are_resampled_together():
    """What one part loses in a round and another gains is no error of the mean."""
    up, down = [900, 1000, 1100, 950, 1050], [1100, 1000, 900, 1050, 950]
    parts = [make_receipt({EAGER: values}, str(values[0])) for values in (up, down)]
    mix = MixReceipt(name="day", weights=(1.0, 1.0), parts=tuple(parts))
    assert mix.rungs[0].interval_ns == (1000.0, 1000.0)
    assert mix.lines[0].interval_ns == (1000.0, 1000.0)
    low, high = parts[0].lines[0].interval_ns or (0, 0)
    assert low < 1000 < high


def test_a_rung_that_a_part_lacks_joins_the_lines_of_the_mean():
    without = {place: values for place, values in LONG.items() if place != FLAT}
    mix = make_mix(long=make_receipt(without, "long"))
    assert [line.name for line in mix.lines] == ["Python", "operators"]
    assert [line.time_ns for line in mix.lines] == pytest.approx([650, 600], rel=1e-12)
    assert len(mix.parts[0].lines) == 3
    assert "flat/python is no rung of the mean, since long has none" in str(mix.details).replace(
        "\n  ", " "
    )


def test_kernels_are_told_apart_only_where_every_part_has_a_trace():
    ladder = (EAGER, FLAT, TAPE, LAUNCHES, GRAPH)
    rungs = {place: [value] * 3 for place, value in zip(ladder, (900, 700, 500, 300, 200))}
    traced = make_receipt(rungs, evidence=tuple(make_all_evidence(issue_ns=(800, 600, 400, 90, 9))))
    mix = make_mix(traced, replace(traced, rungs=make_receipt(rungs, "long").rungs))
    *_, gaps, kernels = mix.lines
    assert (gaps.name, kernels.name) == ("graph", "kernels")  # 100 ns of kernels in each
    assert (gaps.time_ns, kernels.time_ns) == pytest.approx((100, 100))
    assert mix.lines[0].host_ns == pytest.approx(200)
    assert sum(line.time_ns for line in mix.lines) == pytest.approx(mix.latency_ns)
    bare = make_mix(traced, make_receipt(rungs, "long"))
    assert [line.name for line in bare.lines][-1] == "graph and kernels"
    other = make_receipt(rungs, "long", evidence=tuple(make_all_evidence(other=LAUNCHES)))
    problems = [line.problem for line in make_mix(traced, other).lines if line.problem]
    assert problems == ["long: launch-replay ran other kernels than Python eager"] * 2


def test_doubts_and_problems_of_a_part_are_those_of_the_mean():
    jumpy = {**LONG, FLAT: [1500, 1500, 90_000]}
    mix = make_mix(make_receipt(SHORT), make_receipt(jumpy, "long"))
    assert mix.lines[0].doubt.startswith("flat/python: long: the mean of the rounds is")
    assert not mix.lines[0].resolved and mix.lines[2].resolved
    rungs = [name(place, values * 2, "long", checks=CHANGED) for place, values in LONG.items()]
    changed = make_mix(long=Receipt(rungs=tuple(rungs)))
    (line,) = changed.lines
    assert line.problem == "not the same work: long: one call more"
    assert changed.recommendation.startswith("Not the same work: long: one call more.")
    assert changed.python_tax_ns is None
    assert "everything" in str(changed.details)


def test_a_runtime_is_advised_if_every_part_can_take_it():
    def make(short: Any, long: Any) -> MixReceipt:
        script = ("torchscript", "cpp")
        return make_mix(
            make_receipt(SHORT, others=(name(script, [100, 101, 99] * 2, "short", checks=short),)),
            make_receipt(
                LONG, "long", others=(name(script, [300, 303, 297] * 2, "long", checks=long),)
            ),
        )

    good = make(EQUAL, EQUAL)
    assert next(str(row.mean.place) for row in good.runtimes) == "torchscript/cpp"
    assert good.runtimes[0].latency_ns == pytest.approx(150)
    assert good.runtimes[0].saved_ns == pytest.approx(1100)
    assert "torchscript called from C++ gives back 1.1 us of the mean" in good.recommendation
    bad = make(EQUAL, WRONG)
    assert bad.runtimes[0].excluded == "long: differ" == bad.runtimes[0].outputs
    assert "eager called from C++ gives back" in bad.recommendation


def test_it_survives_a_file_and_refuses_lines_that_were_changed(tmp_path):
    path = tmp_path / "mix.jsonl"
    mix = make_mix().with_label("before")
    mix.save(path)
    (loaded,) = MixReceipt.load(path)
    assert loaded == mix and loaded.label == "before"
    assert loaded.lines == mix.lines and str(loaded) == str(mix)
    record = json.loads(path.read_text())
    record["record"]["lines"][0]["time_ns"] *= 2
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(ResultsError, match="stored lines are not those of the samples"):
        MixReceipt.load(path)


def test_parts_that_do_not_fit_each_other_are_refused():
    part, long = make_receipt(SHORT), make_receipt(LONG, "long")
    trained = make_receipt({EAGER: SHORT[EAGER], TAPE: SHORT[TAPE]}, ladder_name="autograd")
    top = part.rungs[0]
    elsewhere = Receipt(rungs=(replace(top, cell=replace(top.cell, device="cuda:0")),))
    other_rounds = make_receipt({EAGER: [1, 2]})
    other_session = Receipt(rungs=(name(EAGER, [1000, 1010, 990], "x", session="f" * 16),))
    for weights, parts, words in (
        ((1.0,), (part, long), "2 parts and 1 weights"),
        ((), (), "0 parts"),
        ((1.0, 0.0), (part, long), r"weights\[1\] is 0.0; .* above 0"),
        ((1.0, 1.0), (part, trained), "the ladders autograd, eager; they need one"),
        ((1.0, 1.0), (part, elsewhere), "the devices cpu, cuda:0; they need one"),
        ((1.0, 1.0), (part, other_rounds), "same rounds"),
        ((1.0, 1.0), (part, other_session), "same rounds"),
    ):
        with pytest.raises((InvalidArgumentError, ResultsError), match=words):
            MixReceipt(name="day", weights=weights, parts=parts)


def test_numbers_have_the_mean_and_every_part():
    numbers = make_mix().draw().to_numbers()
    rows = [dict(zip(numbers.columns, row, strict=True)) for row in numbers.rows]
    lines = [row for row in rows if row["part"] == "line"]
    assert [(row["mix_part"], row["weight_ratio"]) for row in lines] == [
        ("", 1.0)
    ] * 3 + [("short", 0.75)] * 3 + [("long", 0.25)] * 3  # fmt: skip
    assert [row["latency_ns"] for row in lines[:3]] == pytest.approx([425, 225, 600])


def test_parts_stand_in_the_print_with_their_shares():
    text = str(make_mix().details)
    assert "Receipt: day, mean of 2 parts, cpu, fp32" in text
    rows = [line.split() for line in text.splitlines() if line.startswith(("short ", "long "))]
    assert [row[:4] for row in rows] == [
        ["short", "75.0%", "1", "us"], ["long", "25.0%", "2", "us"]
    ]  # fmt: skip
    # Of the mean and, last but one, Python's: 0.75 x 1000 / 1250, (1000 - 400) / 1000, and so on.
    assert [row.count(share) for row, share in zip(rows, ("60.0%", "40.0%"), strict=True)] == [2, 2]


def test_comparing_mixes_says_what_can_be_compared():
    with pytest.raises(InvalidArgumentError, match=r"compare its parts.*a.parts\[0\]"):
        ftax.compare(make_mix(), make_mix())  # type: ignore[arg-type]


# --- measured -------------------------------------------------------------------------------------

QUICK = ftax.Plan(rounds=4, warmup=2, round_ms=1.0, duration_s=60.0)
PLAN = ftax.Plan(rounds=16, warmup=5, round_ms=6.0, duration_s=60.0)
DELAY_NS = 2_000_000
SHARE = 0.25  # of the part with the delay
MOVED = SHARE * DELAY_NS


def tax(mix: ftax.Mix, **options: Any) -> MixReceipt:
    options = {"runtimes": "none", "operators": False, **options}
    return ftax.tax(mix, plan=QUICK, threads=1, progress=False, **options)


def check_sums(mix: MixReceipt) -> None:
    latencies = [part.latency_ns for part in mix.parts]
    mean = math.fsum(w * t for w, t in zip(mix.shares, latencies, strict=True))
    assert mix.latency_ns == pytest.approx(mean, rel=1e-12)
    assert math.fsum(line.time_ns for line in mix.lines) == pytest.approx(mean, rel=1e-12)
    for part in mix.parts:
        assert Receipt.from_dict(part.to_dict()) == part
        assert math.fsum(line.time_ns for line in part.lines) == pytest.approx(part.latency_ns)
    assert len({m.process.session for part in mix.parts for m in part.rungs}) == 1


def test_two_contexts_of_one_model_are_measured_together(tmp_path):
    model = load_model("llama", tiny=True, sequence=4).module
    steps = [ftax.decode(model, context=n, tokens=2, cache="static") for n in (4, 16)]
    mix = tax(ftax.mix(zip(steps, (7, 3), strict=True), name="chat"), label="before")
    check_sums(mix)
    assert mix.names == ("LlamaForCausalLM static, 4 tokens", "LlamaForCausalLM static, 16 tokens")
    assert next(line.name for line in mix.lines) == "library loop"
    assert not mix.work_problem and not mix.interrupted and mix.label == "before"
    assert mix.units == pytest.approx(2) and "a token" in str(mix.details)
    mix.save(tmp_path / "mix.jsonl")
    assert MixReceipt.load(tmp_path / "mix.jsonl") == (mix,)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_two_training_steps_of_one_model_leave_it_as_it_was(kind: str):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    if kind == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    steps = [
        ftax.train(model, lambda m, x: m(x).square().mean(), optimizer, (torch.randn(n, 8),))
        for n in (2, 32)
    ]
    mix = tax(ftax.mix([(steps[0], 1), (steps[1], 1)]), operators=True)
    check_sums(mix)
    for part in mix.parts:
        assert len(part.rungs) == 3 and not part.unavailable
        assert not part.work_problem and part.phases and part.operator_costs
        assert all(row.outputs_equal for row in part.runtimes)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert optimizer.state_dict()["state"] == {}
    assert all(weight.grad is None and weight.requires_grad for weight in model.parameters())


def test_alternatives_are_those_that_all_parts_have(monkeypatch):
    prepare = find_runtime("torchscript-frozen").prepare

    def refuse(spec: Any, workspace: Workspace, host: Any) -> Any:
        if spec.name == "torchscript-frozen" and workspace.loaded.batch == 4:
            raise ftax.UnsupportedError("not four")
        return prepare.__func__(spec, workspace, host)  # type: ignore[attr-defined]

    monkeypatch.setattr(type(find_runtime("torchscript")), "prepare", refuse)
    module = nn.Linear(4, 4)
    parts = [((module, torch.ones(n, 4)), 1) for n in (2, 4)]
    mix = tax(ftax.mix(parts), runtimes=["torchscript", "torchscript-frozen"], hosts=("cpp",))
    check_sums(mix)
    assert [str(item.place) for item in mix.others] == ["torchscript/cpp"]
    assert [[item.reason for item in part.unavailable] for part in mix.parts] == [
        ["Linear, batch 4 cannot have it"],
        ["not four"],
    ]
    assert "Not measured" in str(mix.details) and "torchscript/cpp" not in str(
        mix.parts[0].unavailable
    )


def test_a_part_whose_calls_change_leaves_no_tax_of_the_mean():
    calls = []

    def grow(x: torch.Tensor) -> torch.Tensor:
        calls.append(0)
        return x.exp().sin() if len(calls) > 60 else x.exp()

    x = torch.ones(4)
    with torch.inference_mode():
        mix = tax(ftax.mix([(ftax.step(torch.sin, (x,)), 1), (ftax.step(grow, (x,)), 1)]))
    assert mix.work_problem.startswith("grow: a later call makes 2 operator calls")
    (line,) = mix.lines
    assert "grow" in line.problem and line.time_ns == pytest.approx(mix.latency_ns)
    assert len(mix.parts[0].lines) == 3 and not mix.parts[0].work_problem


def make_step(wait_ns: int, batch: int) -> ftax.Step:
    layer = nn.Linear(16, 16)

    def run(x: torch.Tensor) -> torch.Tensor:
        wait(wait_ns)
        return layer(x).relu()

    return ftax.step(run, (torch.randn(batch, 16),), name=f"batch {batch}, {wait_ns} ns")


@pytest.mark.timing
def test_a_delay_in_one_part_moves_its_line_by_weight_times_delay():
    found, disturbance = measure_moves()
    is_moved = all(map(is_as_wanted, found))
    if disturbance and not is_moved:  # who waits for longer waits for more of a neighbour's turns
        pytest.skip(f"another process had the CPU: {disturbance}")
    assert is_moved, found


def is_as_wanted(move):
    """Beyond the interval: what a neighbour costs whose code evicts ours while we wait."""
    _, wanted, (low, high) = move
    return low - 0.1 * MOVED <= wanted <= high + 0.1 * MOVED


def measure_moves():
    """Of each line its name, by how much a delay in one part shall move it, and the interval of by
    how much it does; and what disturbed the rounds."""
    shares = (SHARE, 1 - SHARE)
    with torch.no_grad():
        # The same mix without and with the delay, all in the same rounds.
        mix = ftax.mix([(make_step(ns, b), 1) for ns in (0, DELAY_NS) for b, ns in
                        ((2, ns), (32, 0))])  # fmt: skip
        with measuring(mix, Setting(threads=1)):
            parts = load_parts(mix, None, None, Setting(threads=1))[1]
            ladder = find_ladder(name_ladder(parts[0]))
            places = ladder.list_places("cpu")
            groups = []
            for part in parts:
                workspace = Workspace(part)
                groups.append(
                    (part, [find_runtime(r).prepare(workspace, host) for r, host in places])
                )
            found = [require(session) for session in measure_together(groups, PLAN)]
    sides = [
        [
            Mean(parts=pair, shares=shares, names=("a", "b"))
            for pair in zip(found[first], found[first + 1], strict=True)
        ]
        for first in (0, 2)
    ]
    before, after = (compute_lines(side, ladder=ladder) for side in sides)
    moves = []
    for old, new, (_, interval) in zip(before, after, find_moves(*sides), strict=True):
        assert interval[0] <= new.time_ns - old.time_ns <= interval[1]
        moves.append((old.name, MOVED if old.name == "model glue" else 0.0, interval))
    measured = [item for session in found for item in session]
    doubts = (item.doubt or find_disturbance(item.warnings) for item in measured)
    return moves, next(filter(None, doubts), "")
