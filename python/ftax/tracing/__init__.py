"""Traces: which kernels ran, whether they are the same on every rung, and who kept the device
waiting.

The surprising choice: recording and judging are apart. Everything here works on a record of what
was traced, so it needs no GPU, can be done later, and is tested with traces made by hand.
"""

from ftax.tracing.chrome import write_chrome_trace
from ftax.tracing.durations import DurationComparison, KernelDuration, compare_durations
from ftax.tracing.integrity import Verdict, judge
from ftax.tracing.kernel_set import (
    KernelDifference,
    KernelEntry,
    KernelKey,
    KernelSet,
    compare_kernel_sets,
)
from ftax.tracing.metrics import IdleClasses, Metrics, compute_metrics
from ftax.tracing.names import demangle, shorten, shorten_all
from ftax.tracing.records import (
    Activity,
    ApiCall,
    Iteration,
    IterationTrace,
    Kernel,
    Memcpy,
    Memset,
    Overhead,
    Trace,
)
from ftax.tracing.timeline import Timeline, TimelineRow, compute_timeline

__all__ = [
    "Activity",
    "ApiCall",
    "DurationComparison",
    "IdleClasses",
    "Iteration",
    "IterationTrace",
    "Kernel",
    "KernelDifference",
    "KernelDuration",
    "KernelEntry",
    "KernelKey",
    "KernelSet",
    "Memcpy",
    "Memset",
    "Metrics",
    "Overhead",
    "Timeline",
    "TimelineRow",
    "Trace",
    "Verdict",
    "compare_durations",
    "compare_kernel_sets",
    "compute_metrics",
    "compute_timeline",
    "demangle",
    "judge",
    "shorten",
    "shorten_all",
    "write_chrome_trace",
]
