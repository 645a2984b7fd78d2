"""What `import ftax` adds to `import torch`, and that it drags nothing else in.

It is timed in fresh processes after an explicit `import torch`, because torch takes so long that
the difference between two processes drowns what ftax adds.
"""

from __future__ import annotations

import statistics
import sys

from record import figure, finish, make_parser, progress, run_json, show

_LEAST_PROCESSES = 10
_UNWANTED = ("transformers", "onnxruntime", "typer", "rich", "onnx")
_CODE = f"""
import json, sys, time
start = time.perf_counter(); import torch
between = time.perf_counter(); import ftax
end = time.perf_counter(); unwanted = sorted(set(sys.modules) & set({_UNWANTED!r}))
again = time.perf_counter(); ftax.tax  # a user's next step loads the parts that measure
print(json.dumps({{"import torch": between - start,
                   "import ftax beyond import torch": end - between,
                   "first use of ftax.tax": time.perf_counter() - again, "unwanted": unwanted}}))
"""


def main() -> None:
    """Run the processes, print the table, save the record."""
    options = make_parser(__doc__).parse_args()
    repetitions = 3 if options.quick else max(_LEAST_PROCESSES, options.processes)
    run_json([sys.executable, "-c", _CODE])  # fills the page cache and writes the byte code
    found = []
    for index in range(repetitions):
        progress(f"import_time: {index + 1} of {repetitions}")
        found.append(run_json([sys.executable, "-c", _CODE]))
    unwanted = [item.pop("unwanted") for item in found]
    series = {name: tuple(1e3 * item[name] for item in found) for name in found[0]}
    rows = [
        (name, f"{statistics.median(values):.1f}", f"{min(values):.1f} to {max(values):.1f}")
        for name, values in series.items()
    ]
    show(f"ms, {repetitions} fresh processes", ("import", "median", "from, to"), rows)
    limits = {"import ftax beyond import torch": 100.0}
    figures = [
        *(figure(name, values, "ms", at_most=limits.get(name)) for name, values in series.items()),
        figure(
            "unwanted modules imported", (float(len(u)) for u in unwanted), "modules", at_most=0.0
        ),
    ]
    finish(__file__, options, figures, raw={"milliseconds": series, "unwanted": unwanted})


if __name__ == "__main__":
    main()
