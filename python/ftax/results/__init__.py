"""Results: what was measured (`Cell`), the measurement, and the files that hold it."""

from ftax.results._statistics import Statistics, Summary, compute_interval, compute_mean
from ftax.results.cell import Cell
from ftax.results.measurement import (
    Measurement,
    ProcessRecord,
    describe_doubts,
    make_session_id,
)
from ftax.results.store import (
    SCHEMA_VERSION,
    ReadResult,
    Storable,
    append_record,
    read_records,
    register_kind,
)
from ftax.results.trust import (
    DISTURBED_IN,
    NOT_RESOLVED,
    find_disturbance,
    find_doubt,
    find_doubt_of_mean,
    find_doubt_of_waits,
)

__all__ = [
    "DISTURBED_IN",
    "NOT_RESOLVED",
    "SCHEMA_VERSION",
    "Cell",
    "Measurement",
    "ProcessRecord",
    "ReadResult",
    "Statistics",
    "Storable",
    "Summary",
    "append_record",
    "compute_interval",
    "compute_mean",
    "describe_doubts",
    "find_disturbance",
    "find_doubt",
    "find_doubt_of_mean",
    "find_doubt_of_waits",
    "make_session_id",
    "read_records",
    "register_kind",
]

register_kind(Measurement.kind, Measurement.from_dict)
