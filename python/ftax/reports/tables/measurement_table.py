"""Measurements as one table."""

from __future__ import annotations

from collections.abc import Sequence

from ftax.reports.numbers import CELL, Numbers, Scalar, describe_cell, split_ends
from ftax.reports.table import Printout, Rows
from ftax.timing.measurement import Measurement
from ftax.timing.units import (
    format_clock,
    format_interval,
    format_latency,
    format_rounds,
    format_time,
)

_COLUMNS = (
    *CELL, "mode", "latency_ns", "low_ns", "high_ns", "confidence", "p50_ns", "p90_ns", "p99_ns",
    "min_ns", "max_ns", "samples", "rounds", "rounds_counted", "stop_reason", "threads", "core_hz",
    "doubt",
)  # fmt: skip


def draw_measurement(measurement: Measurement) -> Printout:
    """One measurement as it is printed."""
    return draw_measurements([measurement])


def draw_measurements(measurements: Sequence[Measurement]) -> Printout:
    """Some measurements as they are printed."""
    return Printout(
        tables=(make_measurement_table(measurements),),
        numbers=lambda: number_measurements(measurements),
    )


def number_measurements(measurements: Sequence[Measurement]) -> Numbers:
    """A row a measurement."""
    return Numbers.of(_COLUMNS, [describe_numbers(item) for item in measurements])


def describe_numbers(item: Measurement) -> dict[str, Scalar]:
    """What a measurement says, by column."""
    summary = item.summary
    return {
        **describe_cell(item.cell, item.label),
        "mode": item.mode,
        "latency_ns": item.latency_ns,
        **split_ends("", item.interval_ns, "_ns"),
        "confidence": item.confidence,
        "p50_ns": summary.p50_ns,
        "p90_ns": summary.p90_ns,
        "p99_ns": summary.p99_ns,
        "min_ns": summary.min_ns,
        "max_ns": summary.max_ns,
        "samples": summary.count,
        "rounds": len(item.samples_ns),
        "rounds_counted": len(item.counted_rounds),
        "stop_reason": item.stop_reason,
        "threads": item.environment.settings.num_threads,
        "core_hz": item.core_hz,
        "doubt": item.doubt,
    }


def make_measurement_table(measurements: Sequence[Measurement]) -> Rows:
    """A row a measurement: p50, p90, p99 of all samples, and the mean over rounds with interval.

    The model stands in the title if it is that of all.
    """
    models = dict.fromkeys(item.cell.model for item in measurements)
    with_model = len(models) > 1
    is_latency = all(item.mode == "latency" for item in measurements)
    time = "latency" if is_latency else "time per request"
    title = time[0].upper() + time[1:]
    if measurements:
        title += f" of {', '.join(models)}{format_clock(measurements[0])}"
    return Rows(
        title=title,
        columns=(*(["model"] if with_model else []), "runtime", "host", time, "95 % interval",
                 "p50", "p90", "p99", "rounds", "stopped"),
        numeric=(time, "95 % interval", "p50", "p90", "p99", "rounds"),
        gives_way=("p90", "p50", "p99", "stopped", "rounds"),
        rows=tuple(
            (
                *([item.cell.model] if with_model else []),
                item.cell.runtime,
                item.cell.host,
                format_latency(item.latency_ns, item.doubt),
                format_interval(item.interval_ns),
                format_time(item.summary.p50_ns),
                format_time(item.summary.p90_ns),
                format_time(item.summary.p99_ns),
                format_rounds(item),
                item.stop_reason,
            )
            for item in measurements
        ),
    )  # fmt: skip
