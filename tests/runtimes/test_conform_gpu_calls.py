"""Which API calls of a trace enqueue may not make, on traces written by hand."""

from __future__ import annotations

import pytest

from ftax.instruments.trace.activities import ApiCall, Iteration
from ftax.instruments.trace.records import Trace
from ftax.runtimes.plugins.conform.gpu import find_bad_calls


def make_trace(*calls: tuple[str, int]) -> Trace:
    """One iteration: enqueued from 100 to 200 ns, waited for until 300."""
    return Trace(
        model="m",
        runtime="r",
        host="cpp",
        device="cuda:0",
        iterations=(Iteration(begin_ns=100, issued_ns=200, end_ns=300),),
        kernels=(),
        api_calls=tuple(
            ApiCall(
                domain="runtime",
                name=name,
                start_ns=start,
                end_ns=start + 1,
                correlation_id=place + 1,
                thread_id=1,
            )
            for place, (name, start) in enumerate(calls)
        ),
    )


@pytest.mark.parametrize(
    "name",
    [
        *("cudaStreamSynchronize_v3020", "cudaDeviceSynchronize_v3020", "cuStreamSynchronize"),
        *("cudaEventSynchronize_v3020", "cuCtxSynchronize", "cudaMalloc_v3020", "cudaFree_v3020"),
        *("cuMemAlloc_v2", "cuMemFree_v2", "cudaMallocAsync_v11020", "cudaHostAlloc_v3020"),
        *("cudaMemcpy_v3020", "cuMemcpyHtoD_v2", "cudaMemcpy2D_v3020", "cuMemAllocAsync"),
        *("cudaFreeAsync_v11020", "cuMemHostAlloc", "cudaMallocHost_v3020"),
    ],
)
def test_call_inside_enqueue_is_named(name: str) -> None:
    assert find_bad_calls(make_trace((name, 150), (name, 160))) == [name]


@pytest.mark.parametrize(
    "name",
    [
        *("cudaLaunchKernel_v7000", "cuLaunchKernelEx", "cudaMemcpyAsync_v3020"),
        *("cuMemcpyDtoDAsync_v2", "cudaGetLastError_v3020", "cudaStreamWaitEvent_v3020"),
        *("cudaEventRecord_v3020", "cudaMemsetAsync_v3020", "cudaFuncGetAttributes_v3020"),
    ],
)
def test_call_that_only_issues_is_fine(name: str) -> None:
    assert find_bad_calls(make_trace((name, 150))) == []


def test_calls_outside_enqueue_are_the_callers() -> None:
    assert find_bad_calls(make_trace(("cudaMalloc", 50), ("cudaStreamSynchronize", 200))) == []
