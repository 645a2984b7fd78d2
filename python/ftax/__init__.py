"""Measures the framework tax of inference and says who collects it.

The public names (`__init__.pyi`) load on first use: `import ftax` costs little beyond
`import torch`, and brings neither transformers nor onnxruntime nor typer. torch is imported before
the compiled core because the core links to libraries that torch has loaded by then; no
LD_LIBRARY_PATH is needed.
"""

from __future__ import annotations

from ftax import _build_check

try:
    if not _build_check.is_run():  # it watches another program, whose affair torch is
        import torch as _torch  # noqa: F401  (first: see above)

        _build_check.check_build()
except (ImportError, KeyboardInterrupt) as _error:
    if _build_check.is_command():
        _build_check.refuse(_error)
    raise

import lazy_loader as _lazy

from ftax import _build_info
from ftax.records.kinds import KINDS as _KINDS
from ftax.records.kinds import Kind as _Kind

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)

__version__ = _build_info.VERSION

_KINDS |= {
    "claim-verdict": _Kind(record="ftax.paper.claims.claim_verdict:Verdict"),
    "comparison": _Kind(
        record="ftax.timing.comparison:Comparison",
        drawing="ftax.reports.tables.comparison_table:draw_comparisons",
    ),
    "conformance": _Kind(
        record="ftax.runtimes.plugins.conform:Conformance",
        drawing="ftax.reports.tables.runtime_table:draw_conformance",
    ),
    "host-comparison": _Kind(
        record="ftax.timing.differences:HostComparison",
        drawing="ftax.reports.tables.comparison_table:draw_hosts",
    ),
    "knee": _Kind(
        record="ftax.sweeps.knee_record:Knee", drawing="ftax.reports.tables.knee_table:draw_knees"
    ),
    "measurement": _Kind(
        record="ftax.timing.measurement:Measurement",
        drawing="ftax.reports.tables.measurement_table:draw_measurements",
    ),
    "receipt": _Kind(
        record="ftax.ladders.receipt:Receipt",
        drawing="ftax.reports.tables.first_screen:draw_receipt_first",
        details="ftax.reports.tables.receipt_table:draw_receipt",
    ),
    "run": _Kind(record="ftax.ladders.runs:Run", drawing="ftax.reports.tables.run_table:draw_run"),
    "sweep": _Kind(drawing="ftax.reports.tables.sweep_table:draw_sweep"),
    "sweep-cell": _Kind(record="ftax.sweeps.sweep_records:SweepCell"),
    "sweep-export": _Kind(record="ftax.sweeps.sweep_records:SweepExport"),
    "sweep-machine": _Kind(record="ftax.sweeps.sweep_records:SweepMachine"),
    "sweep-run": _Kind(record="ftax.sweeps.sweep_records:SweepRun"),
    "sweep-times": _Kind(record="ftax.sweeps.sweep_records:SweepTimes"),
    "trace": _Kind(
        record="ftax.instruments.trace.records:Trace",
        drawing="ftax.reports.tables.trace_table:draw_trace",
    ),
}
