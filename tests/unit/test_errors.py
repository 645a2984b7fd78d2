"""Faults that need no GPU: memory that runs out, workers that die, tools that are not there."""

import json
import weakref

import pytest
import torch

import ftax
from ftax import InvalidArgumentError, RunnerError, UnavailableError
from ftax.errors import (
    attempt,
    describe,
    describe_fault,
    describe_value,
    is_out_of_memory,
    name_faults,
    name_key,
)
from ftax.instruments.trace.records import Trace
from ftax.instruments.trace.tracer import trace_each
from ftax.ladders.look import TraceJob, gate_runners, trace_in_worker, trace_runners
from ftax.runtimes.candidates import drive_python
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.setting import Setting
from ftax.timing.candidate import Candidate
from ftax.timing.plan import Plan
from support.evidence import EAGER, GRAPH, KERNELS, LADDER
from support.forks import run_command
from support.small_models import load_function, normal
from support.traces import make_repeated_trace
from support.workers import say, use_script

QUICK = Plan(rounds=3, warmup=2, round_ms=1.0)
NO_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 9.00 GiB of "
    "which 1.00 GiB is free. Including non-PyTorch memory, this process has 8.00 GiB in use."
)


def fail(*_arguments, **_options):
    raise torch.OutOfMemoryError(NO_MEMORY)


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        NO_MEMORY,
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes",
        "Storage size calculation overflowed with sizes=[2147483648, 2147483648]",
    ],
)
def test_memory_that_ran_out_is_recognised_and_has_a_remedy(text):
    assert is_out_of_memory(text)
    described = describe(text)
    assert "out of memory" in described
    assert "smaller batch or sequence" in described
    assert "\n" not in described
    assert describe(described) == described


def test_torchs_long_message_is_cut_to_what_was_asked_and_what_there_was():
    described = describe(torch.OutOfMemoryError(NO_MEMORY))
    assert "2.00 GiB" in described and "1.00 GiB is free;" in described
    assert "non-PyTorch" not in described


def test_other_messages_are_left_alone_but_for_their_lines():
    assert describe("the shapes\n  do not fit") == "the shapes do not fit"
    assert not is_out_of_memory("CUPTI ran out of buffers")


def test_of_the_stack_of_an_error_in_python_the_innermost_own_line_is_named():
    said = (
        "eager raised ValueError: no\nmore\n\nAt:\n  /a/site-packages/torch/nn/of.py(9): relu\n"
        "  /usr/lib/python3.12/contextlib.py(8): inner\n"
        "  /home/me/my model.py(24): forward\n  /home/me/run.py(3): <module>\n"
    )
    assert describe(said) == "eager raised ValueError: no more (my model.py, line 24)"
    assert describe("x\n\nAt:\n  /a/site-packages/b.py(9): c\n") == "x (b.py, line 9)"
    assert describe("At: noon\n  it failed") == "At: noon it failed"


MANY_LINES = "\n".join(f"line {number}: {'y' * 90}" for number in range(400))


def test_of_a_long_message_the_first_line_is_told_with_the_place():
    first = "Arguments for call are not valid:"
    assert describe(f"\n{first}\n  foo(Tensor a)\n{MANY_LINES}") == (f"{first} foo(Tensor a) [...]")
    one = describe("word " * 300)
    assert len(one) <= 200 and one.endswith("word [...]")
    assert len(describe("x" * 999)) <= 200
    placed = f"eager raised ValueError: no\n{MANY_LINES}\nAt:\n  /home/me/model.py(24): forward\n"
    assert describe(placed) == "eager raised ValueError: no [...] (model.py, line 24)"
    for text in (one, describe(placed), describe(first + "\n" + MANY_LINES)):
        assert describe(text) == text


def test_of_a_long_message_of_ours_both_ends_are_told():
    told = describe(UnavailableError(f"no GPU; {'word ' * 300}install a driver"))
    assert len(told) <= 500
    assert told.startswith("no GPU; word") and told.endswith("word install a driver")
    assert "word [...] word" in told
    assert describe(UnavailableError(told)) == told


TENSOR = torch.arange(400.0).reshape(20, 20)


@pytest.mark.parametrize(
    "tensor",
    [
        TENSOR,
        torch.nn.Parameter(TENSOR),
        torch.nn.Parameter(TENSOR) * 2,
        TENSOR.to(torch.complex64),
        TENSOR.to_sparse(),
        TENSOR.int(),
        TENSOR.numpy(),
    ],
    ids=["dense", "parameter", "with a grad_fn", "complex", "sparse", "integers", "numpy's"],
)
def test_a_message_holds_no_values_of_a_tensor(tensor):
    told = describe(ValueError(f"cannot use {tensor!r}, sorry"))
    assert told.startswith("cannot use ") and told.endswith(", sorry")
    assert "(...)" in told and "19." not in told and len(told) < 200
    assert describe(f"{torch.tensor([1, 2])} is short") == "tensor([1, 2]) is short"


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_of_a_traceback_in_a_message_what_it_ends_with_is_told():
    scripted = torch.jit.trace(lambda x: x.view(3), torch.ones(3))
    with pytest.raises(RuntimeError) as caught:
        scripted(torch.ones(4))
    assert "Traceback of TorchScript" in str(caught.value)
    told = describe(caught.value)
    assert told == (
        "The following operation failed in the TorchScript interpreter. "
        "RuntimeError: shape '[3]' is invalid for input of size 4"
    )
    python = (
        'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    1 / 0\nE: it is 0'
    )
    assert describe(f"the worker said\n{python}") == "the worker said E: it is 0"


def test_the_stack_of_cpp_in_a_message_is_left_out():
    said = "Overflow when unpacking long\nException raised from unpack at python_numbers.h:28 "
    said += "(most recent call first):\nframe #0: c10::Error (0xff in libc10.so)\nframe #1: x"
    assert describe(said) == "Overflow when unpacking long"


def test_an_error_without_words_is_told_by_its_type():
    class MuteError(Exception):
        def __str__(self):
            raise KeyError

    assert describe(KeyError()) == describe_fault(KeyError()) == "KeyError"
    assert describe_fault(MuteError()) == "MuteError"
    assert describe_fault(KeyError("gone")) == "KeyError: 'gone'"
    assert describe_fault(UnavailableError("no GPU")) == "no GPU"
    assert describe("") == ""


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("step", "'step'"),
        (3, "3"),
        (("a", 1), "('a', 1)"),
        (None, "None"),
        (torch.float32, "torch.float32"),
        (torch.nn.Parameter(torch.ones(3, 2)), "Parameter (3, 2)"),
        (torch.ones(()), "Tensor ()"),
        ((torch.ones(2), 1), "tuple"),
        (torch.nn.Linear(1, 1), "Linear"),
        ("x" * 1000, f"'{'x' * 56}..."),
    ],
)
def test_a_key_is_named_in_short(key, named):
    assert name_key(key) == named
    assert name_key(10**5000) == "int, too long to write"


def test_a_value_that_holds_a_tensor_is_described_without_it():
    assert describe_value([torch.ones(3), 1]) == "[Tensor (3,), 1]"
    assert describe_value({"a": torch.nn.Parameter(torch.ones(2))}) == "{'a': Parameter (2,)}"


def test_errors_of_torch_become_ours_and_ours_pass():
    with pytest.raises(RunnerError, match="flat: stream capture"), name_faults("flat"):
        raise RuntimeError("stream capture failed")
    with pytest.raises(UnavailableError, match="no GPU"), name_faults("flat"):
        raise UnavailableError("no GPU")
    with pytest.raises(TypeError), name_faults("flat"):
        raise TypeError("a mistake of ftax")
    with pytest.raises(RunnerError, match="smaller batch"), name_faults("flat"):
        fail()


def test_an_attempt_gives_what_it_found_or_the_error_as_one_of_ours():
    assert attempt(lambda: 7) == 7
    found = attempt(fail)
    assert isinstance(found, RunnerError) and "smaller batch" in str(found)
    assert isinstance(found.__cause__, torch.OutOfMemoryError)
    ours = UnavailableError("no GPU")

    def refuse():
        raise ours

    assert attempt(refuse) is ours
    with pytest.raises(KeyError):  # a mistake of ours is hidden by nothing
        attempt(lambda: {}["key"])


def test_the_tensors_of_a_failed_inference_are_let_go_while_the_error_is_kept():
    made = []

    def forward(x):
        large = x + 1
        made.append(weakref.ref(large))
        raise torch.OutOfMemoryError(NO_MEMORY)

    workspace = Workspace(load_function(forward))
    with pytest.raises(RunnerError, match="out of memory") as caught:
        find_runtime("eager").prepare(workspace, "cpp")
    assert caught.value.__cause__ is not None
    assert made and made[-1]() is None


# --- receipts ------------------------------------------------------------------------------------


def test_a_rung_without_memory_is_listed_and_the_others_stand(mlp, monkeypatch):
    monkeypatch.setattr("ftax.runtimes.eager.eager.prepare_flat", fail)
    receipt = ftax.tax(mlp, runtimes="none", plan=QUICK)
    assert [(m.cell.runtime, m.cell.host) for m in receipt.rungs] == [EAGER, ("eager", "cpp")]
    (missing,) = receipt.unavailable
    assert missing.runtime == "flat"
    assert "out of memory" in missing.reason and "smaller batch" in missing.reason


@pytest.mark.parametrize("call", [1, 5], ids=["in its warm-up", "in a round"])
def test_a_rung_that_runs_out_of_memory_while_measured_is_listed(call, mlp, monkeypatch):
    calls = []

    def prepare(workspace, host):
        def request():
            calls.append(None)
            if len(calls) == call:
                fail()

        runner = drive_python(workspace, "flat", request)
        return Candidate(runtime="flat", host="python", runner=runner, run=lambda: [])

    monkeypatch.setattr("ftax.runtimes.eager.eager.prepare_flat", prepare)
    receipt = ftax.tax(mlp, runtimes="none", plan=QUICK)
    assert len(receipt.rungs) == 2
    (missing,) = receipt.unavailable
    assert missing.reason.startswith("failed after 0 rounds: flat raised")
    assert "out of memory" in missing.reason and "smaller batch" in missing.reason
    assert len(calls) == call


def test_a_model_without_memory_raises_and_can_be_measured_afterwards():
    state = {"fails": True}
    loaded = load_function(lambda x: fail() if state["fails"] else x.exp())
    with pytest.raises(RunnerError, match=r"out of memory.*smaller batch"):
        ftax.tax(loaded, runtimes="none", plan=QUICK)
    state["fails"] = False
    assert len(ftax.tax(loaded, runtimes="none", plan=QUICK).rungs) == 3


def test_what_fails_after_the_rounds_does_not_lose_them(mlp, monkeypatch):
    monkeypatch.setattr("ftax.ladders.after.OperatorCost", fail)
    monkeypatch.setattr("ftax.ladders.after.measure_floors", fail)
    receipt = ftax.tax(mlp, runtimes="none", plan=QUICK)
    assert len(receipt.rungs) == 3
    assert (receipt.operator_costs, dict(receipt.floors_ns)) == ((), {})
    warnings = " ".join(receipt.warnings)
    assert "operators were not timed: CUDA out of memory" in warnings
    assert "floors of this machine were not timed" in warnings


def test_a_device_that_is_not_there_is_refused_before_anything_is_built(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnavailableError, match="finds no CUDA device here: give device='cpu'"):
        ftax.tax("bert-base", tiny=True, device="cuda")
    with pytest.raises(InvalidArgumentError, match="give device='cuda'"):
        ftax.tax("bert-base", tiny=True, energy=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU to trace")
def test_a_trace_without_a_gpu_is_refused_before_anything_is_measured(tmp_path):
    chrome, saved = tmp_path / "out.json", tmp_path / "receipt.jsonl"
    result = run_command("tax", "bert-base", "--trace", str(chrome), "--json", str(saved))
    assert result.returncode == 3, result.stderr
    assert f"--trace {chrome} needs a GPU" in " ".join(result.stderr.split())
    assert not chrome.exists() and not saved.exists()


# --- traces --------------------------------------------------------------------------------------


def trace_with(monkeypatch, tmp_path, script, runtimes=(EAGER, GRAPH)):
    """Let ``script`` be the worker."""
    use_script(monkeypatch, tmp_path, script)
    return trace_in_worker(TraceJob(model="bert-base", places=runtimes))


def begin(place):
    return say("begin", place=place)


def traced(place, trace):
    return say("traced", place=place, trace=trace.to_dict())


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("kill -9 $$", "was ended by SIGKILL"),
        ("echo first >&2; echo the last word >&2; exit 1", "exit code 1: the last word"),
        ("exit 7", "exit code 7"),
        (f"echo '{NO_MEMORY}' >&2; exit 1", "trace='here', which needs no second copy"),
        ("echo '[null, null]'", "answered what is no answer"),
        (say("refused", error="UnsupportedError", reason="no such model"), "no such model"),
        (say("done", result=None), "ended without an answer"),
    ],
)
def test_a_worker_that_dies_at_once_is_not_tried_again(script, reason, monkeypatch, tmp_path):
    errors = trace_with(monkeypatch, tmp_path, f"echo >> {tmp_path}/runs\n{script}")
    assert [type(error) for error in errors] == [RunnerError, RunnerError]
    assert reason in str(errors[0])
    assert len((tmp_path / "runs").read_text().splitlines()) == 1


def test_an_answer_that_is_none_costs_that_runtime_alone(monkeypatch, tmp_path):
    trace = make_repeated_trace("a", runtime="cuda-graph")
    script = "\n".join((say("traced", place=0, trace={"rows": 1}), traced(1, trace)))
    error, found = trace_with(monkeypatch, tmp_path, script)
    assert "the tracing process failed: Trace.rows is 1" in str(error)
    assert found == trace


def test_what_cannot_be_traced_is_answered_too(monkeypatch, tmp_path):
    trace = make_repeated_trace("a", runtime="cuda-graph")
    failed = say("failed", place=0, reason="no CUPTI")
    lines = (begin(0), failed, begin(1), traced(1, trace), say("done", result=None))
    error, found = trace_with(monkeypatch, tmp_path, "\n".join(lines))
    assert str(error) == "no CUPTI"
    assert found == trace


def test_a_worker_that_crashes_loses_one_runtime_and_another_goes_on(monkeypatch, tmp_path):
    """The first worker traces one, begins the next and dies; the second is asked for the rest."""
    script = f"""printf '%s' "$job" > {tmp_path}/job
        {begin(0)}
        {traced(0, make_repeated_trace("a"))}
        if [ -e {tmp_path}/second ]; then {say("done", result=None)}; exit 0; fi
        touch {tmp_path}/second
        {begin(1)}
        kill -SEGV $$"""
    found = trace_with(
        monkeypatch, tmp_path, script, runtimes=(EAGER, GRAPH, ("torchscript", "cpp"))
    )
    assert [type(item) for item in found] == [Trace, RunnerError, Trace]
    assert "failed at cuda-graph/cpp: the worker process was ended by SIGSEGV" in str(found[1])
    assert json.loads((tmp_path / "job").read_text())["places"] == [["torchscript", "cpp"]]


def test_workers_that_keep_dying_are_given_up(monkeypatch, tmp_path):
    script = f"""echo >> {tmp_path}/runs; {begin(0)}; exit 3"""
    places = tuple((f"r{i}", "cpp") for i in range(9))
    errors = trace_with(monkeypatch, tmp_path, script, runtimes=places)
    assert [type(error) for error in errors] == [RunnerError] * 9
    assert "failed at r0/cpp: the worker process ended with exit code 3" in str(errors[0])
    assert len((tmp_path / "runs").read_text().splitlines()) == 4


def test_a_worker_is_asked_only_for_what_it_can_build():
    workspace = Workspace(ftax.load_model("resnet-50", tiny=True))
    job = json.loads(json.dumps(TraceJob.of(workspace.loaded, ()).to_dict()))
    assert (job["model"], Setting(**job["setting"])) == ("resnet-50", workspace.setting)
    given = Workspace(ftax.load_model(torch.nn.ReLU(), inputs=normal(1, 2)))
    assert TraceJob.of(given.loaded, ()) is None


def make_rung(place):
    return Candidate(runtime=place[0], host=place[1], runner=None, run=list)


def look_at(loaded):
    runners = [make_rung(place) for place in LADDER]
    gated = tuple(gate_runners(runners))
    return zip(*trace_runners(loaded, runners, gated), strict=True)


def test_one_rung_that_cannot_be_traced_leaves_the_others(mlp, monkeypatch):
    def trace(loaded, item, **options):
        if item.runtime == "flat":
            fail()
        return make_repeated_trace(*KERNELS, runtime=item.runtime, host=item.host)

    monkeypatch.setattr("ftax.instruments.trace.tracer.trace_prepared", trace)
    monkeypatch.setattr("ftax.instruments.gate.measure_gate", fail)
    found = list(trace_each(mlp, [make_rung(place) for place in LADDER]))
    assert [isinstance(item, Trace) for item in found] == [True, False, True, True, True]
    evidence, traces = look_at(mlp)
    assert sum(trace is not None for trace in traces) == 4
    assert "smaller batch" in evidence[1].problems[0]
    assert [item.same_kernels for item in evidence] == [True, None, True, True, True]
    assert all("out of memory" in item.gate.reason for item in evidence)


def test_without_a_trace_of_eager_no_rung_is_said_to_run_its_kernels(mlp, monkeypatch):
    def trace(loaded, item, **options):
        dropped = 1 if item.runtime == "eager" and item.host == "python" else 0
        return make_repeated_trace(
            *KERNELS, runtime=item.runtime, host=item.host, dropped_records=dropped
        )

    monkeypatch.setattr("ftax.instruments.trace.tracer.trace_prepared", trace)
    monkeypatch.setattr("ftax.instruments.gate.measure_gate", fail)
    evidence, _ = look_at(mlp)
    assert {item.same_kernels for item in evidence} == {None}
    assert [bool(item.busy_ns) for item in evidence] == [False, True, True, True, True]
