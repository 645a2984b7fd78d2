"""The observers that feed a tape, and that they leave torch as it was."""

import subprocess
import sys
import threading

import pytest
import torch
from torch import library

from ftax import _core
from ftax.errors import UnavailableError, UnsupportedError
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from ftax.steps.macs import count_work
from ftax.steps.module_calls import Call
from ftax.tape import flat, recording, tape
from ftax.tape.recording import observe, record
from ftax.tape.tape import make_tape
from support.forks import run_python
from support.small_models import load_function, log_operators, normal, run_seeded, same_bits

LEFT_ALONE = """
import torch
def table():
    dump = torch._C._dispatch_dump_table
    return dump("aten::linear") + dump("aten::add.Tensor")
def call():
    return torch.nn.functional.linear(torch.ones(1, 2), torch.ones(2, 2)).tolist()
before, result = table(), call()
import ftax.tape.tape
from ftax.tape.recording import dispatch_key_works
assert table() == before, "importing ftax changed the dispatch tables"
assert call() == result
assert dispatch_key_works()
assert table() == before, "recording left something in the dispatch tables"
"""


def test_importing_ftax_and_recording_leave_the_dispatcher_as_it_was() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT_ALONE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("has_autograd", [False, True])
def test_this_torch_offers_the_dispatch_keys(has_autograd: bool) -> None:
    recording.dispatch_key_works.cache_clear()
    # Whose answer would be kept for who has them off.
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert recording.dispatch_key_works(has_autograd=has_autograd)


def test_observe_sees_calls_above_composite_operators() -> None:
    x, weight = torch.ones(2, 4), torch.ones(3, 4)
    assert observe(lambda: torch.nn.functional.linear(x, weight).relu_()) == [
        Call("aten::linear", ((2, 4), (3, 4))),  # not t and addmm
        Call("aten::relu_", ((2, 3),)),
    ]


@pytest.mark.parametrize(
    ("function", "detached"),
    [
        (lambda x: x.detach() + 1, 1),
        (lambda x: x.detach().detach() + 1, 2),
        (lambda x: (x + 1).detach().detach(), 2),
        (lambda x: x.detach() + x.detach(), 2),
    ],
)
def test_a_detach_counts_once(function, detached) -> None:
    taped = make_tape(load_function(function))
    seen = [call.name for call in taped.calls]
    assert seen == taped.tape.visible_operators
    assert seen.count("aten::detach") == detached
    assert count_work(load_function(function)).operators == len(seen)


def test_observers_record_the_same_program(tiny_zoo: Workspace) -> None:
    loaded = tiny_zoo.loaded
    tapes, outputs = [], []
    for observer in ("dispatch-key", "python"):
        tape, returned = record(
            loaded.call,
            inputs=loaded.flat_inputs(),
            module=loaded.module,
            device="cpu",
            observer=observer,
        )
        tapes.append(tape)
        outputs.append((returned, run_seeded(tape.run)))
    by_key, by_mode = tapes
    assert by_key.visible_operators == by_mode.operators == log_operators(loaded.call)
    assert len(by_key.output_slots) == len(by_mode.output_slots)
    modules = [
        call["module"] for call in by_key.calls if call["fill"] is None and not call["hidden"]
    ]
    assert modules == [call["module"] for call in by_mode.calls]
    for returned, replayed in outputs:
        assert all(map(same_bits, returned, replayed))
        assert all(map(same_bits, replayed, outputs[0][0]))


def test_without_the_key_a_tape_is_recorded_in_python(
    mlp: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in (recording, tape, flat):
        monkeypatch.setattr(room, "dispatch_key_works", lambda **_: False)
    workspace = Workspace(mlp)
    assert workspace.taped.checks.details["observer"] == "python"
    assert workspace.taped.checks.outputs.bitwise
    with pytest.raises(UnsupportedError, match="needs the dispatch-key recorder"):
        _ = workspace.flat


def test_python_observer_replays_memory_that_python_filled() -> None:
    loaded = load_function(lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]))
    taped = make_tape(loaded, observer="python")
    assert taped.tape.operators == ["aten::lift_fresh", "aten::detach_", "aten::add.Tensor"]
    assert taped.checks.second_input.bitwise
    assert taped.warnings == ()


def test_python_observer_refuses_filled_memory_that_is_changed() -> None:
    # It does not see where the memory came from, so it cannot make it anew for each replay.
    loaded = load_function(lambda x: torch.tensor([1.0, 2.0, 3.0, 4.0]).add_(x[0]))
    with pytest.raises(UnsupportedError, match="the replay gives other outputs"):
        make_tape(loaded, observer="python")


def start_recording() -> _core.Recording:
    started = _core.Recording([], [], "cpu")
    started.start()
    return started


def test_recordings_do_not_nest() -> None:
    x = torch.ones(2)
    with torch.inference_mode():
        outer = _core.Recording([x], [], "cpu")
        outer.start()
        try:
            with pytest.raises(UnavailableError, match="already under way"):
                start_recording()
            y = x.neg()
        finally:
            outer.stop()
        tape = outer.finish([y])
    assert tape.operators == ["aten::neg"]


def test_one_thread_of_a_process_records_at_a_time() -> None:
    errors: list[Exception] = []

    def try_to_record() -> None:
        try:
            start_recording().stop()
        except Exception as error:
            errors.append(error)

    outer = start_recording()
    try:
        thread = threading.Thread(target=try_to_record)
        thread.start()
        thread.join()
    finally:
        outer.stop()
    assert [type(error) for error in errors] == [UnavailableError]
    assert "another thread" in str(errors[0])


def test_calls_of_other_threads_are_not_recorded() -> None:
    x = torch.ones(2)
    with torch.inference_mode():
        recorder = _core.Recording([x], [], "cpu")
        recorder.start()
        thread = threading.Thread(target=x.exp)
        thread.start()
        thread.join()
        y = x.neg()
        recorder.stop()
        tape = recorder.finish([y])
    assert tape.operators == ["aten::neg"]


def test_recording_does_not_keep_the_models_memory_alive() -> None:
    x = normal(256, 256)
    loaded = load_function(lambda x: x.neg().exp().abs().sqrt(), x)
    size = x.nbytes

    def record_it() -> None:
        record(loaded.call, inputs=[x], module=loaded.module, device="cpu")

    assert _core.measure_peak_bytes(record_it, "cpu") == 2 * size


@library.custom_op("ftax_recording::raises", mutates_args=())
def raises(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("not today")


def call_in_vain(x: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="not today"):
        raises(x)


@pytest.mark.parametrize("observer", ["dispatch-key", "python"])
def test_a_model_that_goes_on_after_an_error_of_an_operator_is_refused(observer) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        call_in_vain(x)
        return x.neg()

    with pytest.raises(UnsupportedError, match=r"raised an error.*at operator ftax_recording::rai"):
        make_tape(load_function(forward), observer=observer)


def test_inside_a_call_is_asked_of_each_thread() -> None:
    seen = []

    @library.custom_op("ftax_recording::asks", mutates_args=())
    def asks(x: torch.Tensor) -> torch.Tensor:
        seen.append(recorder.is_inside_call)
        other = threading.Thread(target=lambda: seen.append(recorder.is_inside_call))
        other.start()
        other.join()
        return x.clone()

    x = torch.ones(2)
    with torch.inference_mode():
        recorder = _core.Recording([x], [], "cpu")
        recorder.start()
        try:
            asks(x)
            call_in_vain(x)
            seen.append(recorder.is_inside_call)
        finally:
            recorder.stop()
    assert seen == [True, False, False]


# What is forked carries the recording along. At `wait` it is inside an operator, and stays there
# until the recording is gone.
LATE = """
import threading
import torch
from torch import library
from ftax import _core

inside, go = threading.Event(), threading.Event()

@library.custom_op("ftax_recording::wait", mutates_args=())
def wait(x: torch.Tensor) -> torch.Tensor:
    inside.set()
    assert go.wait(60)
    return x.clone()

fork = torch.jit.CompilationUnit('''
def make_late_calls(x):
    return torch.neg(torch.exp(torch.ops.ftax_recording.wait(x)))

def fork(x):
    return torch.jit.fork(make_late_calls, x)
''').fork
x = torch.zeros(2)
dump = torch._C._dispatch_dump_table
before = dump("aten::neg")
has_handler = lambda: dump("aten::neg") != before
"""


def run_late(code: str) -> None:
    """In a process that may crash, and that ends without torch's own end: its pool of threads
    sometimes does not survive that."""
    done = run_python(LATE + code)
    assert done.returncode == 0, done.stderr


def test_a_thread_that_outlives_its_recording_goes_on_and_is_not_recorded() -> None:
    run_late("""
with torch.inference_mode():
    first = _core.Recording([x], [], "cpu")
    first.start()
    forked = fork(x)
    assert inside.wait(60)
    first.stop()
    tape = first.finish([])
    assert tape.operators == [], tape.operators
    del first, tape
    second = _core.Recording([x], [], "cpu")
    second.start()
    go.set()
    result = forked.wait()
    y = x.abs()
    second.stop()
    assert second.finish([y]).operators == ["aten::abs"]
assert result.tolist() == [-1.0, -1.0]
""")


def test_the_handler_of_a_recording_lives_as_long_as_a_thread_needs_it() -> None:
    run_late("""
import time
with torch.inference_mode():
    recorder = _core.Recording([x], [], "cpu")
    recorder.start()
    forked = fork(x)
    assert inside.wait(60)
    recorder.stop()
    assert has_handler()
    go.set()
    forked.wait()
    del recorder, forked
    end = time.monotonic() + 60
    while has_handler() and time.monotonic() < end:
        time.sleep(0.001)
    assert not has_handler()
""")


def test_a_thread_that_outlives_a_runner_with_delays_goes_on() -> None:
    run_late("""
forked = []
eager = _core.PythonRunner(lambda: forked.append(fork(x)), "forks", "cpu", _core.GradMode.inference)
_core.OperatorDelayRunner(eager, 1000).run_once()
go.set()
assert forked[0].wait().tolist() == [-1.0, -1.0]
""")


def test_a_thread_that_outlives_a_scope_of_generators_goes_on() -> None:
    run_late("""
with torch.inference_mode(), _core.OwnGenerators([torch.Generator()]):
    forked = fork(x)
    assert inside.wait(60)
go.set()
assert forked.wait().tolist() == [-1.0, -1.0]
""")
