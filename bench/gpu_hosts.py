"""C++ against the best public way to drive each runtime from Python, on a GPU.

Both hosts run the same work in the same interleaved rounds, and their difference has an interval
from those rounds. The surprising choice: the target is not "faster" but "no slower": where a
request is one graph launch, no host has anything left to save. C++ passes unless it is slower for
certain.
"""

from __future__ import annotations

import sys

from record import finish
from runtime_bench import make_runtime_parser, parse, run_models, strip, work
from runtime_cells import HOST_PAIRS, make_host_figures
from runtime_tables import show_hosts


def main() -> None:
    """Run the models, print the tables, save the record."""
    parser = make_runtime_parser(
        __doc__, models=("bert-base", "resnet-50"), dtype="fp16", device="cuda", duration_s=60.0,
        trace="none",
    )  # fmt: skip
    parser.set_defaults(runtimes=list(HOST_PAIRS))
    options = parse(parser)
    if options.worker:
        work(options)
    cells, failed = run_models(__file__, options)
    if not cells:
        sys.exit(f"gpu_hosts: no model was measured: {failed}")
    for cell in cells:
        show_hosts(cell)
    names = [name for name in HOST_PAIRS if options.runtimes in (["all"], ["available"])
             or name in options.runtimes]  # fmt: skip
    figures = make_host_figures(cells, names)
    environment = cells[0]["environment"]
    finish(__file__, options, figures, raw=strip(cells, failed), environment=environment)


if __name__ == "__main__":
    main()
