"""Measurements made of given numbers, for tests of what is computed from them."""

from __future__ import annotations

from collections.abc import Sequence

from ftax.machines.environment import collect_environment
from ftax.timing.cell import Cell
from ftax.timing.measurement import Measurement, ProcessRecord

SESSION = "0123456789abcdef"


def make_measurement(
    values_ns: Sequence[int],
    *,
    runtime: str = "eager",
    host: str = "python",
    index: int = 0,
    pid: int = 1,
    session: str = SESSION,
    **changes: object,
) -> Measurement:
    """A measurement whose rounds have these values: one dropped sample of 0, then the value."""
    fields: dict[str, object] = {
        "cell": Cell(
            model="mlp",
            runtime=runtime,
            host=host,  # type: ignore[arg-type]
            batch=1,
            sequence=None,
        ),
        "mode": "latency",
        "samples_ns": tuple((0, value) for value in values_ns),
        "dropped_per_round": 1,
        "seed": 0,
        "stop_reason": "max-rounds",
        "environment": collect_environment(),
        "process": ProcessRecord(pid=pid, session=session, index=index),
    }
    return Measurement(**{**fields, **changes})  # type: ignore[arg-type]
