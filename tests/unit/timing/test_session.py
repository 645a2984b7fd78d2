"""Measuring from Python: who holds the interpreter lock meanwhile, and what an exception, Ctrl-C
or the garbage collector can do to it.

What a round is made of is tested in C++ (tests/cpp/test_measure_rounds.cpp).
"""

import contextlib
import gc
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import ftax
from delays import spin
from ftax import _core
from ftax.errors import InvalidArgumentError, RunnerError, UnavailableError
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Candidate
from ftax.timing.plan import Plan
from ftax.timing.session import Session, _summarise_probes, measure, quiet, require


@pytest.fixture(autouse=True, scope="module")
def _little_garbage() -> None:
    """Here nobody keeps the collector from its work."""
    gc.unfreeze()


def make_python_runner(function: Callable[[], object], name: str = "python") -> _core.PythonRunner:
    return _core.PythonRunner(function, name, device="cpu", grad_mode=_core.GradMode.inference)


def prepare_callable(function: Callable[[], object], name: str = "eager") -> Candidate:
    return Candidate(
        runtime=name, host="python", runner=make_python_runner(function, name), run=lambda: []
    )


def make_core_plan(*, rounds: int, samples: int) -> _core.RoundPlan:
    plan = Plan(rounds=rounds, warmup=1).to_core()
    plan.samples_per_round = samples
    return plan


def run(loaded: LoadedModel, *functions: Callable[[], object], **plan: Any) -> Session:
    options: dict[str, Any] = {"rounds": 5, "warmup": 1, "round_ms": 0.1, **plan}
    return measure(loaded, [prepare_callable(function) for function in functions], Plan(**options))


def fail_at(call: int, error: BaseException) -> Callable[[], None]:
    """A callable that raises at its `call`-th call, from 0, the warm-up included."""
    calls = iter(range(sys.maxsize))

    def function() -> None:
        if next(calls) == call:
            raise error

    return function


# --- runners ------------------------------------------------------------------------------------


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="python is a int, which cannot be called"):
        make_python_runner(3)  # type: ignore[arg-type]


def test_under_torchs_profiler_nothing_is_timed_and_no_memory_is_metered(mlp: LoadedModel) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        prepared = find_runtime("eager").prepare(Workspace(mlp), "cpp")
        assert "eager_peak_bytes" not in prepared.checks.details
        with pytest.raises(UnavailableError, match="is on, and would be timed too"):
            measure(mlp, [prepared], Plan())


def test_python_runner_runs_under_its_gradient_mode() -> None:
    seen: list[tuple[bool, bool]] = []

    def look() -> None:
        seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))

    for mode in (_core.GradMode.inference, _core.GradMode.no_grad):
        _core.PythonRunner(look, "look", device="cpu", grad_mode=mode).run_once()
    look()
    assert seen == [(True, False), (False, False), (False, True)]


def test_result_of_a_call_is_dropped_before_the_next() -> None:
    alive: list[int] = []

    class Result:
        count = 0

        def __init__(self) -> None:
            Result.count += 1
            alive.append(Result.count)

        def __del__(self) -> None:
            Result.count -= 1

    _core.measure_rounds([make_python_runner(Result)], make_core_plan(rounds=2, samples=3))
    assert set(alive) == {1}
    assert Result.count == 0


@pytest.fixture
def ticks() -> Iterator[list[int]]:
    """A count that a thread of Python raises whenever it gets the interpreter lock."""
    count, stop = [0], threading.Event()
    interval = sys.getswitchinterval()

    def tick() -> None:
        while not stop.is_set():
            count[0] += 1
            time.sleep(0)

    # Nobody is made to give up the lock: it changes hands only where it is released.
    sys.setswitchinterval(60.0)
    thread = threading.Thread(target=tick)
    thread.start()
    yield count
    stop.set()
    thread.join()
    sys.setswitchinterval(interval)


def test_lock_is_free_while_a_cpp_runner_is_measured(ticks: list[int]) -> None:
    slow = _core.DelayRunner(_core.EmptyRunner(), delay_ns=5_000_000)
    before = ticks[0]
    _core.measure_rounds([slow], make_core_plan(rounds=2, samples=10))
    assert ticks[0] - before > 10  # in 0.1 s; if the lock were held, one at each of 4 breaks


def test_lock_is_held_for_a_whole_round_of_a_python_runner(ticks: list[int]) -> None:
    seen: list[int] = []

    def look() -> None:
        seen.append(ticks[0])
        spin(2e6)

    _core.measure_rounds([make_python_runner(look)], make_core_plan(rounds=3, samples=10))
    assert len(seen) == 1 + 3 * 10
    for start in (1, 11, 21):
        assert len(set(seen[start : start + 10])) == 1


# --- what can go wrong while measuring ----------------------------------------------------------


def test_exception_of_a_callable_is_kept_with_its_text(mlp: LoadedModel) -> None:
    session = run(mlp, fail_at(0, ValueError("no such token")), lambda: None)
    assert session.measurements[0] is None
    assert session.errors[0] is not None
    assert "eager raised ValueError: no such token" in session.errors[0]
    assert session.errors[1] is None
    assert session.measurements[1] is not None
    assert len(session.measurements[1].values_ns) == 5
    with pytest.raises(RunnerError, match="no such token"):
        require(session)


def test_rounds_before_an_exception_are_kept_with_a_warning(mlp: LoadedModel) -> None:
    core = make_core_plan(rounds=5, samples=4)
    result = _core.measure_rounds([make_python_runner(fail_at(9, OSError("gone")))], core)
    assert len(result.runners[0].values_ns) == 2  # calls 1 to 4 and 5 to 8
    assert "OSError: gone" in result.runners[0].error


def test_ctrl_c_in_a_callable_keeps_the_rounds_before() -> None:
    core = make_core_plan(rounds=50, samples=4)
    runners = [make_python_runner(fail_at(9, KeyboardInterrupt())), _core.EmptyRunner()]
    result = _core.measure_rounds(runners, core)
    assert result.stop_reason == "interrupted"
    assert [len(rounds.values_ns) for rounds in result.runners] == [2, 2]
    assert len(result.probes) == 3  # before each round and after the last


@pytest.mark.parametrize(("end", "rounds"), [("enter", 2), ("exit", 3)])
def test_ctrl_c_in_the_scope_of_a_runner_ends_the_rounds(end: str, rounds: int) -> None:
    entered: list[int] = []

    @contextlib.contextmanager
    def scope() -> Iterator[None]:
        entered.append(len(entered))  # the first is the warm-up's
        if end == "enter" and len(entered) == 4:
            raise KeyboardInterrupt
        yield
        if end == "exit" and len(entered) == 4:
            raise KeyboardInterrupt

    runner = _core.PythonRunner(
        lambda: None, "callable", device="cpu", grad_mode=_core.GradMode.grad, scope=scope
    )
    result = _core.measure_rounds([runner], make_core_plan(rounds=50, samples=4))
    assert (result.stop_reason, result.runners[0].error) == ("interrupted", "")
    assert len(result.runners[0].values_ns) == rounds


def test_every_runner_has_its_place_in_the_order_of_each_round() -> None:
    result = _core.measure_rounds([_core.EmptyRunner()] * 2, make_core_plan(rounds=4, samples=2))
    first, second = (rounds.positions for rounds in result.runners)
    assert [{a, b} for a, b in zip(first, second, strict=True)] == [{0, 1}] * 4


def test_ctrl_c_after_some_rounds_gives_a_measurement(mlp: LoadedModel) -> None:
    told: list[int] = []

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "round":
            told.append(done)
            if done == 3:
                raise KeyboardInterrupt

    plan = Plan(rounds=50, warmup=1, round_ms=0.1)
    session = measure(mlp, [prepare_callable(lambda: None)], plan, progress)
    assert told == [0, 1, 2, 3]
    (measurement,) = require(session)
    assert session.stop_reason == measurement.stop_reason == "interrupted"
    assert len(measurement.values_ns) == 3


def test_ctrl_c_before_the_first_round_is_raised(mlp: LoadedModel) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(mlp, fail_at(0, KeyboardInterrupt()))


def test_exception_of_the_progress_bar_is_the_callers(mlp: LoadedModel) -> None:
    def progress(phase: str, done: int, total: int) -> None:
        raise LookupError("a broken bar")

    with pytest.raises(LookupError, match="a broken bar"):
        measure(mlp, [prepare_callable(lambda: None)], Plan(rounds=2), progress)


def test_nothing_to_measure_is_refused(mlp: LoadedModel) -> None:
    with pytest.raises(InvalidArgumentError, match="no runner was given"):
        measure(mlp, [], Plan(rounds=2))


# --- garbage ------------------------------------------------------------------------------------


def test_collector_is_off_while_measuring_and_on_afterwards(mlp: LoadedModel) -> None:
    seen: list[bool] = []
    assert gc.isenabled()
    session = run(mlp, lambda: seen.append(gc.isenabled()))
    assert set(seen) == {False}
    assert gc.isenabled()
    assert session.gc_ms > 0


def test_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with quiet():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_collector_is_back_after_an_exception() -> None:
    def fail() -> None:
        with quiet():
            assert gc.get_freeze_count() > 0
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


# --- what comes out -----------------------------------------------------------------------------


@pytest.mark.parametrize(("quiet_rounds", "wide"), [(40, 50), (30, 90)])
def test_probes_of_a_process_that_was_mostly_shared_say_so(quiet_rounds: int, wide: int) -> None:
    # Thirty quiet rounds count, and the process is one to run again.
    def make(wide_ns: int) -> SimpleNamespace:
        return SimpleNamespace(loop_ns=9, wide_ns=wide_ns, within_ns=wide_ns)

    probes = [make(50)] * (quiet_rounds + 1) + [make(90)] * (100 - quiet_rounds)
    result: Any = SimpleNamespace(probes=probes, disturbed_rounds=list(range(quiet_rounds, 100)))
    assert _summarise_probes(result) == {"loop": 9, "wide": wide, "within": wide}


def test_measurement_holds_the_samples_of_its_rounds(mlp: LoadedModel) -> None:
    workspace = Workspace(mlp)
    prepared = [find_runtime("eager").prepare(workspace, host) for host in ("python", "cpp")]
    session = measure(mlp, prepared, Plan(rounds=4, warmup=2, round_ms=0.5, seed=3))
    for item, measurement in zip(prepared, require(session), strict=True):
        assert (measurement.cell.runtime, measurement.cell.host) == ("eager", item.host)
        assert (measurement.cell.model, measurement.cell.batch) == ("Sequential", 2)
        assert measurement.stop_reason == session.stop_reason == "fixed-rounds"
        assert (measurement.seed, measurement.burst, measurement.mode) == (3, 1, "latency")
        assert len(measurement.samples_ns) == 4
        dropped = measurement.dropped_per_round
        assert 1 <= dropped < min(map(len, measurement.samples_ns))
        assert measurement.values_ns == tuple(
            statistics.median(samples[dropped:]) for samples in measurement.samples_ns
        )
        assert measurement.latency_ns == pytest.approx(statistics.fmean(measurement.values_ns))
        # Two, and two more where the first calls were far slower than those of the first round.
        assert measurement.checks["warmup"]["iterations"] in (2, 4)


def test_slow_requests_end_with_the_time_limit(mlp: LoadedModel) -> None:
    """Of 60 ms in 80 ms: two warm up, and a round of three runners is the least there can be."""
    calls: list[None] = []

    def sleep() -> None:
        calls.append(None)
        time.sleep(0.06)

    session = run(mlp, sleep, sleep, sleep, rounds=None, warmup=None, duration_s=0.08, round_ms=20)
    assert len(calls) == 2 + 3
    assert session.stop_reason == "time-limit"
    for measurement in require(session):
        assert len(measurement.samples_ns) == 1
        assert "a single round has no interval" in measurement.doubt


@pytest.mark.timing
def test_python_that_does_more_from_call_to_call_is_told(mlp: LoadedModel) -> None:
    kept: list[float] = []

    def grow() -> None:
        kept.append(5000.0)
        spin(200_000 + sum(kept))

    growing, steady = require(run(mlp, grow, lambda: spin(200_000), rounds=25, warmup=5))
    (warning,) = (text for text in growing.warnings if "longer all along" in text)
    assert 1.2 < float(warning.split("the last ")[1].split()[0]) < 20
    assert not any("longer all along" in text for text in steady.warnings)


def test_a_measurement_says_how_many_requests_waited(mlp: LoadedModel) -> None:
    (measurement,) = require(run(mlp, lambda: None, rounds=3))
    assert len(measurement.queued_ratios) == 3
    assert all(0.0 <= ratio <= 1.0 for ratio in measurement.queued_ratios)
    assert measurement.queued_ratio == statistics.median(
        measurement.queued_ratios[place] for place in measurement.counted_rounds
    )


def test_throughput_has_bursts(mlp: LoadedModel) -> None:
    calls: list[None] = []
    session = run(mlp, lambda: calls.append(None), rounds=2, mode="throughput")
    (measurement,) = require(session)
    assert measurement.mode == "throughput"
    assert measurement.burst >= 2
    samples = sum(len(samples) for samples in measurement.samples_ns)
    assert len(calls) >= 1 + samples * measurement.burst


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"plan": 3}, r"plan is 3; give one: ftax\.Plan"),
        ({"plan": {"duration_s": 1}}, "plan is {'duration_s': 1}"),
        ({"label": 3}, "label is 3; give a text"),
        ({"plan": Plan(cpus=(4000,))}, "cannot pin to CPU 4000: this process may use"),
    ],
)
def test_what_is_no_plan_is_refused_before_anything_is_built(options: Any, words: str) -> None:
    for measure_it in (ftax.tax, ftax.cpp_bench):
        with pytest.raises(InvalidArgumentError, match=words):
            measure_it("no such model", **options)
    with pytest.raises(InvalidArgumentError, match="duration_s is '5'; give a number"):
        Plan(duration_s="5")


def test_a_step_that_collects_garbage_is_told() -> None:
    def collect(x: torch.Tensor) -> torch.Tensor:
        gc.collect()
        return x + 1

    receipt = ftax.tax(
        ftax.step(collect, (torch.ones(2),)), runtimes="none", progress=False,
        plan=ftax.Plan(rounds=3, warmup=2, round_ms=1.0),
    )  # fmt: skip
    assert any("collects garbage (gc.collect)" in text for text in receipt.rungs[0].warnings)


# --- calls that record or compile -----------------------------------------------------------------


def prepare_counted(call: Callable[[], object], count: Callable[[], Any]) -> Candidate:
    mode = _core.GradMode.inference
    runner = _core.PythonRunner(call, "counted", "cpu", mode, count_rebuilds=count)
    return Candidate(runtime="counted", host="python", runner=runner, run=lambda: [])


def test_what_records_in_each_round_says_so(mlp: LoadedModel) -> None:
    calls: list[None] = []
    prepared = prepare_counted(lambda: calls.append(None), lambda: len(calls))
    (measurement,) = require(measure(mlp, [prepared], Plan(rounds=5, round_ms=0.1)))
    (told,) = (text for text in measurement.warnings if "recorded or compiled" in text)
    assert told.startswith("in 5 of 5 rounds")
    steady = prepare_counted(lambda: None, lambda: 7)
    (measurement,) = require(measure(mlp, [steady], Plan(rounds=5, round_ms=0.1)))
    assert not any("recorded or compiled" in text for text in measurement.warnings)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (lambda: 1 / 0, "counted could not count its rebuilds: ZeroDivisionError"),
        (lambda: "many", "counted counts its rebuilds by something else than whole numbers"),
    ],
)
def test_rebuilds_that_cannot_be_counted_end_the_part(
    mlp: LoadedModel, count: Callable[[], Any], words: str
) -> None:
    session = measure(mlp, [prepare_counted(lambda: None, count)], Plan(rounds=2))
    assert session.measurements == (None,)
    assert words in str(session.errors[0])


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.scale


def test_a_capture_that_records_anew_has_no_sample_of_it() -> None:
    """Its guards find the module changed in the warm-up, and in some of the rounds."""
    module = Scaled().eval()
    loaded = load_model(module, inputs=(torch.randn(2, 4),))
    prepared = find_runtime("capture").prepare(Workspace(loaded), "python")
    recorded: list[float] = []

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "warmup" and done == 0:
            module.scale = 3.0
        if phase == "round" and done in (6, 9):
            module.scale += 1.0
            recorded.append(module.scale)

    plan = Plan(rounds=12, warmup=1)  # one call, which records: as long as hundreds of replays
    (measurement,) = require(measure(loaded, [prepared], plan, progress))
    assert recorded == [4.0, 5.0]
    assert not any("recorded or compiled" in text for text in measurement.warnings)
    kept = measurement.samples_ns
    assert len(kept) == 12 and min(map(len, kept)) > 10
    assert measurement.dropped_per_round > 1
