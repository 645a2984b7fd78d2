"""The numbers and pictures of docs/paper-today.md, from the committed records.

Nothing of the page is typed. Its text is bench/paper_today.md, in which numbers have names; its
tables and pictures are drawn of the cells of one run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ftax import Receipt
from ftax.paper.claims.arithmetic import knee
from ftax.paper.claims.claim_verdict import Outcome, Verdict
from ftax.paper.claims.judge import read_paper
from ftax.paper.claims.testing import find_claim
from ftax.paper.drawing import save_sheet
from ftax.paper.items import find_item
from ftax.paper.machine_view import View, split_views
from ftax.paper.reference import read_table
from ftax.records.store import read_records
from ftax.sweeps.results import SweepResults, read_days, read_times
from ftax.sweeps.sweep_records import SweepCell
from record import RESULTS, read_receipts, show

PAGE = Path(__file__).parents[1] / "docs" / "paper-today.md"
_TEMPLATE = Path(__file__).with_suffix(".md")
_PICTURES = PAGE.parent / "pictures"
_WIDEST = 60  # of what is printed of a number; the page has all of it
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
_LAST = _BATCHES[-1]
_NO_GAIN = 5.0  # %
# For which TorchScript was measured at batch 1 in fp16, text first.
_MODELS = {
    "bert-base": "BERT", "distilbert": "DistilBERT", "albert": "ALBERT",
    "squeezebert": "SqueezeBERT", "mobilebert": "MobileBERT", "longformer": "Longformer",
    "funnel": "Funnel", "gpt2": "GPT-2", "gpt2-generate": "GPT-2, 16 tokens", "wavlm": "WavLM",
    "resnet-18": "ResNet-18", "resnet-50": "ResNet-50", "mnasnet": "MnasNet",
    "shufflenet-v2": "ShuffleNet",
}  # fmt: skip


# Of the paper's Table 3: the runtime that stands for it today, and the paper's name.
_TABLE_3 = {
    "eager": "pytorch-eager", "torchscript": "torchscript", "onnxruntime": "onnxruntime",
    "cuda-graph": "cuda-graphs", "onnxruntime-cuda-graph": "ort-cuda-graphs",
}  # fmt: skip
_OUTCOMES: Mapping[str, Outcome] = {
    "hold": "holds", "changed": "changed", "fail": "does not hold", "open": "not resolved",
    "untested": "cannot be tested here",
}  # fmt: skip
_DISTURBED = ("eager", "torchscript")  # whose counters another run of Table 3 read again


def read_stated(claim: str) -> dict[str, float]:
    """By name, the first of the numbers that the paper's own data give a claim."""
    values = read_paper(find_claim(claim)).values
    return {name: numbers[0] for name, numbers in values.items() if numbers}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What one section of a page says.

    Attributes:
        numbers: by the names that the template has, as they are printed.
        holds: what its sentences take for granted, each with whether it is so.
    """

    numbers: Mapping[str, str]
    holds: Mapping[str, bool] = field(default_factory=dict)


class Records:
    """The committed records, as the sections read them."""

    def __init__(self, folder: Path = RESULTS) -> None:
        self.folder = folder / "paper"
        self.quick = folder / "paper_quick"
        self.receipts = read_receipts("gpu_receipts_records", folder)
        # The host of the first had the calmer neighbours; the second has cells of later versions.
        self.view, self.busy = split_views(SweepResults.load(self.folder))
        self.table3 = split_views(SweepResults.load(folder / "paper_table3"))[-1]

    def cell(self, model: str, runtime: str, dtype: str, batch: int) -> SweepCell:
        """Of texts with 128 tokens. Raises KeyError if it was not measured."""
        sequences = {place[4] for place in self.view.cells if place[0] == model}
        sequence = 128 if 128 in sequences else next(iter(sequences))
        cell = self.view.cells[model, f"{runtime}/python", dtype, batch, sequence]
        if cell.status != "measured":
            raise KeyError(cell.cell.label())
        return cell

    def ms(self, model: str, runtime: str, dtype: str, batch: int) -> float:
        """Latency."""
        return self.cell(model, runtime, dtype, batch).latency_ns / 1e6

    def cut(self, model: str, runtime: str, dtype: str, batch: int, old: str = "eager") -> float:
        """How much of the latency of ``old`` a runtime saves, in %."""
        return 100 * (1 - self.ms(model, runtime, dtype, batch) / self.ms(model, old, dtype, batch))


def describe_setting(records: Records) -> Section:
    """Machines, days and effort."""
    view = records.view
    facts = view.machine.environment if view.machine else None
    minutes = sum(read_times(records.folder).values()) / 60
    quick = [cell for cell in SweepResults.load(records.quick).cells if cell.status == "measured"]
    return Section(
        numbers={
            "gpu": view.label,
            "busy_gpu": name_briefly(records.busy),
            "torch": facts.software.torch if facts else "?",
            "day": " and ".join(", ".join(read_days(records.folder)).rsplit(", ", 1)),
            "cells": str(len(list_measured(view))),
            "busy_cells": str(len(list_measured(records.busy))),
            "minutes": f"{minutes:.0f}",
            "quick_cells": str(len(quick)),
            "quick_seconds": f"{sum(read_times(records.quick).values()):.0f}",
        }
    )


def list_measured(view: View) -> list[SweepCell]:
    """Those with a latency."""
    return [cell for cell in view.cells.values() if cell.status == "measured"]


def name_briefly(view: View) -> str:
    """ "H100"."""
    return view.label.partition(" ")[0]


def describe_table3(records: Records) -> Section:
    """BERT at batch 1 in half precision, the paper's Table 3."""
    papers = {row["framework"]: row for row in read_table("table3_utilization.csv")}
    numbers, latencies = {}, {}
    for runtime, name in _TABLE_3.items():
        key = runtime.replace("-", "_")
        cell = records.cell("bert-base", runtime, "fp16", 1)
        again = records.table3.cells["bert-base", f"{runtime}/python", "fp16", 1, 128]
        latencies[runtime] = cell.latency_ns
        numbers |= {
            f"{key}_paper": f"{float(papers[name]['latency_ms']):.1f}",
            f"{key}_paper_sms": papers[name]["sms_active_pct"],
            f"{key}_ms": f"{cell.latency_ns / 1e6:.2f}",
            f"{key}_busy": f"{(cell.busy_ns or 0) / 1e6:.2f}",
            f"{key}_sms": f"{100 * (cell.sm_active_ratio or 0):.1f}",
        }
        if runtime in _DISTURBED:
            numbers |= {
                f"{key}_ms_again": f"{again.latency_ns / 1e6:.2f}",
                f"{key}_sms_again": f"{100 * (again.sm_active_ratio or 0):.1f}",
            }
    return Section(
        numbers=numbers,
        holds={
            "the CUDA graph of eager's kernels is the fastest": min(
                latencies, key=lambda runtime: latencies[runtime]
            )
            == "cuda-graph",
            "TorchScript is within 5 % of eager": abs(
                latencies["torchscript"] / latencies["eager"] - 1
            )
            < 0.05,
        },
    )


def describe_claims(records: Records) -> Section:
    """How the paper's claims fare, and what had no cell."""
    verdicts = read_verdicts(records)
    counts = {
        "": Counter(item.today for item in verdicts[records.view.label].values()),
        "busy_": Counter(item.today for item in verdicts[records.busy.label].values()),
    }
    views = (records.view, records.busy)
    cells = [cell for view in views for cell in view.cells.values()]
    return Section(
        numbers={
            "missing": "; ".join(c.cell.label() for c in cells if c.status != "measured"),
            "claims": str(len({name for group in verdicts.values() for name in group})),
            "claims_of_one": str(sum(counts[""].values())),
            **{
                f"{which}{name}": str(count[verdict])
                for which, count in counts.items()
                for name, verdict in _OUTCOMES.items()
            },
        }
    )


def read_verdicts(records: Records) -> dict[str, dict[str, Verdict]]:
    """By the machines whose cells they are of ("H200", or several, or ""), then by claim."""
    found: dict[str, dict[str, Verdict]] = {}
    for item in read_records(records.folder / "claims.jsonl").records:
        if isinstance(item, Verdict):
            found.setdefault(item.machine.removeprefix("NVIDIA "), {})[item.id] = item
    return found


def describe_busy(records: Records) -> Section:
    """The verdicts of the hosts with busy neighbours, beside those of the other."""
    verdicts = read_verdicts(records)
    calm, busy = verdicts[records.view.label], verdicts[records.busy.label]
    pairs = {
        name: (calm[name], busy[name])
        for name in calm
        if "cannot be tested here" not in (calm[name].today, busy[name].today)
    }
    opposed = [
        (one, other)
        for one, other in pairs.values()
        if one.today != other.today and "not resolved" not in (one.today, other.today)
    ]
    return Section(
        numbers={
            "both": str(len(pairs)),
            "same": str(sum(one.today == other.today for one, other in pairs.values())),
            "only_busy_open": str(
                sum(other.today == "not resolved" != one.today for one, other in pairs.values())
            ),
            "only_calm_open": str(
                sum(one.today == "not resolved" != other.today for one, other in pairs.values())
            ),
            "opposed_count": str(len(opposed)),
            "opposed": "\n".join(f"- {one.sentence}\n  {other.sentence}" for one, other in opposed),
            "busy_drift": records.busy.drift.describe() if records.busy.drift else "",
            "funnel_training": busy["S4.2.2-funnel-training"].sentence,
            "busy_eager": say_ms(records.busy, "eager"),
            "calm_eager": say_ms(records.view, "eager"),
            "busy_graph": say_ms(records.busy, "cuda-graph"),
            "calm_graph": say_ms(records.view, "cuda-graph"),
        },
        holds={
            "the H100s' drift is known": records.busy.drift is not None,
            "Funnel does not train faster": busy["S4.2.2-funnel-training"].today == "does not hold",
            "few are opposed": len(opposed) <= len(pairs) // 10,
        },
    )


def say_ms(view: View, runtime: str) -> str:
    """BERT at batch 1 in half precision, "3.73 ms"."""
    cell = view.find("bert-base", f"{runtime}/python", "fp16", 1, 128)
    return "-" if cell is None else f"{cell.latency_ns / 1e6:.2f} ms"


def describe_knee(records: Records) -> Section:
    """Where the plateau of eager ends, and what it costs."""
    paper = read_stated("S4-flat-eager-batch")
    numbers: dict[str, str] = {}
    knees = {}
    for model, letter in (("bert-base", "b"), ("resnet-50", "r")):
        for dtype in ("fp16", "fp32"):
            series = [records.ms(model, "eager", dtype, batch) for batch in _BATCHES]
            name = f"knee_{letter}{dtype[2:]}"
            knees[name] = int(knee(series))
            numbers[name] = str(knees[name])
            numbers[f"{name}_paper"] = f"{paper[name]:.0f}"
    share = records.cell("bert-base", "eager", "fp16", 1).overhead_share or 0.0
    papers = read_stated("S3.2-share-falls")
    graph = records.cut("bert-base", "cuda-graph", "fp16", 1)
    single = [
        100 * (records.cell("bert-base", "eager", "fp32", batch).overhead_share or 0.0)
        for batch in _BATCHES
    ]
    numbers |= {
        "share32_b1": f"{single[0]:.0f}",
        "share32_b2": f"{single[1]:.0f}",
        "share_b1": f"{100 * share:.0f}",
        "share_b1_paper": f"{papers['share_pct']:.0f}",
        "graph_cut": f"{graph:.0f}",
        "graph_cut_paper": f"{read_stated('S4.1-cudagraphs-small')['cut_b1']:.0f}",
    }
    return Section(
        numbers=numbers,
        holds={
            "both knees in fp16 are later than the paper's": all(
                knees[name] > paper[name] for name in ("knee_b16", "knee_r16")
            ),
            "the device idles over three quarters of BERT's latency at batch 1": share > 0.75,
            "a graph cuts BERT at batch 1 by more than half": graph > 50,
            "in fp32 the share falls from batch to batch": single == sorted(single, reverse=True),
        },
    )


def describe_frameworks(records: Records) -> Section:
    """TorchScript and ONNX Runtime against eager at batch 128."""
    numbers, ratios = {}, {}
    for dtype in ("fp16", "fp32"):
        for name, short in (("torchscript", "ts"), ("onnxruntime", "ort")):
            key = f"{short}_{dtype}"
            ratios[key] = records.ms("bert-base", name, dtype, _LAST) / records.ms(
                "bert-base", "eager", dtype, _LAST
            )
            numbers[key] = f"{ratios[key]:.2f}"
            kernels = records.cell("bert-base", name, dtype, 1).kernels
            numbers[f"{short}_kernels_{dtype}"] = str(kernels)
        numbers[f"eager_kernels_{dtype}"] = str(
            records.cell("bert-base", "eager", dtype, 1).kernels
        )
    papers = read_stated("S4.1-converge-large")
    numbers["paper_spread"] = f"{papers['spread_b16_b128']:.2f}"
    resnet = [records.ms("resnet-50", name, "fp16", _LAST) for name in ("torchscript", "eager")]
    numbers["resnet_ts"] = f"{resnet[0] / resnet[1]:.2f}"
    idle = max(
        records.cell("bert-base", name, "fp16", _LAST).overhead_share or 0.0
        for name in ("eager", "torchscript", "onnxruntime")
    )
    numbers["idle_128"] = f"{100 * idle:.0f}"
    return Section(
        numbers=numbers,
        holds={
            "both frameworks take over 1.5 times as long as eager for BERT in fp16": min(
                ratios["ts_fp16"], ratios["ort_fp16"]
            )
            > 1.5,
            "the device idles less than a sixth of the time in all three": idle < 1 / 6,
            "the paper's three were within 1.2 times": papers["spread_b16_b128"] < 1.2,
            "eager launches the fewest kernels": int(numbers["eager_kernels_fp16"])
            < min(int(numbers["ts_kernels_fp16"]), int(numbers["ort_kernels_fp16"])),
        },
    )


def describe_nested(records: Records) -> Section:
    """Nested tensors against padded eager at batch 128, and what they lose again."""
    cuts = {
        dtype: records.cut("bert-base", "nested", dtype, _LAST, old="padded")
        for dtype in ("fp16", "fp32")
    }
    shares = {
        dtype: records.cell("bert-base", "nested", dtype, _LAST).overhead_share or 0.0
        for dtype in cuts
    }
    work = {
        dtype: 1
        - (records.cell("bert-base", "nested", dtype, _LAST).busy_ns or 0)
        / (records.cell("bert-base", "padded", dtype, _LAST).busy_ns or 1)
        for dtype in cuts
    }
    paper = read_stated("S4.1-nested-large")["cut_vs_eager_padded_b128"]
    numbers = {"nested_paper": f"{paper:.1f}"}
    for dtype, cut in cuts.items():
        numbers |= {
            f"nested_cut_{dtype}": f"{cut:.1f}",
            f"nested_share_{dtype}": f"{100 * shares[dtype]:.0f}",
            f"nested_work_{dtype}": f"{100 * work[dtype]:.0f}",
        }
    return Section(
        numbers=numbers,
        holds={
            "in fp32 the gain is the paper's within 5 points": abs(cuts["fp32"] - paper) < 5,
            "in fp16 it is less than half of it": cuts["fp16"] < paper / 2,
            "the device's work shrinks by over 60 % in both": min(work.values()) > 0.6,
            "in fp16 the host is most of the latency": shares["fp16"] > 0.5,
        },
    )


def list_torchscript(records: Records) -> dict[str, float]:
    """What TorchScript cuts at batch 1 in fp16, %, by model; those that were measured."""
    cuts = {}
    for model, title in _MODELS.items():
        try:
            cuts[title] = records.cut(model, "torchscript", "fp16", 1)
        except KeyError:
            continue
    return cuts


def describe_torchscript(records: Records) -> Section:
    """TorchScript's gain at batch 1, of BERT and of all others."""
    cuts = list_torchscript(records)
    none = [title for title, cut in cuts.items() if cut < _NO_GAIN]
    others = {title: cut for title, cut in cuts.items() if title not in none}
    least = min(others, key=lambda title: others[title])
    most = max(others, key=lambda title: others[title])
    return Section(
        numbers={
            "ts_bert": f"{cuts['BERT']:.1f}",
            "ts_bert_paper": f"{read_stated('S4.1-faster-at-b1')['ts_cut_b16']:.1f}",
            "ts_none": " and ".join(none),
            "ts_others": str(len(others)),
            "ts_middle": f"{statistics.median(others.values()):.0f}",
            "ts_least": f"{others[least]:.0f}",
            "ts_least_model": least,
            "ts_most": f"{others[most]:.0f}",
            "ts_most_model": most,
        },
        holds={
            "BERT is among those that gain under 5 %": "BERT" in none,
            "they are no more than a third": 3 * len(none) <= len(cuts),
            "all others gain over 10 %": min(others.values()) > 10,
        },
    )


def list_spreads(records: Records) -> dict[str, tuple[float, ...]]:
    """Of the receipts of BERT at batch 1: eager's latency, its C++ loop's, the graph's, and the
    summed time of its kernels, ms, receipt by receipt."""
    found: dict[str, list[float]] = {}
    for receipt in _choose_receipts(records):
        by_rung = {(r.cell.runtime, r.cell.host): r.latency_ns / 1e6 for r in receipt.rungs}
        kernels = statistics.median(receipt.evidence[0].kernel_ns) / 1e6
        for name, value in (
            ("eager from Python", by_rung["eager", "python"]),
            ("eager from C++", by_rung["eager", "cpp"]),
            ("CUDA graph", by_rung["cuda-graph", "cpp"]),
            ("its kernels alone", kernels),
        ):
            found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


def _choose_receipts(records: Records) -> list[Receipt]:
    """Those of BERT at batch 1 in fp16."""
    wanted = ("bert-base", 1, "fp16")
    return [
        item
        for item in records.receipts
        if (item.rungs[0].cell.model, item.rungs[0].cell.batch, item.rungs[0].cell.dtype) == wanted
    ]


def describe_hosts(records: Records) -> Section:
    """How far the receipts of one cell are apart."""
    spreads = list_spreads(records)
    ratios = {name: max(values) / min(values) for name, values in spreads.items()}
    eager = spreads["eager from Python"]
    days = {item.rungs[0].conditions[0].utc[:10] for item in _choose_receipts(records)}
    return Section(
        numbers={
            "receipts": str(len(eager)),
            "receipt_days": " and ".join(sorted(days)),
            "eager_least": f"{min(eager):.2f}",
            "eager_middle": f"{statistics.median_low(eager):.2f}",
            "eager_most": f"{max(eager):.2f}",
            "eager_ratio": f"{ratios['eager from Python']:.2f}",
            "cpp_ratio": f"{ratios['eager from C++']:.2f}",
            "graph_ratio": f"{ratios['CUDA graph']:.2f}",
            "kernel_ratio": f"{ratios['its kernels alone']:.2f}",
        },
        holds={
            "eager moves by over half": ratios["eager from Python"] > 1.5,
            "the graph moves by less than a fifth of that": ratios["CUDA graph"] - 1
            < (ratios["eager from Python"] - 1) / 5,
            "kernels move least": min(ratios, key=lambda name: ratios[name]) == "its kernels alone",
        },
    )


SECTIONS: Mapping[str, Callable[[Records], Section]] = {
    "setting": describe_setting,
    "claims": describe_claims,
    "table3": describe_table3,
    "knee": describe_knee,
    "frameworks": describe_frameworks,
    "nested": describe_nested,
    "torchscript": describe_torchscript,
    "hosts": describe_hosts,
    "busy": describe_busy,
}


def draw(records: Records, folder: Path) -> None:
    """Write the pictures of the page."""
    view = records.view
    _draw_item("fig3", view, (), folder / "framework-overhead-h200")
    _draw_item("fig4", view, ("BERT, fp16", "BERT, fp32"), folder / "today-frameworks")
    _draw_item("fig5", view, (), folder / "today-nested")
    paper = {"BERT": read_stated("S4.1-faster-at-b1")["ts_cut_b16"],
             "ResNet-50": read_stated("S4.1-faster-at-b1")["ts_cut_r16"]}  # fmt: skip
    _draw_bars(
        list_torchscript(records), paper, "% of eager's latency that TorchScript saves at batch 1",
        folder / "today-torchscript.svg",
    )  # fmt: skip
    spreads = {name: max(v) / min(v) for name, v in list_spreads(records).items()}
    _draw_bars(
        spreads, {}, "slowest over fastest receipt of BERT at batch 1", folder / "today-hosts.svg"
    )


def _draw_item(name: str, view: View, titles: Sequence[str], stem: Path) -> None:
    sheet = find_item(name).make_sheet([view])
    panels = tuple(panel for panel in sheet.panels if not titles or panel.title in titles)
    _, png = save_sheet(replace(sheet, panels=panels), stem)
    png.unlink()  # the page shows the other


def _draw_bars(
    ours: Mapping[str, float], paper: Mapping[str, float], label: str, path: Path
) -> None:
    from matplotlib import pyplot, rc_context

    with rc_context({"font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "ftax"}):
        figure, axes = pyplot.subplots(figsize=(6, 0.6 + 0.25 * len(ours)), layout="constrained")
        names = list(ours)[::-1]
        axes.barh(names, [ours[name] for name in names], color="#0072B2", label="today")
        for name, value in paper.items():
            axes.plot(value, name, "D", color="#000000", fillstyle="none",
                      label="the paper" if name == next(iter(paper)) else None)  # fmt: skip
        for name in names:
            axes.annotate(f" {ours[name]:.3g}", (max(0.0, ours[name]), name), va="center")
        axes.set_xlabel(label)
        axes.spines[["top", "right"]].set_visible(False)
        if paper:
            axes.legend(frameon=False, loc="lower right")
        figure.savefig(path, metadata={"Date": None, "Creator": "ftax"})
        pyplot.close(figure)


def fill(template: str, sections: Iterable[Section]) -> str:
    """The template with its numbers. Raises ValueError for a sentence that is no longer so, and for
    a number that the template has and no section, or the other way round."""
    numbers: dict[str, str] = {}
    for section in sections:
        turned = [words for words, holds in section.holds.items() if not holds]
        if turned:
            raise ValueError(f"no longer so: {'; '.join(turned)}: rewrite {_TEMPLATE.name}")
        numbers |= section.numbers
    unused = [number for number in numbers if f"{{{number}}}" not in template]
    if unused:
        raise ValueError(f"{_TEMPLATE.name} has no {', '.join(unused)}: use or drop them")
    try:
        return template.format_map(numbers)
    except KeyError as error:
        raise ValueError(f"{_TEMPLATE.name} has the unknown {error}") from error


def render(sections: Iterable[Section]) -> str:
    """The page. Raises ValueError as `fill` does."""
    return fill(_TEMPLATE.read_text("utf-8"), sections)


def main() -> None:
    """Print the numbers, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="all if left out")
    parser.add_argument("--write", action="store_true", help="write the page and its pictures")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")
    options = parser.parse_args()
    records = Records(options.results)
    found = {name: SECTIONS[name](records) for name in options.sections or SECTIONS}
    for name, section in found.items():
        first = [
            (number, text.partition("\n")[0][:_WIDEST]) for number, text in section.numbers.items()
        ]
        show(name, ("number", "value"), first)
        for words, holds in section.holds.items():
            print(f"{'yes' if holds else 'NO '}  {words}")
    if options.write:
        try:
            text = render(found.values())
        except ValueError as error:
            sys.exit(f"paper_today: {error}")
        draw(records, _PICTURES)
        PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
