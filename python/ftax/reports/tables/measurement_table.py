"""Measurements as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ftax.reports.numbers import CELL, Field, Numbers, read_all
from ftax.reports.table import Cell, Printout, Rows
from ftax.timing.candidate import name_caller
from ftax.timing.measurement import (
    Measurement,
    describe_slow_calls,
    format_clock,
    format_measured,
    format_rounds,
)
from ftax.timing.units import format_interval, format_time

# What programs read of a measurement, by column.
FIELDS: Mapping[str, Field] = {
    **CELL,
    "mode": "mode",
    "latency_ns": "latency_ns",
    "low_ns": "interval_ns.0",
    "high_ns": "interval_ns.1",
    "confidence": "confidence",
    "p50_ns": "summary.p50_ns",
    "p90_ns": "summary.p90_ns",
    "p99_ns": "summary.p99_ns",
    "mean_ns": "summary.mean_ns",
    "min_ns": "summary.min_ns",
    "max_ns": "summary.max_ns",
    "samples": "summary.count",
    "slow_calls_ratio": "slow_calls.share_ratio",
    "slow_calls_extra_ns": "slow_calls.extra_ns",
    "rounds": lambda item: len(item.samples_ns),
    "rounds_counted": lambda item: len(item.counted_rounds),
    "stop_reason": "stop_reason",
    "threads": "environment.settings.num_threads",
    "core_hz": "core_hz",
    "doubt": "doubt",
}


_NAMES = ("label", "model", "runtime", "called from")


def draw_measurements(*measurements: Measurement) -> Printout:
    """Some measurements as they are printed."""
    return Printout(
        tables=(make_measurement_table(measurements), make_percentile_table(measurements)),
        warnings=tuple(describe_slow_calls(measurements)),
        numbers=lambda: number_measurements(measurements),
    )


def number_measurements(measurements: Sequence[Measurement]) -> Numbers:
    """A row a measurement."""
    return Numbers.of(FIELDS, [read_all(item, FIELDS) for item in measurements])


def make_measurement_table(measurements: Sequence[Measurement]) -> Rows:
    """A row a measurement: the mean over rounds with its interval.

    The model stands in the title if it is that of all.
    """
    models = dict.fromkeys(item.cell.model for item in measurements)
    is_latency = all(item.mode == "latency" for item in measurements)
    time = "latency" if is_latency else "time per request"
    title = time[0].upper() + time[1:]
    if measurements:
        title += f" of {', '.join(models)}{format_clock(measurements[0])}"
    return Rows.of(
        title,
        measurements,
        {
            **_name_columns(measurements),
            time: format_measured,
            "95 % interval": lambda item: format_interval(item.interval_ns),
            "rounds": format_rounds,
            "stopped": "stop_reason",
        },
        text=(*_NAMES, "stopped"),
        gives_way=("stopped", "rounds"),
    )


def make_percentile_table(measurements: Sequence[Measurement]) -> Rows:
    """Of all samples that count, those of rare slow calls too; a row a measurement."""
    return Rows.of(
        "Percentiles of all samples",
        measurements,
        {
            **_name_columns(measurements),
            "p50": ("summary.p50_ns", format_time),
            "p90": ("summary.p90_ns", format_time),
            "p99": ("summary.p99_ns", format_time),
            "slowest": ("summary.max_ns", format_time),
        },
        text=_NAMES,
        gives_way=("slowest",),
    )


def _name_columns(measurements: Sequence[Measurement]) -> dict[str, Cell]:
    """What tells measurements apart."""
    has_labels = any(item.label for item in measurements)
    has_models = len({item.cell.model for item in measurements}) > 1
    return {
        **({"label": "label"} if has_labels else {}),
        **({"model": "cell.model"} if has_models else {}),
        "runtime": "cell.runtime",
        "called from": ("cell.host", name_caller),
    }
