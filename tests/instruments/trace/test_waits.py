"""Waits for the device, in traces made by hand."""

from dataclasses import replace

from ftax.instruments.trace.activities import Iteration
from ftax.instruments.trace.timeline import Waits, compute_waits
from support.traces import make_call, make_kernel, make_memcpy, make_trace


def find(*calls, kernels=(), memcpys=()) -> Waits | None:
    window = Iteration(begin_ns=0, issued_ns=1000, end_ns=1500)
    trace = make_trace(iterations=(window,), kernels=kernels, memcpys=memcpys, api_calls=calls)
    return compute_waits(trace)


def wait(start_ns: int, end_ns: int, name: str = "cudaStreamSynchronize", **changes):
    return make_call(start_ns, end_ns, 0, name=name, **changes)


def test_the_harness_own_wait_is_none():
    launch = make_call(10, 20, 1)
    found = find(launch, wait(1001, 1400), kernels=(make_kernel(30, 1300, correlation_id=1),))
    assert found == Waits(counts=(0,), wait_ns=(0,), masked_ns=(0,))


def test_a_wait_is_masked_as_long_as_the_device_is_busy():
    found = find(
        make_call(10, 20, 1),
        wait(100, 400),
        kernels=(make_kernel(30, 250, correlation_id=1), make_kernel(200, 300)),
    )
    assert found == Waits(counts=(1,), wait_ns=(300,), masked_ns=(200,))


def test_a_number_that_is_read_is_one_wait():
    copy = make_memcpy(120, 130, copy_kind="DtoH", correlation_id=5)
    read = make_call(100, 140, 5, name="cudaMemcpyAsync")
    assert find(read, wait(141, 200), memcpys=(copy,)) == Waits(
        counts=(1,), wait_ns=(59,), masked_ns=(0,)
    )
    between = make_call(141, 142, 6)
    found = find(read, between, wait(150, 200), memcpys=(copy,))
    assert found is not None and found.counts == (2,)


def test_an_asynchronous_copy_waits_only_if_it_returns_after_the_copy():
    copy = make_memcpy(120, 130, copy_kind="DtoH", correlation_id=5)
    soon = make_call(100, 110, 5, name="cudaMemcpyAsync")
    late = make_call(100, 140, 5, name="cudaMemcpyAsync")
    plain = make_call(100, 110, 5, name="cudaMemcpy")
    counts = [
        waits.counts for call in (soon, late, plain) if (waits := find(call, memcpys=(copy,)))
    ]
    assert counts == [(0,), (1,), (1,)]
    to_device = replace(copy, copy_kind="HtoD")
    found = find(late, memcpys=(to_device,))
    assert found is not None and found.counts == (0,)


def test_what_a_wait_calls_itself_is_not_counted_again():
    inner = wait(110, 190, name="cuStreamSynchronize", domain="driver")
    found = find(wait(100, 200), inner, wait(300, 310, thread_id=7))
    assert found is not None and found.counts == (2,)


def test_a_trace_without_calls_knows_of_no_waits():
    assert find(kernels=(make_kernel(1, 2),)) is None
