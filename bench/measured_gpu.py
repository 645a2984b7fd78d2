"""The rows of docs/measured.md that are of a GPU.

The surprising choice: older runs stay in the text beside the one that a row shows. What they missed
is why the instrument is now what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from measured_rows import Record, Records, count, judge, round_up, span
from pages import Section

from ftax.records.store import read_records
from ftax.sweeps.record import SweepRun, SweepTimes
from ftax.sweeps.results import SweepResults, read_times

_CELLS = 9  # receipts of a whole run: three models, three batches
_HALF_WIDTH_LIMIT = 2.0  # % of eager
_FEW_TURNS = (8, 12)
_PIECES = 2  # of the newest tests with the GPU to themselves, which the time limit cut
_PARTS = ("beside the GPU", "sharing the GPU")


def describe_receipts(records: Records) -> Section:
    """Nine receipts of a GPU, and what they were held against."""
    nines = [r for r in records.all("gpu_receipts") if r["figures"]["cells"]["value"] == _CELLS]
    nine = nines[-1]
    cells = nine["raw"]["cells"]
    widths = [cell["half_width_percent"] for cell in cells]
    missed = [cell for cell in cells if cell["half_width_percent"] > _HALF_WIDTH_LIMIT]
    longer = records.last("gpu_receipts", lambda item: "--duration 60" in item["command"])
    again = [cell["half_width_percent"] for cell in longer["raw"]["cells"]]
    figures = nine["figures"]
    spread = figures["widest spread of kernel durations"]["value"]
    quiet = records.all("quiet_rounds")[0]["figures"]
    held = [item for item in nines if "turns_ns" not in item["raw"]["cells"][0]]
    few = [
        cell
        for cell in records.all("gpu_receipts_cells")
        if len(cell.get("turns_ns", {}).get("rounds", ())) in _FEW_TURNS
    ]
    clocks = [
        item.core_hz / 1e9
        for receipt in records.receipts("gpu_receipts_records")[-_CELLS - len(again) :]
        if (item := receipt.rungs[0]).core_hz
    ]
    return Section(
        numbers={
            "nine_widths": _describe_widths(widths, missed),
            "nine_again": "; ".join(f"{width:.1f} %" for width in again)
            + f" | at most {_HALF_WIDTH_LIMIT:g} % | {judge(max(again) <= _HALF_WIDTH_LIMIT)}",
            "nine_again_names": " and ".join(
                f"{cell['model']} at {cell['batch']}" for cell in longer["raw"]["cells"]
            ),
            "nine_kernels": count(int(figures["same kernels on every rung"]["value"]), _CELLS),
            "nine_agree": count(
                int(figures["receipt, py_bench and a plain loop agree"]["value"]), _CELLS
            ),
            "nine_durations": f"within {round_up(spread, 1)} % | 5 % | {judge(spread <= 5)}",
            "quiet_all": f"{quiet['half-width of eager, all rounds']['value']:.1f}",
            "quiet_some": f"{quiet['half-width of eager, rounds that count']['value']:.1f}",
            "core_clocks": span(clocks, ".1f"),
            "held_nines": str(len(held)),
            "held_cells": str(_CELLS * len(held)),
            "held_agree": str(_sum_figures(held, "receipt, py_bench and a plain loop agree")),
            "held_kernels": str(_sum_figures(held, "same kernels on every rung")),
            "few_cells": str(len(few)),
            "few_cannot": str(
                sum(
                    any(item["agrees"] == "cannot tell" for item in cell["agreement"].values())
                    for cell in few
                )
            ),
        },
    )


def _sum_figures(found: Iterable[Record], name: str) -> int:
    return int(sum(item["figures"][name]["value"] for item in found))


def _describe_widths(widths: Sequence[float], missed: Sequence[Record]) -> str:
    good = span((width for width in widths if width <= _HALF_WIDTH_LIMIT), ".1f")
    bad = ", ".join(
        f"{cell['half_width_percent']:.1f} % ({cell['model']} at {cell['batch']})"
        for cell in missed
    )
    verdict = f"missed in {len(missed)} of {len(widths)}" if missed else "met"
    return f"{good} %{'; ' + bad if bad else ''} | at most {_HALF_WIDTH_LIMIT:g} % | {verdict}"


def describe_instruments(records: Records) -> Section:
    """Kernel records, launches and planted delays, against other instruments."""
    kernels = records.last("gpu_kernels")["figures"]
    theirs = [f for name, f in kernels.items() if "kernel time of torch.profiler" in name]
    differ = [f["value"] for name, f in kernels.items() if "launches that differ" in name]
    off = 100 * max(abs(f["value"] - 1) for f in theirs)
    long = kernels["batch 32, eager/cpp, ncu: kernels above 20 us within 5 %"]
    number = int(long["unit"].removeprefix("of "))
    seen = [item["figures"] for item in records.all("gpu_observer")]
    observers = [item for item in seen if "tape under ftax, kernels" in item]
    first, last = (item["tape under ftax, kernels"] for item in (observers[0], observers[-1]))
    left = records.last("gpu_observer", lambda item: "--left-behind" in item["command"])
    against = "tape: ftax, kernels, against torch.profiler, CUDA"
    launch = records.last("gpu_launch")["figures"]
    prices = [f for name, f in launch.items() if "over 'launch, host' of ftax doctor" in name]
    gated = [
        abs(f["value"]) for name, f in launch.items() if "gated over ungated device time" in name
    ]
    delays = records.last("gpu_intervention", lambda item: item["process_count"] == 3)["figures"]
    lines = delays["lines as expected"]
    amounts = [f["met"] for name, f in delays.items() if "seen on" in name]
    ncu_short = kernels["batch 1, eager/cpp, ncu: kernels up to 20 us, median"]["value"]
    ncu_long = kernels["batch 32, eager/cpp, ncu: kernels above 20 us, median"]["value"]
    quietest = next(item.rungs[0].core_hz for item in records.receipts("gpu_receipts_records"))
    return Section(
        numbers={
            "profiler": f"{max(differ):.0f}; within {round_up(off, 1)} % | 0; 1 % "
            f"| {judge(max(differ) == 0 and all(f['met'] for f in theirs))}",
            "ncu": f"{round(long['value'] * number)} of {number} | all | {judge(long['met'])}",
            "observer": f"{100 * (first['value'] - 1):.1f} %; {100 * (last['value'] - 1):.1f} % "
            f"({span((100 * (v - 1) for v in last['values']), '.1f')} %) | at most 5 % "
            f"| {_judge_both(first['met'], last['met'])}",
            "observer_clock": "-" if quietest is None else f"{quietest / 1e9:.1f}",
            "against_profiler": "; ".join(
                f"{f[against]['value']:.2f}" for f in (observers[0], observers[-1])
            )
            + f" of its latency | at most 1 | {judge(observers[-1][against]['met'])}",
            "left_behind_processes": str(left["process_count"]),
            "left_behind_tape": _describe_left(left["figures"], "tape"),
            "left_behind_eager": _describe_left(left["figures"], "Python eager"),
            "launch": f"{span((f['value'] for f in prices), '.2f')} | {prices[0]['target']} "
            f"| {judge(all(f['met'] for f in prices))}",
            "gated": f"within {round_up(max(gated), 2)} % | 3 % | {judge(max(gated) <= 3)}",
            "amounts": count(sum(amounts), len(amounts)),
            "planted": f"{lines['value']:.0f} of 50 | 50 | {judge(lines['met'])}",
            "planted_span": span(lines["values"], ".0f"),
            "ncu_short": f"{100 * (ncu_short - 1):.0f}",
            "ncu_long": f"{100 * (ncu_long - 1):.0f}",
        },
    )


def _describe_left(figures: Record, subject: str) -> str:
    figure = figures[f"{subject}, after a trace that was detached, in cycles"]
    low, high = min(figure["values"]), max(figure["values"])
    return (
        f"{100 * (figure['value'] - 1):.1f} % ({100 * (low - 1):.1f} to {100 * (high - 1):.1f} %) "
        f"| at most 2 % | {judge(figure['met'])}"
    )


def _judge_both(before: bool, now: bool) -> str:
    return "met since" if now and not before else judge(now)


def describe_pairs(records: Records) -> Section:
    """How often a comparison of the same thing on a GPU says so."""
    compared = records.last("gpu_compare", lambda item: item["figures"]["pairs of the same"]["met"])
    counts = compared["raw"]["summary"]["paired"]["all cells"]
    single = compared["raw"]["summary"]["unpaired"]["all cells"]
    low, high = counts["right_percent_interval"]
    wrong = counts["faster"] + counts["slower"]
    limit = compared["figures"]["called faster or slower, lower end of the interval"]
    one_by_one = records.all("gpu_compare_sets_sequential")
    verdicts = [cell["verdict"] for item in one_by_one for cell in item["cells"].values()]
    by_set = [
        [cell["verdict"] for cell in item["cells"].values()]
        for item in records.all("gpu_compare_sets")
    ]
    restless = max(place for place, found in enumerate(by_set, 1) if "cannot-tell" in found)
    return Section(
        numbers={
            "pairs": str(counts["pairs"]),
            "pairs_equal": f"{counts['right_percent']:.0f} % ({low:.0f} to {high:.0f} %) | | ",
            "pairs_wrong": f"{wrong} of {counts['pairs']} | {limit['target']} % "
            f"| {judge(limit['met'])}",
            "pairs_welch": str(single["equal"]),
            "pairs_beside": str(sum(map(len, by_set[:restless]))),
            "pairs_cannot": str(counts["cannot-tell"]),
            "pairs_before": str(len(verdicts)),
            "pairs_before_equal": f"{100 * verdicts.count('equal') / len(verdicts):.0f}",
        },
        holds={"pairs that cannot be told apart are the early ones": restless < len(by_set) / 2},
    )


def split_pieces(records: Iterable[object]) -> tuple[list[SweepTimes], list[SweepTimes]]:
    """The pieces of the study on the first machine, whose runs do not name it, and on others."""
    calm: list[SweepTimes] = []
    busy: list[SweepTimes] = []
    pieces = calm
    for item in records:
        if isinstance(item, SweepRun):
            pieces = busy if "machines" in item.settings else calm
        elif isinstance(item, SweepTimes):
            pieces.append(item)
    return calm, busy


def say_minutes(pieces: Sequence[SweepTimes]) -> str:
    """Of the devices, without exports, beside the target of one GPU."""
    seconds = sum(sum(item.seconds.values()) - item.seconds.get("export", 0.0) for item in pieces)
    return f"{seconds / 60:.0f} min | at most 25 min | {judge(seconds <= 1500)}"


def describe_waiting(records: Records) -> Section:
    """How long commands keep their user waiting on a GPU, and the tests there."""
    wall = records.last("gpu_wall")
    runtimes = [record["raw"]["cells"][0] for record in records.all("gpu_runtimes")]
    figures = [record["figures"] for record in records.all("gpu_runtimes")]
    times = [
        next(f for name, f in found.items() if "measuring after preparation" in name)
        for found in figures
    ]
    missing = [
        next(f for name, f in found.items() if "missing without need" in name) for found in figures
    ]
    slower = [sum(not item["no_worse"] for item in cell["hosts"]) for cell in runtimes]
    paper, quick = records.paper, records.paper.quick
    calm, busy = split_pieces(read_records(paper.folder / "runs.jsonl").records)
    quick_s = sum(read_times(quick).values())
    cells = SweepResults.load(quick).cells
    measured = sum(cell.status == "measured" for cell in cells)
    memcheck = records.last("gpu_tests", lambda item: "--memcheck" in item["command"])
    (checked,) = memcheck["raw"]
    runs = [run for item in records.all("gpu_tests") for run in item["raw"]
            if "--files" not in item["command"]]  # fmt: skip
    shared = [_find_last(runs, name) for name in _PARTS]
    alone = _find_last([run for run in runs if run.get("in_time", True)], "alone on the GPU")
    cut = [run for item in records.all("gpu_tests")[-_PIECES:] for run in item["raw"]]
    return Section(
        numbers={
            "wall": f"{wall['figures']['wall time']['value']:.0f} s; "
            f"{wall['figures']['time to the first number']['value']:.1f} s | 30 s; 15 s | "
            + judge(all(f["met"] is not False for f in wall["figures"].values())),
            "wall_first": f"{wall['figures']['wall time without cached bytecode']['value']:.0f}",
            "memcheck": f"{checked['exit_code']} errors, {len(checked['failed'])} failed | 0; 0 | "
            + judge(checked["exit_code"] == 0 and not checked["failed"]),
            "all_runtimes": "; ".join(f"{f['value']:.0f} s" for f in times)
            + f" | at most 300 s | {judge(all(f['met'] for f in times))}",
            "all_slower": "; ".join(
                f"{few} of {len(cell['hosts'])}" for few, cell in zip(slower, runtimes, strict=True)
            )
            + f" | 0 | {judge(not any(slower))}",
            "all_rows": "; ".join(str(len(cell["rows"])) for cell in runtimes),
            "all_missing": "; ".join(f"{f['value']:.0f}" for f in missing)
            + f" | 0 | {judge(all(f['met'] for f in missing))}",
            "paper_cells": str(len(paper.view.cells)),
            "paper_pieces": str(len(calm)),
            "paper_minutes": say_minutes(calm),
            "paper_exports": f"{sum(item.seconds.get('export', 0.0) for item in calm):.0f}",
            "busy_cells": str(len(paper.busy.cells)),
            "busy_pieces": str(len(busy)),
            "busy_minutes": say_minutes(busy),
            "quick_cells": f"{measured} of its {len(cells)}",
            "quick_seconds": f"{quick_s:.0f} s | at most 300 s | {judge(quick_s <= 300)}",
            "tests_shared": _describe_tests(shared),
            "tests_alone": _describe_tests([alone]),
            "tests_skipped": str(sum(len(run["skipped"]) for run in shared)),
            "tests_alone_skipped": str(len(alone["skipped"])),
            "tests_cut": _describe_tests(cut),
        },
        holds={
            "what failed in the pieces is about planted delays": set(_list_failed(cut)) == {True}
        },
    )


def _list_failed(runs: Sequence[Record]) -> list[bool]:
    """Of each test that failed, whether it plants a delay."""
    names = [name for run in runs for name in run["failed"]]
    return ["test_gpu_intervention::test_a_delay" in name for name in names]


def _find_last(runs: Sequence[Record], name: str) -> Record:
    return [run for run in runs if run["name"] == name][-1]


def _describe_tests(runs: Sequence[Record]) -> str:
    passed = sum(run["passed"] for run in runs)
    failed, skipped = (sum(len(run[key]) for run in runs) for key in ("failed", "skipped"))
    return (
        f"{passed:,} passed, {failed} failed, {skipped} skipped | none failed | {judge(not failed)}"
    )
