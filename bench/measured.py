"""The numbers of docs/measured.md, from the committed records: receipts, and what ftax costs.

The surprising choice: receipts on the page are printed anew from their raw samples by the code that
prints them for a user, so that a change of how ftax counts cannot leave an old number there.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from measured_gpu import (
    describe_instruments,
    describe_pairs,
    describe_receipts,
    describe_waiting,
)
from measured_rows import Record, Records, count, judge, make_cells, span
from pages import DOCS, PageOfRecords, Section
from paper_today import list_spreads
from runtime_cells import compare_hosts
from shown import show_receipt

from ftax import Receipt

_WIDTH = 158
_WRONG_LIMIT = 8.0  # % of 200 pairs of the same cell: what 92 % called equal leaves


def split(receipt: Receipt) -> dict[str, float]:
    """The lines of a receipt by name, us."""
    return {line.name: line.time_ns / 1e3 for line in receipt.lines}


def find_middle(receipts: Sequence[Receipt]) -> Receipt:
    """The one whose latency is in the middle, of an even number the smaller of the two."""
    middle = statistics.median_low(receipt.latency_ns for receipt in receipts)
    return next(receipt for receipt in receipts if receipt.latency_ns == middle)


def describe_gpu(records: Records) -> Section:
    """The receipt of BERT on a GPU, and how far receipts of that cell are apart."""
    berts = {
        batch: [
            item
            for item in records.receipts("gpu_receipts_records")
            if (item.rungs[0].cell.model, item.rungs[0].cell.batch) == ("bert-base", batch)
        ]
        for batch in (1, 32)
    }
    one, many = (find_middle(found) for found in berts.values())
    spreads = list_spreads(records.paper)
    moved = {name: 100 * (max(v) / min(v) - 1) for name, v in spreads.items()}
    lines, wide = split(one), split(many)
    kernels = lines["kernels"]
    python = wide["model glue"] + wide["interpreter and bindings"]
    return Section(
        numbers={
            "gpu_receipt": show_receipt(one, _WIDTH, "all"),
            "gpu_count": str(len(berts[1])),
            "gpu_span": span((item.latency_ns / 1e6 for item in berts[1]), ".2f"),
            "gpu_graph_moved": f"{moved['CUDA graph']:.0f}",
            "gpu_kernels_moved": f"{moved['its kernels alone']:.0f}",
            "gpu_tax": f"{100 * (1 - kernels * 1e3 / one.latency_ns):.0f}",
            "gpu_dispatch": f"{lines['dispatch']:,.0f}",
            "gpu_count_32": str(len(berts[32])),
            "gpu_us_32": f"{many.latency_ns / 1e3:,.0f}",
            "gpu_kernels_32": f"{wide['kernels']:,.0f}",
            "gpu_dispatch_32": f"{wide['dispatch']:.0f}",
            "gpu_python_32": f"{100 * python * 1e3 / many.latency_ns:.0f}",
        },
        holds={
            "over four fifths of BERT's latency at batch 1 are the framework's": (
                kernels * 1e3 < one.latency_ns / 5
            ),
            "the device hides over nine tenths of dispatch at batch 32": (
                wide["dispatch"] < lines["dispatch"] / 10
            ),
        },
    )


def describe_energy(records: Records) -> Section:
    """Joules of an inference in eager and as a CUDA graph."""
    receipt = next(item for item in records.receipts("receipts") if item.readings)
    energies = [item.energy for item in receipt.readings if item.energy is not None]
    first, last = (item.joules_per_inference for item in (energies[0], energies[-1]))
    above = [1e3 * item.joules_above_idle for item in energies]
    return Section(
        numbers={
            "energy_us": f"{receipt.latency_ns / 1e3:,.0f}",
            "energy_eager": f"{1e3 * first:.0f}",
            "energy_graph": f"{1e3 * last:.0f}",
            "energy_above": span(above, ".0f"),
            "energy_waiting": f"{100 * (1 - last / first):.0f}",
        },
        holds={
            "above an idle GPU all rungs take the same within a tenth": (
                max(above) < 1.1 * min(above)
            )
        },
    )


def describe_cpu(records: Records) -> Section:
    """Two receipts of a CPU: narrow, and at full width."""
    found = [item for item in records.receipts("receipts") if not item.readings]
    (tiny,) = (item for item in found if item.rungs[0].cell.sequence == 8)
    (wide,) = (item for item in found if item.rungs[0].cell.sequence == 128)
    unresolved = [line.name for line in wide.lines if not line.resolved]
    return Section(
        numbers={
            "cpu_tiny": show_receipt(tiny, _WIDTH, "lines", "runtimes", "advice"),
            "cpu_wide": show_receipt(wide, _WIDTH, "lines", "advice"),
        },
        holds={
            "of Python's two lines one is not resolved": unresolved == ["interpreter and bindings"]
        },
    )


def describe_cost_cpu(records: Records) -> Section:
    """What ftax costs on a CPU, and how often its comparisons are right."""
    tape, wall = records.last("tape"), records.last("tax_wall")
    validity = records.last("compare_validity", lambda item: _count_pairs(item) >= 200)
    same, slow = (validity["raw"]["summary"]["default"][kind] for kind in ("same", "slow"))
    busy = records.last("compare_validity", lambda item: 0 < _count_pairs(item) < 200)
    restless = busy["raw"]["summary"]["default"]["same"]
    wrong = 100 * (same["faster"] + same["slower"]) / same["pairs"]
    probes = [
        probe
        for item in records.all("compare_validity_sets")
        if item["run"] == busy["raw"]["run"]
        for cell in item["cells"].values()
        for side in cell["probes_ns"].values()
        for probe in side
    ]
    lines = records.last("intervention")["figures"]["lines as expected"]
    hosts = [compare_hosts([*r.rungs, *r.others]) for r in records.receipts("cpu_runtimes_records")]
    wide_hosts, tiny_hosts = hosts
    return Section(
        numbers={
            "loop": make_cells(
                records.last("loop"), "wall per sample beyond two clock reads", unit="ns"
            ),
            "tape_script": make_cells(tape, "tape minus TorchScript in C++, per operator"),
            "tape_cpp": make_cells(tape, "tape minus hand-written C++, per operator"),
            "import": make_cells(
                records.last("import_time"), "import ftax beyond import torch", ".1f"
            ),
            "wall_cold": make_cells(wall, "wall, empty cache"),
            "wall_warm": make_cells(wall, "wall, warm cache"),
            "delays": count(int(lines["value"]), 9),
            "same_pairs": str(same["pairs"]),
            "same_equal": _describe_share(same, validity, "same called equal"),
            "same_wrong": f"{wrong:.1f} % | at most {_WRONG_LIMIT:g} % "
            f"| {judge(wrong <= _WRONG_LIMIT)}",
            "slow_slower": _describe_share(slow, validity, "5 % slower called slower"),
            "tiny_slower": _describe_hosts(tiny_hosts),
            "wide_slower": _describe_hosts(wide_hosts),
            "busy_pairs": str(restless["pairs"]),
            "busy_equal": f"{restless['right_percent']:.0f}",
            "busy_cannot": str(restless["cannot-tell"]),
            "busy_wrong": str(restless["faster"] + restless["slower"]),
            "busy_probes": f"{100 * (max(probes) / min(probes) - 1):.0f}",
        },
    )


def _count_pairs(record: Record) -> int:
    summary = record["raw"]["summary"]
    return int(summary["default"]["same"]["pairs"]) if "default" in summary else 0


def _describe_share(counts: Record, record: Record, name: str) -> str:
    low, high = counts["right_percent_interval"]
    _, _, rest = make_cells(record, name, ".1f").partition(" | ")
    return f"{counts['right_percent']:.1f} % ({low:.1f} to {high:.1f} %) | {rest}"


def _describe_hosts(hosts: Sequence[Record]) -> str:
    slower = sum(not item["no_worse"] for item in hosts)
    return f"{slower} of {len(hosts)} | 0 | {judge(slower == 0)}"


SECTIONS: Mapping[str, Callable[[Records], Section]] = {
    "gpu": describe_gpu,
    "energy": describe_energy,
    "cpu": describe_cpu,
    "cost": describe_cost_cpu,
    "receipts": describe_receipts,
    "instruments": describe_instruments,
    "pairs": describe_pairs,
    "waiting": describe_waiting,
}
PAGE = PageOfRecords(script=__file__, page=DOCS / "measured.md", sections=SECTIONS, load=Records)

if __name__ == "__main__":
    PAGE.run(__doc__)
