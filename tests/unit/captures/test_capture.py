"""`ftax.capture`: a replay is the original bit for bit, and what it could not know is recorded
anew, refused or told."""

import copy
import gc
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ftax
from ftax.captures.program import TapeReplay
from support.captures import assert_same, count, make_model

pytestmark = pytest.mark.usefixtures("record_at_once")

SCALE = 2.0


# Replays


def test_a_replay_gives_the_bits_of_the_original(no_grad: None):
    model = make_model()
    captured = ftax.capture(model, torch.randn(2, 8))
    for _ in range(3):
        assert_same(captured, model, torch.randn(2, 8))
    assert captured.explain().calls == {"recorded": 1, "replayed": 3}


def test_results_are_the_callers_own(no_grad: None):
    captured = ftax.capture(make_model(), torch.randn(2, 8))
    first = captured(torch.ones(2, 8))
    kept = first.clone()
    captured(torch.zeros(2, 8))
    assert torch.equal(first, kept)
    assert not first.is_inference()


def test_inputs_of_a_borrowed_capture_are_where_it_reads(
    no_grad: None, monkeypatch: pytest.MonkeyPatch
):
    own = [torch.zeros(2)]
    monkeypatch.setattr(TapeReplay, "list_inputs", lambda self, tensors: own)  # as a graph has
    given = torch.ones(2)
    assert ftax.capture(lambda x, *, y: x + y, ((given,), {"y": 3})).inputs[0][0] is given
    args, kwargs = ftax.capture(lambda x, *, y: x + y, ((given,), {"y": 3}), borrow=True).inputs
    assert args[0] is own[0] and kwargs == {"y": 3}
    weight = nn.Parameter(torch.ones(2))
    (x,), _ = ftax.capture(lambda x: x * weight.shape[0], weight, borrow=True).inputs
    assert x is weight  # and no copy of it


def test_nothing_of_a_call_is_held_after_it(no_grad: None):
    captured = ftax.capture(make_model(), torch.randn(2, 8))
    given = torch.randn(2, 8)
    held = weakref.ref(given)
    captured(given)
    del given
    gc.collect()
    assert held() is None


def test_containers_and_plain_values_come_back_as_they_were(no_grad: None):
    def run(x: torch.Tensor, *, names: dict[str, torch.Tensor]) -> dict[str, object]:
        return {"sum": x + names["y"], "parts": (x, [names["y"] * 2]), "flag": True, "none": None}

    inputs = ((torch.randn(3),), {"names": {"y": torch.randn(3)}})
    captured = ftax.capture(run, inputs)
    x, y = torch.randn(3), torch.randn(3)
    found = captured(x, names={"y": y})
    assert found["flag"] is True and found["none"] is None
    assert found["parts"][0] is x
    assert torch.equal(found["sum"], x + y) and torch.equal(found["parts"][1][0], y * 2)


def test_a_write_into_an_input_is_a_write_into_the_callers(no_grad: None):
    def run(x: torch.Tensor) -> torch.Tensor:
        x[0].add_(1.0)
        return x.sum()

    given = torch.zeros(2, 2)
    captured = ftax.capture(run, given)
    assert torch.equal(given, torch.zeros(2, 2))  # recording has left it as it was
    captured(given)
    assert given[0].tolist() == [1.0, 1.0]


def test_random_numbers_go_on_as_those_of_eager(no_grad: None):
    def run(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5) + torch.rand(4)

    captured = ftax.capture(run, torch.ones(4))
    torch.manual_seed(3)
    expected = [run(torch.ones(4)) for _ in range(3)]
    torch.manual_seed(3)
    assert all(torch.equal(captured(torch.ones(4)), item) for item in expected)


# Another call


def test_another_shape_is_recorded_and_kept(no_grad: None):
    model = make_model()
    captured = ftax.capture(model, torch.randn(2, 8))
    held = captured.memory_bytes
    captured.close()
    captured = ftax.capture(model, torch.randn(2, 8), max_bytes=2 * held)
    for rows in (2, 3, 2, 3):
        assert_same(captured, model, torch.randn(rows, 8))
    assert count(captured, "recorded") == 2
    assert_same(captured, model, torch.randn(5, 8))  # takes the place of 2 rows
    assert_same(captured, model, torch.randn(2, 8))
    assert count(captured, "recorded") == 4
    assert len(captured.explain().programs) == 2


def test_a_miss_can_run_eager_or_raise(no_grad: None):
    model = make_model()
    eager = ftax.capture(model, torch.randn(2, 8), on_miss="eager")
    assert_same(eager, model, torch.randn(3, 8))
    assert count(eager, "eager") == 1 and count(eager, "recorded") == 1
    strict = ftax.capture(model, torch.randn(2, 8), on_miss="raise")
    with pytest.raises(ftax.InvalidArgumentError, match=r"\[3, 8\].*on_miss"):
        strict(torch.randn(3, 8))


def replace_weight(model: nn.Sequential) -> None:
    model[0].weight = nn.Parameter(torch.randn(16, 8))


def move_weight(model: nn.Sequential) -> None:
    model[0].weight.data = torch.randn(16, 8)


def replace_part(model: nn.Sequential) -> None:
    model[1] = nn.ReLU()


def add_hook(model: nn.Sequential) -> None:
    model[2].register_forward_hook(lambda part, given, result: result * 3)


def train_part(model: nn.Sequential) -> None:
    model.insert(1, nn.BatchNorm1d(16))
    model.train()


@pytest.mark.parametrize(
    "change", [replace_weight, move_weight, replace_part, add_hook, train_part]
)
def test_a_module_that_was_changed_is_recorded_anew(
    no_grad: None, change: Callable[[nn.Sequential], None]
):
    model = make_model()
    captured = ftax.capture(model, torch.randn(2, 8))
    change(model)
    twin = copy.deepcopy(model)
    x = torch.randn(2, 8)
    assert torch.equal(captured(x), twin(x))
    assert count(captured, "recorded") == 2


def batch_norm(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, mean, var, training=True)


def instance_norm(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    return F.instance_norm(x, mean, var, use_input_stats=True)


@pytest.mark.parametrize("norm", [batch_norm, instance_norm])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("is_given", [True, False])
def test_statistics_that_no_schema_says_are_written(
    norm: Callable[..., torch.Tensor], mode: Callable[[], Any], is_given: bool
):
    mean, var, x = torch.zeros(4), torch.ones(4), torch.randn(8, 4, 5)
    own = (mean, var) if is_given else ()
    norm_it = norm if is_given else lambda given: norm(given, mean, var)
    with mode():
        captured = ftax.capture(norm_it, (x, *own))
        assert mean.tolist() == [0.0] * 4 and var.tolist() == [1.0] * 4  # nothing was asked yet
        for _ in range(3):
            x = torch.randn(8, 4, 5)
            others = mean.clone(), var.clone()
            assert torch.equal(captured(x, *own), norm(x, *others))
            assert torch.equal(mean, others[0]) and torch.equal(var, others[1])
    assert captured.explain().calls["replayed"] >= 2


def test_an_explanation_says_why_a_call_was_recorded(no_grad: None):
    model = make_model()
    captured = ftax.capture(model, torch.randn(2, 8))
    replace_part(model)
    captured(torch.randn(2, 8))
    captured(torch.randn(3, 8))
    newest, second, first = captured.explain().programs
    assert "[3, 8]" in newest.reason and "'1' of" in second.reason and first.reason == ""
    text = str(captured.explain())
    assert text.count("compared before") == 3
    assert text.count("torch's switches") == 1


def test_weights_that_are_written_in_place_need_nothing(no_grad: None):
    model = make_model()
    captured = ftax.capture(model, torch.randn(2, 8))
    model.load_state_dict({name: item * 2 for name, item in model.state_dict().items()})
    assert_same(captured, model, torch.randn(2, 8))
    assert count(captured, "recorded") == 1


def test_numbers_that_code_names_are_guarded(no_grad: None, monkeypatch: pytest.MonkeyPatch):
    factor, more = 3.0, [1.0, 2.0]

    def run(x: torch.Tensor) -> torch.Tensor:
        return x * factor * SCALE + sum(more)

    captured = ftax.capture(run, torch.randn(4))
    factor = 5.0
    assert_same(captured, run, torch.randn(4))
    more.append(4.0)
    assert_same(captured, run, torch.randn(4))
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    assert_same(captured, run, torch.randn(4))
    assert count(captured, "recorded") == 4
    guarded = captured.explain().programs[0].guarded
    assert any(name.startswith("factor of") for name in guarded)


def test_zero_and_minus_zero_are_two_arguments(no_grad: None):
    captured = ftax.capture(torch.mul, (torch.ones(2), 0.0))
    assert torch.equal(torch.signbit(captured(torch.ones(2), -0.0)), torch.tensor([True, True]))


def test_autocast_is_another_call(no_grad: None):
    model = make_model()
    captured = ftax.capture(model, torch.randn(2, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert captured(torch.randn(2, 8)).dtype == torch.bfloat16
    assert captured(torch.randn(2, 8)).dtype == torch.float32


def test_code_that_leaves_autocast_is_replayed_without_its_casts(no_grad: None):
    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return x.bfloat16().prod(0)

    with torch.autocast("cpu", dtype=torch.bfloat16):  # in which prod gives float32
        captured = ftax.capture(run, torch.randn(3, 8))
        x = torch.randn(3, 8)
        assert captured(x).dtype == torch.bfloat16 and torch.equal(captured(x), run(x))


# What it says of itself, and its end


def test_an_audit_finds_what_a_replay_gets_wrong(no_grad: None, monkeypatch: pytest.MonkeyPatch):
    model = make_model()
    captured = ftax.capture(model, torch.randn(2, 8))
    captured.audit(2)
    assert_same(captured, model, torch.randn(2, 8))
    program = captured._recordings.programs[0]
    replay = program.replay
    monkeypatch.setattr(
        type(program), "replay", property(lambda self: lambda given: [replay(given)[0] + 1e-6])
    )
    with pytest.raises(ftax.RunnerError, match="output 0 has other values"):
        captured(torch.randn(2, 8))
    monkeypatch.undo()
    assert captured.stats().checked == 1


def test_what_gives_another_result_each_time_is_told(no_grad: None):
    import time

    def run(x: torch.Tensor) -> torch.Tensor:
        time.perf_counter()
        return x + 1

    frozen = ftax.capture(run, torch.ones(2)).explain().programs[0].frozen
    assert any(item.startswith("time.perf_counter in test_capture.py") for item in frozen)


def test_a_closed_capture_says_so(no_grad: None):
    captured = ftax.capture(make_model(), torch.randn(2, 8))
    captured.close()
    with pytest.raises(ftax.RunnerError, match="was closed"):
        captured(torch.randn(2, 8))


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_is_not_pickled(no_grad: None, way: Callable[[object], object]):
    captured = ftax.capture(make_model(), torch.randn(2, 8))
    with pytest.raises(TypeError, match=r"captured\.original"):
        way(captured)


def test_a_module_without_inputs_says_what_to_give(no_grad: None):
    with pytest.raises(ftax.InvalidArgumentError, match="inputs are left out: give those of"):
        ftax.capture(make_model())


def test_a_decoded_window_is_no_step_to_capture():
    model = ftax.load_model("llama-160m", tiny=True).module
    with pytest.raises(ftax.UnsupportedError, match=r"its cache is Python's, .*docs/capture"):
        ftax.capture(ftax.decode(model, context=8, tokens=2))


def test_threads_take_turns(no_grad: None):
    model = make_model()
    captured = ftax.capture(model, torch.randn(2, 8))
    wrong: list[int] = []

    def work(number: int) -> None:
        with torch.no_grad():
            for _ in range(50):
                x = torch.full((2, 8), float(number))
                if not torch.equal(captured(x), model(x)):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_call_is_recorded_while_other_threads_work(no_grad: None):
    ended, x = threading.Event(), torch.ones(4)

    def work() -> None:
        while not ended.is_set():
            torch.add(x, 1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        model = make_model()
        assert_same(ftax.capture(model, torch.randn(2, 8)), model, torch.randn(2, 8))
    finally:
        ended.set()
        thread.join()


@pytest.mark.filterwarnings("ignore:replays of the capture of")
def test_a_call_that_would_be_recorded_does_not_wait_for_who_records_it_too(no_grad: None):
    inner = ftax.capture(make_model(), torch.randn(2, 8))
    begun = threading.Event()

    def outer(x: torch.Tensor) -> torch.Tensor:
        begun.set()
        time.sleep(0.2)
        return inner(x)

    results: list[torch.Tensor] = []

    def record() -> None:
        with torch.no_grad():
            ftax.capture(outer, torch.randn(2, 8))

    def call() -> None:
        begun.wait()
        with torch.no_grad():
            results.append(inner(torch.ones(3, 8)))  # a shape that nobody has recorded

    threads = [threading.Thread(target=work, daemon=True) for work in (record, call)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert torch.equal(results[0], inner.original(torch.ones(3, 8)))


CODE = """
import ftax, torch

def run(x):
    return x * 2 if x.sum() > 0 else x - 1

def make():
    with torch.no_grad():
        return ftax.capture(run, torch.ones(8), on_host_read="check")
"""


def test_a_capture_of_ones_own_code_is_measured_with_its_options(tmp_path: Path):
    (tmp_path / "captured_code.py").write_text(CODE)
    plan = ftax.Plan(rounds=3, warmup=2, round_ms=0.5)
    name = f"{tmp_path}/captured_code.py:make"
    found = ftax.py_bench(name, runtime="capture", plan=plan, progress=False)
    assert found.place.runtime == "capture"


def test_a_capture_is_a_row_of_its_own_receipt(no_grad: None):
    captured = ftax.capture(make_model(), torch.randn(2, 8))
    receipt = ftax.tax(
        captured, runtimes="capture", plan=ftax.Plan(rounds=3), operators=False, progress=False
    )
    row = next(row for row in receipt.runtimes if row.measurement.place.runtime == "capture")
    assert row.outputs == "bitwise equal"
