"""Measures the framework tax of inference and says who collects it.

The public functions load on first use: `import ftax` costs little beyond `import torch`, and
brings neither transformers nor onnxruntime nor typer. torch is imported before the compiled core
because the core links to libraries that torch has loaded by then; no LD_LIBRARY_PATH is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    import torch as _torch  # noqa: F401  (first: see above)

    from ftax._build_check import check_build as _check_build

    _check_build()
except (ImportError, KeyboardInterrupt) as _error:
    from ftax._refusal import is_command as _is_command
    from ftax._refusal import refuse as _refuse

    if _is_command():
        _refuse(_error)
    raise

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ftax.api import compare_hosts, cpp_bench, py_bench
    from ftax.build_paths import get_include
    from ftax.comparison import Comparison, compare
    from ftax.conformance import conform
    from ftax.errors import (
        FtaxError,
        InvalidArgumentError,
        ResultsError,
        RunnerError,
        UnavailableError,
        UnsupportedError,
    )
    from ftax.floors import measure_floors
    from ftax.host_comparison import HostComparison
    from ftax.knee_record import Knee
    from ftax.knee_run import knee
    from ftax.measure import Plan
    from ftax.models import list_models, load_model
    from ftax.profiling import trace
    from ftax.receipt import Receipt
    from ftax.receipt_api import compare_runtimes, tax
    from ftax.results import Cell, Measurement, read_records
    from ftax.runtime_comparison import RuntimeComparison
    from ftax.runtimes import list_runtimes

_PUBLIC = {
    "ftax.api": ("compare_hosts", "cpp_bench", "py_bench"),
    "ftax.build_paths": ("get_include",),
    "ftax.comparison": ("Comparison", "compare"),
    "ftax.conformance": ("conform",),
    "ftax.errors": (
        "FtaxError",
        "InvalidArgumentError",
        "ResultsError",
        "RunnerError",
        "UnavailableError",
        "UnsupportedError",
    ),
    "ftax.floors": ("measure_floors",),
    "ftax.host_comparison": ("HostComparison",),
    "ftax.knee_record": ("Knee",),
    "ftax.knee_run": ("knee",),
    "ftax.measure": ("Plan",),
    "ftax.models": ("list_models", "load_model"),
    "ftax.profiling": ("trace",),
    "ftax.receipt": ("Receipt",),
    "ftax.receipt_api": ("compare_runtimes", "tax"),
    "ftax.results": ("Cell", "Measurement", "read_records"),
    "ftax.runtime_comparison": ("RuntimeComparison",),
    "ftax.runtimes": ("list_runtimes",),
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [
    "Cell",
    "Comparison",
    "FtaxError",
    "HostComparison",
    "InvalidArgumentError",
    "Knee",
    "Measurement",
    "Plan",
    "Receipt",
    "ResultsError",
    "RunnerError",
    "RuntimeComparison",
    "UnavailableError",
    "UnsupportedError",
    "compare",
    "compare_hosts",
    "compare_runtimes",
    "conform",
    "cpp_bench",
    "get_include",
    "knee",
    "list_models",
    "list_runtimes",
    "load_model",
    "measure_floors",
    "py_bench",
    "read_records",
    "tax",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ftax' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
