"""Every runtime under every host on a GPU, of BERT-base and ResNet-50, in one interleaved run each.

The figures: how long measuring takes once everything is prepared, which rows are missing without
need, how many relations of the paper's Table 3 hold here, and whether C++ is slower than the best
public way to drive a runtime from Python. The surprising choices: the relations have no target,
since a newer GPU and newer software are free to order runtimes otherwise; and C++ need not be
faster, for where a request is one graph launch, no host has anything left to save. It passes unless
it is slower for certain.
"""

from __future__ import annotations

import sys

from runtime_bench import choose, make_runtime_parser, parse, run_models, strip, work
from runtime_cells import HOST_PAIRS, make_host_figures, make_runtime_figures
from runtime_tables import show_hosts, show_runtimes

from record import finish


def main() -> None:
    """Run the models, print the tables, save the record."""
    parser = make_runtime_parser(
        __doc__, models=("bert-base", "resnet-50"), dtype="fp16", device="cuda", duration_s=60.0,
        trace="here",
    )  # fmt: skip
    options = parse(parser)
    if options.worker:
        work(options)
    cells, failed = run_models(__file__, options)
    if not cells:
        sys.exit(f"gpu_runtimes: no model was measured: {failed}")
    for cell in cells:
        show_runtimes(cell)
        show_hosts(cell)
    figures = [
        *make_runtime_figures(cells, len(options.models)),
        *make_host_figures(cells, choose(HOST_PAIRS, options.runtimes)),
    ]
    environment = cells[0]["environment"]
    finish(__file__, options, figures, raw=strip(cells, failed), environment=environment)


if __name__ == "__main__":
    main()
