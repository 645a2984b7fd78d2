"""Traces made by hand: short times, so that every sum can be checked by reading."""

from __future__ import annotations

from ftax.instruments.trace.activities import ApiCall, Iteration, Kernel, Memcpy, Memset
from ftax.instruments.trace.records import Trace


def make_kernel(start_ns: int, end_ns: int, name: str = "k", **changes: object) -> Kernel:
    fields: dict[str, object] = {
        "name": name,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "grid": (2, 1, 1),
        "block": (32, 1, 1),
        "static_shared_bytes": 0,
        "dynamic_shared_bytes": 0,
        "registers_per_thread": 16,
        "stream_id": 7,
        "device_id": 0,
        "correlation_id": 0,
    }
    return Kernel(**{**fields, **changes})  # type: ignore[arg-type]


def make_memcpy(start_ns: int, end_ns: int, **changes: object) -> Memcpy:
    fields: dict[str, object] = {
        "copy_kind": "HtoD",
        "bytes": 64,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "stream_id": 7,
        "device_id": 0,
        "correlation_id": 0,
    }
    return Memcpy(**{**fields, **changes})  # type: ignore[arg-type]


def make_memset(start_ns: int, end_ns: int, **changes: object) -> Memset:
    fields: dict[str, object] = {
        "value": 0,
        "bytes": 128,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "stream_id": 7,
        "device_id": 0,
        "correlation_id": 0,
    }
    return Memset(**{**fields, **changes})  # type: ignore[arg-type]


def make_call(start_ns: int, end_ns: int, correlation_id: int, **changes: object) -> ApiCall:
    fields: dict[str, object] = {
        "domain": "runtime",
        "name": "cudaLaunchKernel",
        "start_ns": start_ns,
        "end_ns": end_ns,
        "correlation_id": correlation_id,
        "thread_id": 42,
    }
    return ApiCall(**{**fields, **changes})  # type: ignore[arg-type]


def make_window(begin_ns: int, end_ns: int, issued_ns: int | None = None) -> Iteration:
    middle_ns = (begin_ns + end_ns) // 2
    return Iteration(
        begin_ns=begin_ns, issued_ns=middle_ns if issued_ns is None else issued_ns, end_ns=end_ns
    )


def make_trace(**changes: object) -> Trace:
    """A trace of one iteration, 1000 to 2000 ns, with nothing in it but what is given."""
    fields: dict[str, object] = {
        "model": "mlp",
        "runtime": "eager",
        "host": "cpp",
        "device": "cuda",
        "iterations": (make_window(1000, 2000),),
        "kernels": (),
    }
    return Trace(**{**fields, **changes})  # type: ignore[arg-type]


def make_repeated_trace(*names: str, iterations: int = 3, **changes: object) -> Trace:
    """Iterations of 1000 ns, each with one kernel of 50 ns a name, 100 ns apart, and their calls.

    Iteration 0 begins at 1000. A kernel starts 40 ns after its call, which takes 20 ns.
    """
    kernels, calls = [], []
    for iteration in range(iterations):
        for place, name in enumerate(names):
            at_ns = 1000 * (iteration + 1) + 100 * place + 50
            correlation_id = 100 * iteration + place + 1
            calls.append(make_call(at_ns, at_ns + 20, correlation_id))
            kernels.append(make_kernel(at_ns + 40, at_ns + 90, name, correlation_id=correlation_id))
    fields = {
        "iterations": tuple(
            make_window(1000 * i, 1000 * i + 990) for i in range(1, iterations + 1)
        ),
        "kernels": tuple(kernels),
        "api_calls": tuple(calls),
    }
    return make_trace(**{**fields, **changes})
