"""Measurements as one table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from ftax.reports.table import Rows
from ftax.timing.measurement import Measurement
from ftax.timing.units import (
    format_clock,
    format_interval,
    format_latency,
    format_rounds,
    format_time,
)


def render_measurement(measurement: Measurement) -> RenderableType:
    """One measurement, for a terminal."""
    return make_measurement_table([measurement]).to_rich()


def make_measurement_table(measurements: Sequence[Measurement]) -> Rows:
    """A row a measurement: p50, p90, p99 of all samples, and the mean over rounds with interval."""
    rows = []
    for item in measurements:
        summary = item.summary
        rows.append(
            (
                item.cell.model,
                item.cell.runtime,
                item.cell.host,
                format_latency(item.latency_ns, item.doubt),
                format_interval(item.interval_ns),
                format_time(summary.p50_ns),
                format_time(summary.p90_ns),
                format_time(summary.p99_ns),
                f"{format_rounds(item)} ({item.stop_reason})",
            )
        )
    what = "Latency" if all(m.mode == "latency" for m in measurements) else "Time per request"
    return Rows(
        title=f"{what}{format_clock(measurements[0])}" if measurements else what,
        columns=(
            "model",
            "runtime",
            "host",
            "mean",
            "95 % interval",
            "p50",
            "p90",
            "p99",
            "rounds",
        ),
        numeric=("mean", "p50", "p90", "p99", "rounds"),
        rows=tuple(rows),
    )
