"""Claims of Sections 1 to 4.1: plateaus, overhead, and what other frameworks gain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ftax.paper.claims.arithmetic import (
    cut,
    cuts,
    either,
    every,
    falling_or_same,
    knee,
    lacking,
    least,
    mean,
    most,
    past,
    ratios,
    rising,
    spearman,
    spread,
    within,
)
from ftax.paper.claims.claim import POWERS, Results, claim

NO_PEAK_RATE = "it compares peak rates of two GPUs from Table 2; no latency tells a peak rate"
# The two models of Figure 4 in both dtypes: a letter and bits, and how conditions call them.
MAIN = {
    "r32": ("resnet50", "fp32", "ResNet-50"),
    "r16": ("resnet50", "fp16", "ResNet-50"),
    "b32": ("bert", "fp32", "BERT"),
    "b16": ("bert", "fp16", "BERT"),
}
FRAMEWORKS = {"e": "eager", "t": "torchscript", "o": "onnxruntime"}
TABLE_3 = ("eager", "torchscript", "cuda-graph", "onnxruntime", "onnxruntime-cuda-graph")
WORDS = {"e": "eager", "t": "TorchScript", "o": "ONNX Runtime"}
LANGUAGE = (
    "bert", "distilbert", "funnel_transformer", "albert", "longformer", "mobile_bert",
    "squeeze_bert",
)  # fmt: skip
VISION = (
    "vit32", "efficientnet", "efficientnet_lite", "gernet", "resnet18", "alexnet", "squeezenet",
    "vgg16", "densenet", "inception", "googlenet", "shufflenet", "mobilenet_v2", "resnext50_32x4d",
    "wide_resnet50_2", "mnasnet", "resnet50", "resnet101", "resnet152",
)  # fmt: skip
_ORT_VISION = (
    "vit32", "efficientnet", "efficientnet_lite", "gernet", "resnet18", "resnet50", "resnet101",
    "resnet152", "alexnet", "squeezenet", "vgg16", "densenet", "inception", "googlenet",
    "mobilenet_v2", "wide_resnet50_2", "mnasnet",
)  # fmt: skip
_FAMILY = (
    "bert", "distilbert", "funnel_transformer", "albert", "mobile_bert", "squeeze_bert",
)  # fmt: skip


def read_main(r: Results, framework: str = "e") -> dict[str, list[Any]]:
    """The series of Figure 4 over the batch, by the names of `MAIN`."""
    runtime, figure = FRAMEWORKS[framework], r.of("Figure 4")
    return {key: figure.series(model, runtime, dtype) for key, (model, dtype, _) in MAIN.items()}


def list_main() -> Iterator[tuple[str, str]]:
    """Each name of `MAIN`, and "ResNet-50 fp32"."""
    return ((key, f"{name} {dtype}") for key, (_, dtype, name) in MAIN.items())


def _read_all(r: Results) -> dict[str, list[Any]]:
    """Figure 4 in three frameworks: "r32_e" and so on."""
    series = {framework: read_main(r, framework) for framework in FRAMEWORKS}
    return {f"{key}_{framework}": series[framework][key] for key in MAIN for framework in series}


def _find_knees(r: Results) -> dict[str, Any]:
    found = {name: knee(series) for name, series in _read_all(r).items()}
    return {name: r.value(f"knee_{name}", size) for name, size in found.items()}


def read_figure5(r: Results, batches: Sequence[int] = POWERS) -> Mapping[str, list[Any]]:
    """BERT in half precision over the batch: eager, a graph, nested tensors, padded eager."""
    return {
        runtime: r.of(figure).series("bert", runtime, "fp16", batches)
        for runtime, figure in (
            ("eager", "Figure 5"),
            ("cuda-graph", "Figure 5"),
            ("nested", "Figure 5"),
            ("padded", "Figure 5 draft"),
        )
    }


def _split(r: Results) -> tuple[list[Any], list[Any]]:
    """Latency of eager BERT and its kernels' time; the paper has no batch of 128."""
    figure, batches = r.of("Figure 3"), POWERS[:-1] if r.is_paper else POWERS
    kernels = [figure.read("kernel_ms", "bert", "eager", "fp16", batch) for batch in batches]
    return figure.series("bert", "eager", "fp16", batches), kernels


@claim("S1-macs-vs-latency")
def _macs_vs_latency(r: Results) -> None:
    figure = r.of("Figure 1").on("2080Ti")
    latencies = [figure.ms(model, "eager", "fp32") for model in _FAMILY]
    macs = [figure.read("gmacs", model, "eager", "fp32") for model in _FAMILY]
    rho = r.value("rho_figure", spearman(macs, latencies))
    if r.is_paper:
        again = [r.of("raw").on("2080Ti").ms(model, "eager", "fp32") for model in _FAMILY]
        r.value("rho_raw", spearman(macs, again))
    r.value("mobilebert_over_bert", latencies[4] / latencies[0])
    r.value("mobilebert_macs_over_bert", macs[4] / macs[0], counted=True)
    lead = "over six models of BERT's family: "
    r.check(f"{lead}rank correlation is weak", abs(rho) < 0.5)
    r.check(
        f"{lead}the model with the fewest MACs is the slowest",
        every([macs[4] == least(macs), latencies[4] == most(latencies)]),
        "MobileBERT has fewer MACs than BERT and is slower",
        every([macs[4] < macs[0], latencies[4] > latencies[0]]),
    )


@claim("S1-flops-growth", "paper", reason=NO_PEAK_RATE)
def _flops_growth(r: Results) -> None:
    growth = 100 * (r.read_speed("A100") / r.read_speed("V100") - 1)
    r.check("A100 over V100 in Table 2", r.value("growth_pct", growth) > 175)


@claim("S3.2-share-falls")
def _share_falls(r: Results) -> None:
    total, kernels = _split(r)
    share = r.value("share_pct", cuts(total, kernels))
    r.value("overhead_ms", [all_ms - busy_ms for all_ms, busy_ms in zip(total, kernels)])
    if r.is_paper:
        r.check("share falls at every step", rising(*share[::-1]))
    else:
        r.check(
            "from each batch to the next the share falls or stays, but for drift",
            every(x - y >= -4 * r.drift * y * (100 - y) / 100 for x, y in pairwise(share)),
        )
    r.check(
        f"the share is over 50 % at batch 1 and under 5 % at batch {64 if r.is_paper else 128}",
        every([share[0] > 50, share[-1] < 5]),
        "the share is larger at batch 1 than at batch 128",
        share[0] > share[-1],
    )


@claim("S3.2-fewer-flops-no-faster")
def _fewer_flops_no_faster(r: Results) -> None:
    total = r.of("Figure 3").series("bert", "eager", "fp16", POWERS[:5])
    r.check("eager BERT: b=1 to 16 flat", r.value("spread_b1_16", spread(*total)) < 1.3)
    r.check("eager BERT: b=1 not faster than b=16", total[0] >= total[4])


@claim("S3.2-small-constant-at-large")
def _small_constant_at_large(r: Results) -> None:
    total, kernels = _split(r)
    share = cuts(total, kernels)
    large = (32, 64) if r.is_paper else (64, 128)
    if not r.is_paper:
        r.value("share_past_knee", past(share, total))
        r.value("share_b1", share[0])
    overhead = [
        r.value(f"overhead_ms_b{batch}", total[place] - kernels[place])
        for batch in large
        for place in [POWERS.index(batch)]
    ]
    if r.is_paper:
        ends = [r.value("share_b32", share[5]), r.value("share_b64", share[6])]
        r.check("under 5 % of latency at b=32 and 64", every(end < 5 for end in ends))
    else:
        largest = most(past(share, total))
        r.check(
            "past the knee the overhead is under 5 % of the latency",
            largest < 5,
            "past the knee the overhead's share is less than half of that at batch 1",
            largest < share[0] / 2,
        )
    r.check(
        f"the overhead of batches {large[0]} and {large[1]} is the same within 0.5 ms",
        within(overhead[0], overhead[1], 0.5),
    )


@claim("S3.2-cuda-graphs-remove-overhead")
def _graphs_remove_overhead(r: Results) -> None:
    total, kernels = _split(r)
    batches = POWERS[: len(total)]
    graph = r.of("Figure 5").series("bert", "cuda-graph", "fp16", batches)
    if r.is_paper:
        over = r.value("latency_over_kernel", ratios(graph, kernels))
        r.check(
            "CUDA-graph latency within 6 % of kernel time for b=1..16",
            every(abs(ratio - 1) < 0.06 for ratio in over[:5]),
        )
        return
    own = [r.read("kernel_ms", "bert", "cuda-graph", "fp16", batch) for batch in batches]
    r.value("latency_over_kernel", ratios(graph, own))
    left = r.value("left_pct", _find_left(total, kernels, graph, own))
    r.check(
        "where over half of eager's latency is overhead, a graph leaves under 6 % of that overhead",
        most(left) < 6,
    )


@lacking
def _find_left(total: Any, kernels: Any, graph: Any, own: Any) -> Any:
    """What a graph leaves of eager's overhead, %, at each batch where that is most of it."""
    return [
        100 * (latency - busy) / (eager - kernel)
        for eager, kernel, latency, busy in zip(total, kernels, graph, own)
        if kernel < 0.5 * eager
    ]


@claim("S4-flat-eager-batch")
def _flat_eager_batch(r: Results) -> None:
    for key, series in read_main(r).items():
        _, dtype, name = MAIN[key]
        size = r.value(f"knee_{key}", knee(series))
        r.check(
            f"{name} {dtype} flat to b=4 or beyond",
            size >= 4,
            f"{name} in {dtype} is flat up to batch 2",
            size >= 2,
        )


@claim("S4-flat-every-framework")
def _flat_every_framework(r: Results) -> None:
    for name, size in _find_knees(r).items():
        key, framework = name.split("_")
        _, dtype, model = MAIN[key]
        r.check(f"{model} {dtype} {WORDS[framework]} still flat at b=2", size >= 2)


@claim("S4-flat-seq")
def _flat_seq(r: Results) -> None:
    figure = r.of("Figure 4 over length")
    lead = "BERT over short lengths: "
    for framework, short, count in (("e", "eager", 4), ("t", "ts", 3), ("o", "ort", 3)):
        series = [
            figure.ms("bert", FRAMEWORKS[framework], "fp16", 128, length)
            for length in POWERS[:count]
        ]
        name = f"{short}_max_over_min_s1_{POWERS[count - 1]}"
        r.check(
            f"{lead}{WORDS[framework]} within 35 % for s=1..{POWERS[count - 1]}",
            r.value(name, spread(*series)) < 1.35,
        )
    ends = [figure.ms("bert", "eager", "fp16", 128, length) for length in (1, 128)]
    r.value("eager_s128_over_s1", ends[1] / ends[0])


@claim("S4-fp16-knee-later")
def _fp16_knee_later(r: Results) -> None:
    knees = _find_knees(r)
    lead = "fp16 leaves the plateau no earlier than fp32: "
    for letter, model in (("r", "ResNet-50"), ("b", "BERT")):
        for framework, words in WORDS.items():
            later = knees[f"{letter}16_{framework}"] >= knees[f"{letter}32_{framework}"]
            r.check(f"{lead}{model} {words}", later)
    strictly = [knees["b16_e"] > knees["b32_e"], knees["r16_e"] > knees["r32_e"]]
    r.check(f"{lead}strictly later for both eager models", every(strictly))


@claim("S4-fp16-no-gain-b1")
def _fp16_no_gain_at_b1(r: Results) -> None:
    series = _read_all(r)
    over = {
        f"{letter}_{framework}": r.value(
            f"fp16_over_fp32_b1_{letter}_{framework}",
            series[f"{letter}16_{framework}"][0] / series[f"{letter}32_{framework}"][0],
        )
        for letter in "rb"
        for framework in FRAMEWORKS
    }
    for framework, words in WORDS.items():
        what = f"{words}: under 10 % gain" + (" from fp16 at b=1" if framework == "e" else "")
        both = every([over[f"b_{framework}"] > 0.9, over[f"r_{framework}"] > 0.9])
        r.check(f"BERT and ResNet-50: {what}", both)


@claim("S4-fp16-gain-large")
def _fp16_gain_large(r: Results) -> None:
    series = _read_all(r)
    smallest = least(
        r.value(
            f"fp32_over_fp16_b128_{letter}_{framework}",
            series[f"{letter}32_{framework}"][7] / series[f"{letter}16_{framework}"][7],
        )
        for letter in "rb"
        for framework in FRAMEWORKS
    )
    r.check(
        "fp16 at least 1.3x faster at b=128 everywhere",
        smallest > 1.3,
        "fp16 is faster at batch 128 everywhere",
        smallest > 1,
    )


@claim("S4-knee-differs")
def _knee_differs(r: Results) -> None:
    knees = find_main_knees(r)
    for bits in ("32", "16"):
        about = f"BERT and ResNet-50 have different knees: fp{bits} eager"
        r.check(about, knees[f"b{bits}"] != knees[f"r{bits}"])


def find_gain(r: Results, model: str, runtime: str, dtype: str) -> Any:
    """What a framework cuts of eager's latency at batch 1, in %."""
    return cut(r.ms(model, "eager", dtype), r.ms(model, runtime, dtype))


def find_main_knees(r: Results) -> dict[str, Any]:
    """The knees of `MAIN` in eager, kept as values."""
    return {key: r.value(f"knee_{key}", knee(series)) for key, series in read_main(r).items()}


@claim("S4-time-per-mac")
def _time_per_mac(r: Results) -> None:
    figure, raw = r.of("Figure 4"), r.of("raw")
    gmacs = {
        model: raw.read("gmacs", model, "eager", "fp32", 128) for model in ("resnet50", "bert")
    }
    for bits in ("32", "16"):
        per_mac = {}
        for letter, model in (("r", "resnet50"), ("b", "bert")):
            latency = figure.ms(model, "eager", f"fp{bits}", 128)
            name = f"ms_per_gmac_{letter}{bits}"
            per_mac[letter] = r.value(name, latency / gmacs[model])
        ratio = r.value(f"ratio_fp{bits}", per_mac["r"] / per_mac["b"])
        about = f"time per MAC of BERT and ResNet-50: fp{bits} within 1.5x at b=128"
        r.check(about, spread(1, ratio) < 1.5)


@claim("S4.1-faster-at-b1")
def _faster_at_b1(r: Results) -> None:
    first = {
        framework: [series[key][0] for key in MAIN]
        for framework in FRAMEWORKS
        for series in [read_main(r, framework)]
    }
    for framework, short in (("t", "ts"), ("o", "ort")):
        for key, eager, other in zip(MAIN, first["e"], first[framework]):
            r.value(f"{short}_cut_{key}", cut(eager, other))
    for (_, words), *latencies in zip(list_main(), first["o"], first["t"], first["e"]):
        r.check(f"ORT < TorchScript < eager for {words}", rising(*latencies))


@claim(
    "S4.1-torchscript-other-gpus",
    "gpus",
    ("1080Ti", "2080Ti", "V100", "A6000", "A100", "3090", "TitanX"),
)
def _torchscript_other_gpus(r: Results) -> None:
    for dtype in ("fp16", "fp32"):
        gain = r.value(f"ts_cut_{dtype}", find_gain(r.of("raw"), "bert", "torchscript", dtype))
        r.check(f"TorchScript beats eager for BERT at b=1: {dtype}", gain > 0)


@claim("S4.1-avg-torchscript")
def _average_torchscript(r: Results) -> None:
    figure = r.of("Figure 4")
    cells = [("latency_ms", runtime, "fp16", 1) for runtime in ("eager", "torchscript")]
    vision = cuts(*r.of("raw").over(VISION, *cells))
    language = [find_gain(r.of("raw"), model, "torchscript", "fp16") for model in LANGUAGE]
    two = [find_gain(figure, model, "torchscript", "fp16") for model in ("bert", "resnet50")]
    both = r.value("bert_resnet50", mean(two))
    r.value("language_7", mean(language))
    place = LANGUAGE.index("longformer")
    six = mean(language[:place] + language[place + 1 :])
    r.value("language_6_without_longformer", six)
    r.value("vision_19", mean(vision))
    r.value("all_26", mean(language + vision))
    lead = "TorchScript's average gain is 34.16 %: "
    r.check(
        f"{lead}six language models of the RTX-8000 run, Longformer left out, within 0.1 point",
        within(six, 34.16, 0.1),
        "TorchScript gains on average over six language models",
        six > 0,
    )
    r.check(
        f"{lead}the two models of Figure 4 within 1 point",
        within(both, 34.16, 1),
        "TorchScript gains on average over the two models of Figure 4",
        both > 0,
    )


@claim("S4.1-avg-ort")
def _average_ort(r: Results) -> None:
    half, single = (
        [find_gain(r.of("Figure 4"), model, "onnxruntime", dtype) for model in ("bert", "resnet50")]
        for dtype in ("fp16", "fp32")
    )
    vision = [find_gain(r.of("raw"), model, "onnxruntime", "fp16") for model in _ORT_VISION]
    place = _ORT_VISION.index("efficientnet_lite")
    averages = [
        r.value("bert_resnet50_fp16", mean(half)),
        r.value("bert_resnet50_both_precisions", mean(half + single)),
    ]
    images = [
        r.value("vision_17_ort_csv", mean(vision)),
        r.value(
            "vision_16_without_efficientnet_lite", mean(vision[:place] + vision[place + 1 :])
        ),
    ]  # fmt: skip
    if r.is_paper:  # one of its image models is none of ours
        averages += images
    r.check(
        "the average gain over the two models of Figure 4 is 71.38 % within 0.1 point",
        either(within(average, 71.38, 0.1) for average in averages),
        "ONNX Runtime gains on average over the two models of Figure 4",
        every(average > 0 for average in averages[:2]),
    )


@claim("S4.1-converge-large")
def _converge_at_large(r: Results) -> None:
    series = _read_all(r)
    for key, (_, dtype, name) in MAIN.items():
        eager = series[f"{key}_e"]
        spreads = [spread(*three) for three in zip(*(series[f"{key}_{f}"] for f in FRAMEWORKS))]
        for batch, found in zip(POWERS[5:], spreads[5:]):
            r.value(f"spread_{key}_b{batch}", found)
        r.check(
            f"{name} in {dtype}: past eager's knee the slowest framework takes less than 1.2 times "
            "as long as the fastest",
            most(past(spreads, eager)) < 1.2,
        )


@claim("S4.1-cudagraphs-small")
def _graphs_at_small(r: Results) -> None:
    batches = POWERS[:4]
    eager, graph = (
        r.of("Figure 5").series("bert", runtime, "fp16", batches)
        for runtime in ("eager", "cuda-graph")
    )
    gains = [r.value(f"cut_b{batch}", gain) for batch, gain in zip(batches, cuts(eager, graph))]
    r.check(
        "CUDA graphs cut at least 40 % for b=1..8",
        least(gains) > 40,
        "CUDA graphs gain at batches 1 to 8",
        least(gains) > 0,
    )


@claim("S4.1-cudagraphs-large")
def _graphs_at_large(r: Results) -> None:
    eager, graph = (
        r.of("Figure 5").series("bert", runtime, "fp16") for runtime in ("eager", "cuda-graph")
    )
    over = r.value("graph_over_eager", ratios(graph, eager))
    large = past(over, eager)
    r.check(
        "CUDA graphs: large gain at b=1 (over half of the latency)",
        over[0] < 0.5,
        "CUDA graphs gain at batch 1",
        over[0] < 1,
    )
    r.check(
        "past eager's knee a CUDA graph gains less than 1 %",
        least(large) >= 0.99,
        "CUDA graphs gain less past eager's knee than at batch 1",
        over[0] < least(large),
    )


@claim("S4.1-nested-large")
def _nested_at_large(r: Results) -> None:
    series = read_figure5(r)
    nested, graph = series["nested"], series["cuda-graph"]
    dense = r.value("cut_vs_eager_dense_b128", cut(series["eager"][7], nested[7]))
    padded = r.value("cut_vs_eager_padded_b128", cut(series["padded"][7], nested[7]))
    r.value("cut_vs_graphs_b64", cut(graph[6], nested[6]))
    r.value("nested_faster_than_graphs_from_b", _find_first_faster(nested, graph))
    r.check(
        "nested tensors cut over 70 % at b=128, of dense and of padded eager",
        every([dense > 70, padded > 70]),
        "nested tensors are faster than eager at batch 128, on dense and on padded texts",
        every([dense > 0, padded > 0]),
    )
    faster = [one < other for one, other in zip(nested, graph)]
    r.check(
        "past eager's knee nested tensors are faster than CUDA graphs",
        every(past(faster, series["eager"])),
    )


@lacking
def _find_first_faster(latencies: Any, others: Any) -> Any:
    return POWERS[min(place for place in range(8) if latencies[place] < others[place])]


@claim("S4-knee-slower-framework")
def _slower_framework_knee(r: Results) -> None:
    knees = _find_knees(r)
    for key, words in list_main():
        sizes = [knees[f"{key}_{framework}"] for framework in FRAMEWORKS]
        r.check(f"no faster framework leaves the plateau later: {words}", falling_or_same(*sizes))


@claim("S4.1-gain-shrinks")
def _gain_shrinks(r: Results) -> None:
    series = _read_all(r)
    lead = "the gain is larger at b=1 than at b=128: "
    for framework, short in (("t", "ts"), ("o", "ort")):
        for key, words in list_main():
            gains = cuts(series[f"{key}_e"], series[f"{key}_{framework}"])
            first = r.value(f"{short}_cut_{key}_b1", gains[0])
            last = r.value(f"{short}_cut_{key}_b128", gains[7])
            r.check(f"{lead}{WORDS[framework]} {words}", first > last)


@claim("S4.1-resnet50-93.35")
def _resnet50_93(r: Results) -> None:
    found = []
    for bits in ("16", "32"):
        eager, *others = (r.ms("resnet50", name, f"fp{bits}") for name in TABLE_3)
        found += r.value(f"cuts_{bits}", [cut(eager, other) for other in others])
    r.check(
        "a framework cuts ResNet-50's latency by 93.35 % at batch 1, within 1 point",
        either(within(gain, 93.35, 1) for gain in found),
        "a framework is faster than eager for ResNet-50 at batch 1",
        most(found) > 0,
    )


@claim("S2-compilation-fewer-launches")
def _fewer_launches(r: Results) -> None:
    for column, words in (("kernels", "has fewer kernels"), ("device_mb", "takes less memory")):
        found = [r.read(column, "bert", name, "fp16") for name in TABLE_3]
        r.value(f"{column}_by_framework", found, counted=True)
        for place, name in ((1, "TorchScript"), (3, "ONNX Runtime")):
            r.check(f"{name} {words} than eager", found[place] < found[0])
