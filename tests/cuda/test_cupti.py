"""Traces on a real device, checked against torch.profiler, which reads the same CUPTI.

Whatever runs torch.profiler does so in a process of its own. It changes CUPTI's clock for the rest
of the process, and a crash inside CUPTI must not take the other tests.
"""

import ctypes
import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch

import ftax
from ftax import _core

pytestmark = pytest.mark.needs_cuda

# Eight kernels a request, each bound by memory and 100 us or longer, so that their sum is steady.
CHAIN = """
import json
import torch
from ftax import _core

x = torch.ones(1 << 26, device="cuda")
y = torch.empty_like(x)

def chain():
    for _ in range(4):
        torch.mul(x, 2.0, out=y)
        torch.add(y, 1.0, out=x)

def make_runner(callable):
    return _core.PythonRunner(callable, "chain", device="cuda", grad_mode=_core.GradMode.inference)

def trace(callable=chain, kinds=("kernel",)):
    return _core.trace_runner(make_runner(callable), iterations=10, warmup=3, kinds=list(kinds))

def kernel_ns(trace):
    return sum(kernel.end_ns - kernel.start_ns for kernel in trace.kernels) / 10

def capture():
    chain()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain()
    return graph

# Kernels a request, and their summed time, as torch.profiler has them.
def profile(callable=chain):
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    for _ in range(3):
        callable()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(10):
            callable()
        torch.cuda.synchronize()
    kernels = [e for e in profiler.events() if "elementwise" in e.name
               and e.device_type == torch.autograd.DeviceType.CUDA]
    return len(kernels) / 10, sum(1000 * e.device_time_total for e in kernels) / 10
"""


def run_script(body: str) -> dict[str, object]:
    """What the script printed last, as JSON. A process of its own: see the top of this file."""
    done = subprocess.run(
        [sys.executable, "-c", CHAIN + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def make_runner(callable):
    return _core.PythonRunner(callable, "test", device="cuda", grad_mode=_core.GradMode.inference)


@pytest.fixture
def chain():
    x = torch.ones(1 << 20, device="cuda")
    y = torch.empty_like(x)

    def run() -> None:
        torch.mul(x, 2.0, out=y)
        torch.add(y, 1.0, out=x)

    return run


def list_loaded(library: str) -> set[str]:
    with open("/proc/self/maps") as maps:
        return {path for line in maps if library in (path := line.split()[-1])}


def find_iteration(trace, time_ns: int) -> int | None:
    for index, (begin_ns, _, end_ns) in enumerate(trace.iterations):
        if begin_ns <= time_ns <= end_ns:
            return index
    return None


def test_each_iteration_holds_its_own_kernels(chain):
    trace = _core.trace_runner(make_runner(chain), iterations=20, warmup=5, kinds=["kernel"])
    assert trace.problems == []
    assert trace.dropped_records == 0
    assert trace.buffers >= 1
    assert len(trace.iterations) == 20
    assert all(begin <= issued <= end for begin, issued, end in trace.iterations)
    assert [find_iteration(trace, kernel.start_ns) for kernel in trace.kernels] == [
        index for index in range(20) for _ in range(2)
    ]
    assert all(kernel.start_ns < kernel.end_ns for kernel in trace.kernels)


def test_a_kernel_says_how_it_was_launched(chain):
    trace = _core.trace_runner(make_runner(chain), iterations=1, warmup=1, kinds=["kernel"])
    for kernel in trace.kernels:
        assert "elementwise" in kernel.name
        assert kernel.grid[0] * kernel.block[0] > 0
        assert kernel.registers_per_thread > 0
        assert kernel.device_id == torch.cuda.current_device()
        assert (kernel.graph_id, kernel.graph_node_id) == (0, 0)
    assert len({kernel.correlation_id for kernel in trace.kernels}) == 2


def test_calls_carry_the_correlation_id_of_their_kernel(chain):
    trace = _core.trace_runner(
        make_runner(chain), iterations=5, warmup=2, kinds=["kernel", "runtime", "driver"]
    )
    assert trace.problems == []
    calls = {call.correlation_id: call for call in trace.api_calls if "aunch" in call.name}
    for kernel in trace.kernels:
        call = calls[kernel.correlation_id]
        assert call.start_ns < kernel.start_ns
        assert find_iteration(trace, call.start_ns) == find_iteration(trace, kernel.start_ns)


def test_copies_and_memsets_have_direction_and_size():
    host = torch.ones(1024, pin_memory=True)
    device = torch.empty(1024, device="cuda")
    other = torch.empty(1024, device="cuda")
    # Not torch's zero_(), which is a kernel.
    memset = ctypes.CDLL(list_loaded("libcudart").pop()).cudaMemsetAsync
    memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p]

    def run() -> None:
        device.copy_(host, non_blocking=True)
        other.copy_(device)
        host.copy_(other, non_blocking=True)
        assert memset(other.data_ptr(), 0, 2048, torch.cuda.current_stream().cuda_stream) == 0

    trace = _core.trace_runner(make_runner(run), iterations=3, warmup=1, kinds=["kernel"])
    assert trace.problems == []
    copies = [(copy.copy_kind, copy.bytes) for copy in trace.memcpys]
    assert copies == [("HtoD", 4096), ("DtoD", 4096), ("DtoH", 4096)] * 3
    assert [(memset.value, memset.bytes) for memset in trace.memsets] == [(0, 2048)] * 3


def test_the_nodes_of_a_graph_are_told_apart(chain):
    chain()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain()
    trace = _core.trace_runner(make_runner(graph.replay), iterations=5, warmup=2, kinds=["kernel"])
    assert trace.problems == []
    assert len(trace.kernels) == 10
    assert 0 not in {kernel.graph_id for kernel in trace.kernels}
    nodes = [kernel.graph_node_id for kernel in trace.kernels]
    assert nodes == nodes[:2] * 5
    assert nodes[0] != nodes[1]


def test_an_exception_of_the_model_comes_out_and_the_next_trace_works(chain):
    def fail() -> None:
        chain()
        raise ValueError("on purpose")

    with pytest.raises(ftax.RunnerError, match="on purpose"):
        _core.trace_runner(make_runner(fail), iterations=1, warmup=1, kinds=["kernel"])
    trace = _core.trace_runner(make_runner(chain), iterations=4, warmup=1, kinds=["kernel"])
    assert trace.problems == []
    assert len(trace.kernels) == 8


def test_cupti_is_the_copy_that_torch_has_loaded():
    info = _core.cupti_info()
    assert {os.path.realpath(info["library"])} == list_loaded("libcupti")
    assert info["version"] >= 17


def test_a_running_torch_profiler_is_named():
    result = run_script("""
        from ftax.errors import UnavailableError
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]):
            try:
                trace()
                message = ""
            except UnavailableError as error:
                message = str(error)
        print(json.dumps({"message": message}))
    """)
    assert "torch.profiler is running" in str(result["message"])


@pytest.mark.timing
def test_kernel_times_are_the_same_before_and_after_torch_profiler():
    result = run_script("""
        before = trace()
        count, profiled_ns = profile()
        after = trace()
        again = trace()
        print(json.dumps({
            "ns": [kernel_ns(before), profiled_ns, kernel_ns(after), kernel_ns(again)],
            "counts": [len(before.kernels), count * 10, len(after.kernels), len(again.kernels)],
            "problems": before.problems + after.problems + again.problems,
        }))
    """)
    assert result["problems"] == []
    assert result["counts"] == [80, 80, 80, 80]
    before_ns, *others_ns = result["ns"]
    assert others_ns == [pytest.approx(before_ns, rel=0.1)] * 3


@pytest.mark.timing
def test_torch_profiler_sees_the_kernels_of_a_graph_after_a_trace():
    result = run_script("""
        graph = capture()
        traces = [trace(), trace(graph.replay)]
        count, profiled_ns = profile(graph.replay)
        traces.append(trace(graph.replay))
        second_count, _ = profile(graph.replay)
        print(json.dumps({
            "counts": [len(t.kernels) for t in traces],
            "profiled": [count, second_count],
            "ns": [kernel_ns(traces[1]), profiled_ns, kernel_ns(traces[2])],
            "problems": sum((t.problems for t in traces), []),
        }))
    """)
    assert result["problems"] == []
    assert result["counts"] == [80, 80, 80]
    assert result["profiled"] == [8, 8]
    traced_ns, *others_ns = result["ns"]
    assert others_ns == [pytest.approx(traced_ns, rel=0.1)] * 2


def test_a_cold_runner_is_traced_cold_and_its_flush_is_in_no_trace():
    result = run_script("""
        big = torch.ones(1 << 21, device="cuda")  # 8 MiB: in L2 as a whole, when it is warm
        out = torch.empty((), device="cuda")
        runner = make_runner(lambda: torch.sum(big, dim=0, out=out))
        def look(runner):
            found = _core.trace_runner(runner, iterations=30, warmup=5, kinds=["runtime"])
            spans = sorted(k.end_ns - k.start_ns for k in found.kernels)
            return [found.problems, len(found.memsets), len(found.kernels), spans[len(spans) // 2]]
        print(json.dumps({"warm": look(runner), "cold": look(_core.ColdRunner(runner))}))
    """)
    warm, cold = result["warm"], result["cold"]
    assert warm[0] == cold[0] == []
    assert warm[1] == cold[1]  # what the sum itself clears, and no flush
    assert warm[2] == cold[2] > 0
    assert cold[3] > warm[3]


def test_cupti_leaves_the_process_and_comes_back():
    result = run_script("""
        first = trace()
        detached = [_core.detach_cupti()]
        second = trace()
        detached.append(_core.detach_cupti())
        ours = profile()
        third = trace()
        detached.append(_core.detach_cupti())  # not from under torch.profiler, which stays in
        again = profile()
        print(json.dumps({
            "detached": detached,
            "kernels": [len(item.kernels) / 10 for item in (first, second, third)],
            "problems": [item.problems for item in (first, second, third)],
            "torch": [ours[0], again[0]],
        }))
    """)
    assert result["detached"] == [True, True, False]
    assert result["kernels"] == [8, 8, 8]
    assert result["problems"] == [[], [], []]
    assert result["torch"] == [8, 8]
