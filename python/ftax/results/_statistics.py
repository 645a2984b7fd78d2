"""The statistics of a measurement as records; the arithmetic is the C++ core's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from ftax import _core
from ftax.records import Count, Record, Rule

# Between the arithmetic of two builds; anything more is a changed record.
_TOLERANCE_RATIO = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Record):
    """Samples, described; all in ns but for the count."""

    count: Count
    min_ns: float
    max_ns: float
    mean_ns: float
    p50_ns: float
    p90_ns: float
    p99_ns: float
    mad_ns: float  # median absolute deviation from the median, unscaled


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(Record):
    """What a measurement says, computed from its samples."""

    values_ns: tuple[float, ...]  # one a round
    latency_ns: float
    interval_ns: Annotated[
        tuple[float, ...], Rule("a list of two numbers", lambda ends: len(ends) == 2)
    ] | None
    summary: Summary
