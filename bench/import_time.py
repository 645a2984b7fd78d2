"""What `import ftax` adds to `import torch`, and that it drags nothing else in.

Fresh processes alternate between importing torch alone and importing ftax, which imports torch. The
surprising choice: the headline is taken inside the second kind, after an explicit `import torch`,
because torch takes so long that the difference between two processes drowns what ftax adds.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from ftax import _core
from record import Figure, finish, make_parser, progress, run_json, show

_BUDGET_MS = 100.0
_LEAST_PROCESSES = 10
_UNWANTED = ("transformers", "onnxruntime", "typer", "rich", "onnx")

_PRINT = "import json, sys; print(json.dumps({}))"
_TORCH_ONLY = (
    "import time; start = time.perf_counter(); import torch; end = time.perf_counter(); "
    + _PRINT.format("{'torch_ms': (end - start) * 1e3}")
)
_BOTH = (
    "import time; start = time.perf_counter(); import torch; between = time.perf_counter(); "
    "import ftax; end = time.perf_counter(); "
    + _PRINT.format(
        "{'torch_ms': (between - start) * 1e3, 'ftax_ms': (end - between) * 1e3, "
        f"'unwanted': sorted(set(sys.modules) & set({_UNWANTED!r}))}}"
    )
)
# What a user pays next: the first public function, which loads the parts that measure.
_FIRST_USE = (
    "import time; import ftax; start = time.perf_counter(); ftax.tax; end = time.perf_counter(); "
    + _PRINT.format("{'first_use_ms': (end - start) * 1e3}")
)


def run(code: str) -> dict[str, Any]:
    """The JSON that a fresh interpreter prints."""
    found: dict[str, Any] = run_json([sys.executable, "-c", code])
    return found


def main() -> None:
    """Run the processes, print the table, save the record."""
    options = make_parser(__doc__).parse_args()
    repetitions = 3 if options.quick else max(_LEAST_PROCESSES, options.processes)
    for code in (_TORCH_ONLY, _BOTH, _FIRST_USE):
        run(code)  # fills the page cache and writes the byte code
    alone, both, first = [], [], []
    for index in range(repetitions):
        progress(f"import_time: round {index + 1} of {repetitions}")
        alone.append(run(_TORCH_ONLY))
        both.append(run(_BOTH))
        first.append(run(_FIRST_USE))
    series = {
        "import torch, alone": [item["torch_ms"] for item in alone],
        "import torch, then": [item["torch_ms"] for item in both],
        "import ftax, beyond torch": [item["ftax_ms"] for item in both],
        "ftax.tax, first use": [item["first_use_ms"] for item in first],
    }
    rows = []
    for name, values in series.items():
        median = _core.compute_median_interval(values)
        ends = f"{median.interval.low:.1f} to {median.interval.high:.1f}"
        rows.append((name, f"{median.median:.1f}", ends, f"{median.confidence:.0%}"))
    show(
        f"ms, {repetitions} fresh processes of each kind",
        ("import", "median", "interval of the median", "its confidence"),
        rows,
    )
    unwanted = sorted({name for item in both for name in item["unwanted"]})
    print(f"imported besides: {', '.join(unwanted) or 'none'} of {', '.join(_UNWANTED)}")
    figures = [
        Figure(
            name="import ftax beyond import torch",
            values=tuple(series["import ftax, beyond torch"]),
            unit="ms",
            at_most=_BUDGET_MS,
        ),
        Figure(
            name="unwanted modules imported",
            values=tuple(float(len(item["unwanted"])) for item in both),
            unit="modules",
            at_most=0.0,
        ),
        Figure(
            name="first use of ftax.tax", values=tuple(series["ftax.tax, first use"]), unit="ms"
        ),
    ]
    ratio = statistics.median(series["import ftax, beyond torch"]) / statistics.median(
        series["import torch, alone"]
    )
    raw = {"milliseconds": series, "unwanted": unwanted, "share_of_torch_ratio": ratio}
    finish(__file__, options, figures, raw=raw)


if __name__ == "__main__":
    main()
