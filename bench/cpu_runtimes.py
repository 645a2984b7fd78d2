"""Every runtime under every host on a CPU, of BERT-base and ResNet-50, in one interleaved run each.

The same table as `gpu_runtimes.py`, in fp32. The surprising choice: what is not installed counts
as left out and not as missing, because the CPU's figures come from developers' machines.
"""

from __future__ import annotations

import sys

from runtime_bench import make_runtime_parser, parse, run_models, strip, work
from runtime_cells import make_runtime_figures
from runtime_tables import show_hosts, show_runtimes

from record import finish


def main() -> None:
    """Run the models, print the tables, save the record."""
    parser = make_runtime_parser(
        __doc__, models=("bert-base", "resnet-50"), dtype="fp32", device="cpu", duration_s=60.0,
        trace="none",
    )  # fmt: skip
    options = parse(parser)
    if options.worker:
        work(options)
    cells, failed = run_models(__file__, options)
    if not cells:
        sys.exit(f"cpu_runtimes: no model was measured: {failed}")
    for cell in cells:
        show_runtimes(cell)
        show_hosts(cell)
    figures = make_runtime_figures(cells, len(options.models))
    environment = cells[0]["environment"]
    finish(__file__, options, figures, raw=strip(cells, failed), environment=environment)


if __name__ == "__main__":
    main()
