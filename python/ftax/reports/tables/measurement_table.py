"""Measurements as one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ftax.reports.columns import CELL, Column, Numbers, choose, for_programs
from ftax.reports.table import Printout, Rows
from ftax.timing.measurement import (
    Measurement,
    describe_slow_calls,
    format_clock,
    format_measured,
    format_rounds,
)
from ftax.timing.units import format_interval, format_time

COLUMNS = (
    *CELL,
    *for_programs("mode"),
    Column("latency", format_measured, "latency_ns", "latency_ns"),
    Column("95 % interval", ("interval_ns", format_interval), ("low_ns", "high_ns")),
    *for_programs("confidence"),
    Column("p50", ("summary.p50_ns", format_time), "p50_ns"),
    Column("p90", ("summary.p90_ns", format_time), "p90_ns"),
    Column("p99", ("summary.p99_ns", format_time), "p99_ns"),
    *for_programs(mean_ns="summary.mean_ns", min_ns="summary.min_ns"),
    Column("slowest", ("summary.max_ns", format_time), "max_ns"),
    *for_programs(
        samples="summary.count",
        slow_calls_ratio="slow_calls.share_ratio",
        slow_calls_extra_ns="slow_calls.extra_ns",
    ),
    Column("rounds", format_rounds, "rounds", lambda item: len(item.samples_ns)),
    *for_programs(rounds_counted=lambda item: len(item.counted_rounds)),
    Column("stopped", "stop_reason", "stop_reason", is_text=True),
    *for_programs(threads="environment.settings.num_threads", core_hz="core_hz", doubt="doubt"),
)


def draw_measurements(*measurements: Measurement) -> Printout:
    """Some measurements as they are printed."""
    return Printout(
        tables=(make_measurement_table(measurements), make_percentile_table(measurements)),
        warnings=tuple(describe_slow_calls(measurements)),
        numbers=lambda: Numbers.of(measurements, COLUMNS),
    )


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
    (latency,) = choose(COLUMNS, "latency")
    columns = [
        *_choose_names(measurements),
        replace(latency, head=time),
        *choose(COLUMNS, "95 % interval", "rounds", "stopped"),
    ]
    return Rows.of_columns(title, measurements, columns, gives_way=("stopped", "rounds"))


def make_percentile_table(measurements: Sequence[Measurement]) -> Rows:
    """Of all samples that count, those of rare slow calls too; a row a measurement."""
    columns = [*_choose_names(measurements), *choose(COLUMNS, "p50", "p90", "p99", "slowest")]
    title = "Percentiles of all samples"
    return Rows.of_columns(title, measurements, columns, gives_way=("slowest",))


def _choose_names(measurements: Sequence[Measurement]) -> list[Column]:
    """What tells measurements apart."""
    heads = ["label"] if any(item.label for item in measurements) else []
    heads += ["model"] if len({item.cell.model for item in measurements}) > 1 else []
    return choose(COLUMNS, *heads, "runtime", "called from")
