"""`ftax.compare` of models: which process builds them, and what is refused."""

import sys

import pytest
import torch
from torch import nn

import ftax
from ftax.ladders.pairs import PairSide, run_pairs
from ftax.ladders.verdict import _pickle
from ftax.runtimes.prepare import prepare
from ftax.steps.setting import Setting
from ftax.timing.plan import Plan
from support.records import make_measurement
from support.small_models import Lambda

QUICK = Plan(rounds=6, warmup=2, round_ms=1.0)
INPUTS = (torch.ones(3, 4),)


def test_a_closure_is_measured_in_this_process_and_has_no_verdict_on_little():
    found = ftax.compare(
        Lambda(lambda x: x + 1), Lambda(lambda x: x + 1), INPUTS, plan=QUICK, progress=False
    )
    assert (found.unit, found.name_b) == ("round", "b")
    assert found.verdict == "cannot-tell" or abs(found.ratio - 1) > 0.05
    assert "paired" in found.method


def test_a_capture_is_measured_as_it_is_and_not_as_its_original(tmp_path, monkeypatch):
    module = Lambda(lambda x: (x + 1).relu())
    with torch.inference_mode():
        fast = ftax.capture(module, INPUTS)
    found = ftax.compare(module, fast, plan=QUICK, progress=False, inputs=INPUTS)
    assert "eager/python" in found.a and "capture/python" in found.b
    assert ftax.py_bench(fast, INPUTS, plan=QUICK, progress=False).cell.runtime == "capture"
    with pytest.raises(ftax.InvalidArgumentError, match=r"runtime is 'flat' and .* is a capture"):
        ftax.compare(module, fast, INPUTS, runtime="flat")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "gives_capture.py").write_text(
        "import ftax, torch\n"
        "with torch.inference_mode():\n"
        "    fast = ftax.capture(torch.nn.ReLU(), torch.ones(2))\n"
    )
    for runtime, expected in (("", "capture"), ("eager", "eager")):
        _, (made,) = prepare(
            "gives_capture:fast", None, None, Setting(), runtime=runtime, hosts=("python",)
        )
        assert made.runtime == expected


def test_both_sides_bring_inputs_and_those_of_other_shapes_are_refused():
    a, b = ((Lambda(lambda x: x + 1), (torch.ones(3, size),)) for size in (4, 8))
    with pytest.raises(ftax.InvalidArgumentError, match=r"argument 0 is float32 \(3, 4\) for a"):
        ftax.compare(a, b, plan=QUICK, progress=False)
    found = ftax.compare(a, b, plan=QUICK, progress=False, allow_different_inputs=True)
    assert any("float32 (3, 8) for b" in text for text in found.notes)


@pytest.mark.parametrize(
    ("value", "is_refused"), [(torch.tensor([[2, 3]]), True), (torch.tensor([[2.0, 3.0]]), False)]
)
def test_integers_of_other_values_are_other_work_and_random_numbers_are_not(value, is_refused):
    a, b = ((Lambda(lambda x: x + 1), (x,)) for x in (value, value + 1))
    if is_refused:
        with pytest.raises(ftax.InvalidArgumentError, match="has other values for b than for a"):
            ftax.compare(a, b, plan=QUICK, progress=False)
    else:
        found = ftax.compare(a, b, plan=QUICK, progress=False)
        assert any("has other values" in text for text in found.notes)


def test_what_another_process_can_build_is_known(tmp_path, monkeypatch):
    path = tmp_path / "side.pt"
    assert _pickle((nn.Linear(2, 2), INPUTS), path)
    assert not _pickle((Lambda(lambda x: x), INPUTS), path)

    class Local(nn.Linear):
        pass

    assert not _pickle((Local(2, 2), INPUTS), path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "written_later.py").write_text("from torch import nn\nclass M(nn.Linear): pass\n")
    import written_later

    assert not _pickle((written_later.M(2, 2), INPUTS), path)  # it may have been changed since
    del sys.modules["written_later"]


@pytest.mark.slow
def test_objects_are_compared_in_pairs_of_processes():
    """Five processes import torch, which takes 10 s and more."""
    a, b = (nn.Sequential(*[nn.Linear(8, 8) for _ in range(n)]) for n in (4, 24))
    found = ftax.compare(
        a, b, (torch.ones(1, 8),), plan=Plan(rounds=5, warmup=2, duration_s=1.0), progress=False,
        names=("small", "large"), threads=1,
    )  # fmt: skip
    assert (found.unit, found.units_a, found.verdict) == ("pair", 5, "slower")
    assert (found.name_a, found.name_b, found.confidence) == ("small", "large", 0.99)


def test_what_is_of_models_is_refused_for_results():
    one = make_measurement([100, 101])
    for given in ({"inputs": INPUTS}, {"plan": QUICK}, {"threads": 1}):
        with pytest.raises(ftax.InvalidArgumentError, match="a side is a result"):
            ftax.compare(one, one, **given)


@pytest.mark.parametrize(
    ("a", "words"),
    [
        ("r.jsonl", r"r.jsonl is a results file: .* ftax.read_records\('r.jsonl'\)"),
        (nn.ReLU(), "a ReLU is compared with a Measurement: give two models, or results of both"),
        (1, "has an int: give receipts, measurements or runs"),
    ],
)
def test_sides_that_do_not_belong_together_are_refused(a, words):
    with pytest.raises(ftax.InvalidArgumentError, match=words):
        ftax.compare(a, make_measurement([100, 101]))


def run_scripted(monkeypatch, ratios, **options):
    """Pairs whose sides differ by ``ratios``; at each look, how many there were and how sure."""
    answers = iter(ratios)
    looks = []

    def run(sides, plan):
        ratio = next(answers)
        if isinstance(ratio, BaseException):
            raise ratio
        return [
            make_measurement([round(1000 * x)] * 5, index=plan.process_index) for x in (1.0, ratio)
        ]

    def judge(found, confidence):
        looks.append((len(found[0]), round(1 - confidence, 6)))
        return options["settled_at"] <= len(found[0])

    monkeypatch.setattr("ftax.ladders.pairs._run_pair", run)
    sides = [PairSide(model=name, label=name, setting=Setting()) for name in ("x", "y")]
    runs = run_pairs(
        sides, judge, plan=Plan(), confidence=0.99, duration_s=options.get("duration_s", 1e9)
    )
    return runs, looks


def test_pairs_go_on_until_a_look_settles_it(monkeypatch):
    runs, looks = run_scripted(monkeypatch, [1.0] * 40, settled_at=10)
    assert looks == [(5, 0.005), (8, 0.001667), (12, 0.000833)]
    assert len(runs.sides[0]) == len(runs.sides[1]) == 12 and runs.ended is None
    assert runs.confidence == pytest.approx(1 - 0.01 / 12)


def test_five_pairs_are_measured_however_short_the_time(monkeypatch):
    runs, looks = run_scripted(monkeypatch, [1.0] * 9, settled_at=99, duration_s=0.0)
    assert len(runs.sides[0]) == 5 and looks == [(5, 0.005)]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ftax.RunnerError("it died")])
def test_what_ends_a_pair_does_not_cost_those_before_it(monkeypatch, error):
    runs, looks = run_scripted(monkeypatch, [1.0, 1.0, error], settled_at=5)
    assert runs.ended is error and len(runs.sides[0]) == 2 and looks == []
    with pytest.raises(type(error)):
        run_scripted(monkeypatch, [error], settled_at=5)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ftax.RunnerError("b: it died")])
def test_an_answer_says_what_ended_its_pairs(monkeypatch, error):
    def run(sides, plan):
        if plan.process_index == 3:
            raise error
        return [make_measurement([ns] * 5, index=plan.process_index) for ns in (100, 101)]

    monkeypatch.setattr("ftax.ladders.pairs._run_pair", run)
    told = []
    found = ftax.compare(
        "x", "y", names=("x", "y"), progress=lambda *now: told.append(now), plan=Plan()
    )
    assert found.units_a == 3
    assert f"{str(error) or 'interrupted'}; this is the answer of the pairs before" in str(found)
    assert [now[:2] for now in told] == [("pairs by turns", pairs) for pairs in range(4)]
    assert told[0][2] == 5 <= told[3][2]
