"""Claims of Sections 4.2, 5, 6 and of the appendices, about models: depth, width and work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ftax.paper.claims.arithmetic import (
    cut,
    either,
    every,
    falling_or_same,
    knee,
    least,
    most,
    plateau,
    ratios,
    rising,
    spearman,
    spread,
    within,
)
from ftax.paper.claims.claim import Results, claim
from ftax.paper.claims.frameworks import (
    LANGUAGE,
    MAIN,
    NO_PEAK_RATE,
    TABLE_3,
    VISION,
    WORDS,
    find_main_knees,
    read_figure5,
    read_main,
)
from ftax.paper.reference import select

OWN_NUMBERS = "it compares numbers of the paper with each other; there is nothing to measure"
_DTYPES = ("fp16", "fp32")
_RESNETS = ("resnet18", "resnet50", "resnet101", "resnet152")
# Eager and TorchScript of the paper's main run, in both dtypes.
_RUNS = {
    "e16": ("eager", "fp16"),
    "e32": ("eager", "fp32"),
    "t16": ("torchscript", "fp16"),
    "t32": ("torchscript", "fp32"),
}


def _list_runs() -> Iterator[tuple[str, str, str, str]]:
    """Each of `_RUNS`: its key, runtime, dtype and "eager fp16"."""
    for key, (runtime, dtype) in _RUNS.items():
        yield key, runtime, dtype, f"{WORDS[key[0]]} {dtype}"


@claim("S4.2.1-depth-distilbert")
def _halved_depth(r: Results) -> None:
    raw = r.of("raw")
    for key, runtime, dtype, words in _list_runs():
        ratio = raw.ms("distilbert", runtime, dtype) / raw.ms("bert", runtime, dtype)
        r.value(f"ratio_{key[0]}_{key[1:]}", ratio)
        r.check(
            f"{words}: DistilBERT under 0.6x BERT at b=1",
            ratio < 0.6,
            f"DistilBERT is faster than BERT at batch 1 ({words.replace(' ', ', ')})",
            ratio < 1,
        )


_DEPTH_CELLS = tuple(("latency_ms", *cell, 1) for cell in _RUNS.values())


def _check_depth(
    r: Results, more: dict[str, tuple[str, str, str, int]], at: str
) -> list[list[Any]]:
    """That latency rises with the depth of residual networks: in `_RUNS` and in more cells."""
    found = r.of("raw").over(_RESNETS, *_DEPTH_CELLS, *more.values())
    for name, latencies in zip([*(words for *_, words in _list_runs()), *more], found):
        about = f"latency of ResNets: {name} rises with depth{at}"
        r.check(about, falling_or_same(*latencies[::-1]))
    return found


@claim("S4.2.1-depth-both-regimes")
def _depth_in_both_regimes(r: Results) -> None:
    large = {f"eager {dtype} b=128": ("latency_ms", "eager", dtype, 128) for dtype in _DTYPES}
    found = _check_depth(r, large, "")
    r.value("b1_fp16", found[0])
    r.value("b128_fp16", found[4])


@claim("D-depth-vision")
def _depth_of_vision(r: Results) -> None:
    ort = {f"ONNX Runtime {dtype}": ("latency_ms", "onnxruntime", dtype, 1) for dtype in _DTYPES}
    found = _check_depth(r, ort, " at b=1")
    for name, place in (("eager", 1), ("torchscript", 3), ("ort", 5)):
        r.value(f"b1_{name}_fp32", found[place])


def _read_table1(r: Results, model: str, batch: int = 1, length: int = 128) -> Any:
    return r.of("Table 1").ms(model, "eager", "fp16", batch, length)


@claim("S4.2.1-width-table1")
def _width_in_table1(r: Results) -> None:
    wide = _read_table1(r, "bert-sa1536-fc6144")
    over = r.value("wide_over_base", wide / _read_table1(r, "bert-sa768-fc3072"))
    r.check("twice the width is less than 5 % slower at batch 1", over < 1.05)


@claim("S5-table1-batch")
def _batch_in_table1(r: Results) -> None:
    one, four = (_read_table1(r, "bert-sa768-fc3072", batch) for batch in (1, 4))
    over = r.value("ratio_b4_b1", four / one)
    r.value("throughput_gain", 4 * one / four)
    r.check("batch 4 is less than 5 % slower than batch 1", over < 1.05)


@claim("S5-table1-seq")
def _length_in_table1(r: Results) -> None:
    short, long = (_read_table1(r, "bert-sa768-fc3072", 1, length) for length in (128, 512))
    over = r.value("ratio_s512_s128", long / short)
    r.check("512 tokens are less than 5 % slower than 128", over < 1.05)


def _read_pairs(r: Results, model: str, other: str) -> Iterator[tuple[str, str, Any, Any]]:
    """In each of `_RUNS`, its key and words, and the series of both models over the batch."""
    raw = r.of("raw")
    for key, runtime, dtype, words in _list_runs():
        yield key, words, raw.series(model, runtime, dtype), raw.series(other, runtime, dtype)


@claim("S4.2.1-width-resnet")
def _width_of_resnet(r: Results) -> None:
    lead = "the wide ResNet-50 against ResNet-50 at b=1: "
    for key, words, wide, base in _read_pairs(r, "wide_resnet50_2", "resnet50"):
        over = r.value(f"wide_over_base_{key}", wide[0] / base[0])
        r.check(f"{lead}{words}: under 10 % slower", over < 1.1)


@claim("S4.2.1-wide-earlier-knee")
def _earlier_knee_of_wide(r: Results) -> None:
    for key, words, wide, base in _read_pairs(r, "wide_resnet50_2", "resnet50"):
        sizes = [r.value(f"knee_{key}_w", knee(wide)), r.value(f"knee_{key}_r", knee(base))]
        r.check(f"the wide ResNet-50 leaves the plateau earlier: {words}", sizes[0] < sizes[1])


@claim("S4.2.1-wide-steeper")
def _steeper_slope_of_wide(r: Results) -> None:
    for key, words, wide, base in _read_pairs(r, "wide_resnet50_2", "resnet50"):
        slopes = [
            r.value(f"ms_per_image_{key}_{name}", (series[7] - series[5]) / 96)
            for name, series in (("w", wide), ("r", base))
        ]
        about = f"the wide ResNet-50 takes longer for each further image: {words}"
        r.check(about, slopes[0] > slopes[1])


@claim("S4.2.1-fig6-bert-variants")
def _variants_of_bert(r: Results) -> None:
    narrow, base, wide, shallow, deep = (
        r.series(model, "eager", "fp16")
        for model in ("bert-12x384", "bert", "bert-1536", "bert-6x768", "bert-24x768")
    )
    plateaus = r.value(
        "plateau_spread_across_width", spread(plateau(narrow), plateau(base), plateau(wide))
    )
    knees = r.value("knees_by_width", [knee(narrow), knee(base), knee(wide)])
    depths = r.value("plateaus_ms_by_depth", [plateau(shallow), plateau(base), plateau(deep)])
    r.check(
        "the plateaus of BERT 384, 768 and 1536 wide are the same within 1.3 times",
        plateaus < 1.3,
    )
    earlier = every([falling_or_same(*knees), knees[0] > knees[2]])
    r.check("wider BERT leaves the plateau earlier", earlier)
    r.check("deeper BERT has a higher plateau", rising(*depths))


@claim("S4.2.2-funnel-macs")
def _work_of_funnel(r: Results) -> None:
    dtype = "fp32" if r.is_paper else "fp16"
    names = ("bert", "funnel_transformer", "funnel-base")
    bert, funnel, encoder = (r.of("raw").read("gmacs", name, "eager", dtype) for name in names)
    fewer = [r.value("fewer_pct", cut(bert, funnel), counted=True)]
    if not r.is_paper:
        less = cut(bert, encoder)
        fewer.append(r.value("fewer_pct_without_decoder", less, counted=True))
    r.check(
        "Funnel has 42 % fewer MACs than BERT within 1 point, with or without its decoder",
        either(within(share, 42, 1) for share in fewer),
        "Funnel has fewer MACs than BERT, with and without its decoder",
        least(fewer) > 0,
    )


@claim("S4.2.2-funnel-training")
def _training_of_funnel(r: Results) -> None:
    bert, funnel = (
        r.series(model, "eager", "fp32", (1, 32)) for model in ("bert train", "funnel train")
    )
    r.value("faster_pct_b1", 100 * (bert[0] / funnel[0] - 1))
    faster = r.value("faster_pct_b32", 100 * (bert[1] / funnel[1] - 1))
    r.check(
        "a training step of Funnel is 33 % faster than one of BERT at batch 32, within 5 points",
        within(faster, 33, 5),
        "a training step of Funnel is faster than one of BERT at batch 32",
        faster > 0,
    )


@claim("S4.2.2-funnel-small")
def _funnel_at_small(r: Results) -> None:
    for key, words, funnel, bert in _read_pairs(r, "funnel_transformer", "bert"):
        over = r.value(f"funnel_over_bert_b1_{key}", funnel[0] / bert[0])
        r.check(f"Funnel is slower than BERT at b=1: {words}", over > 1)


@claim("S4.2.2-funnel-large")
def _funnel_at_large(r: Results) -> None:
    for key, words, funnel, bert in _read_pairs(r, "funnel_transformer", "bert"):
        r.value(f"funnel_over_bert_b128_{key}", funnel[7] / bert[7])
        slower = every(ratio > 1 for ratio in ratios(funnel, bert))
        r.check(f"Funnel against BERT: {words}: slower at every batch", slower)


@claim("S4.2.3-efficient-slower-small")
def _efficient_at_small(r: Results) -> None:
    lead = "MobileBERT and SqueezeBERT are slower than BERT: "
    places = [(key, words, runtime, dtype, r) for key, runtime, dtype, words in _list_runs()]
    if r.is_paper:  # the device of Figure 1
        places.append(("2080ti", "eager fp32", "eager", "fp32", r.on("2080Ti")))
    for key, words, runtime, dtype, results in places:
        raw = results.of("raw")
        bert = raw.ms("bert", runtime, dtype)
        over = [
            r.value(f"{name}_over_bert_b1_{key}", raw.ms(f"{name}_bert", runtime, dtype) / bert)
            for name in ("mobile", "squeeze")
        ]
        r.check(f"{lead}{words}", least(over) > 1)


@claim("S4.2.3-efficient-faster-large")
def _efficient_at_large(r: Results) -> None:
    raw = r.of("raw")
    for key, runtime, dtype, words in _list_runs():
        bert = raw.ms("bert", runtime, dtype, 128)
        for name, model in (("mobile", "MobileBERT"), ("squeeze", "SqueezeBERT")):
            latency = raw.ms(f"{name}_bert", runtime, dtype, 128)
            over = r.value(f"{name}_over_bert_b128_{key}", latency / bert)
            r.check(f"faster than BERT at b=128: {model} {words}", over < 1)


@claim("S4.2.3-worse-flop-rate")
def _rate_of_efficient(r: Results) -> None:
    raw = r.of("raw")
    for bits in ("16", "32"):
        rates = {}
        for name, model in (
            ("bert", "bert"),
            ("mobile", "mobile_bert"),
            ("squeeze", "squeeze_bert"),
        ):
            work = raw.read("gmacs", model, "eager", "fp32", 128)
            rate = work / raw.ms(model, "eager", f"fp{bits}", 128)
            rates[name] = r.value(f"tmacs_per_s_{name}_{bits}", rate)
        about = f"MobileBERT and SqueezeBERT do fewer MACs a second: eager fp{bits} b=128"
        r.check(about, most([rates["mobile"], rates["squeeze"]]) < rates["bert"])


@claim("S4.2.3-efficient-deeper")
def _depth_of_efficient(r: Results) -> None:
    raw = r.of("raw")
    for name, model in (("mobile", "MobileBERT"), ("squeeze", "SqueezeBERT")):
        calls, latency = (
            raw.read(column, f"{name}_bert", "eager", "fp16")
            / raw.read(column, "bert", "eager", "fp16")
            for column in ("modules", "latency_ms")
        )
        r.value(f"module_calls_{name}_over_bert", calls, counted=True)
        r.value(f"latency_{name}_over_bert", latency)
        r.check(
            f"{model} makes over twice the module calls",
            calls > 2,
            f"{model} makes more module calls than BERT",
            calls > 1,
        )


@claim("S5-fnet")
def _fnet(r: Results) -> None:
    for dtype in ("fp16", "fp32"):
        faster = cut(r.ms("bert", "onnxruntime", dtype), r.ms("fnet", "eager", dtype))
        r.value(f"cut_{dtype}", faster)
        r.check(
            f"in {dtype} FNet in eager is 10.31 % faster than BERT in ONNX Runtime, within 1 point",
            within(faster, 10.31, 1),
            f"in {dtype} FNet in eager is faster than BERT in ONNX Runtime",
            faster > 0,
        )


@claim("S5-fft-unsupported")
def _fft(r: Results) -> None:
    runs = [r.read("runs", "fnet", runtime, "fp32") for runtime in TABLE_3]
    r.value("runs_by_framework", runs, counted=True)
    r.check("TorchScript does not run FNet", runs[1] == 0)
    r.check("ONNX Runtime does not run FNet", runs[3] == 0)


@claim("S5-nested-80.56")
def _nested_80(r: Results) -> None:
    series = {name: latencies[0] for name, latencies in read_figure5(r, (128,)).items()}
    nested = series["nested"]
    lead = "nested tensors cut 80.56 % at b=128 within 0.05 point: against "
    graphs = r.value("cut_vs_cuda_graphs", cut(series["cuda-graph"], nested))
    padded = r.value("cut_vs_padded_eager", cut(series["padded"], nested))
    r.value("cut_vs_dense_eager", cut(series["eager"], nested))
    r.check(
        f"{lead}CUDA graphs as stated",
        within(graphs, 80.56, 0.05),
        "nested tensors are faster than CUDA graphs at batch 128",
        graphs > 0,
    )
    r.check(
        f"{lead}padded eager PyTorch",
        within(padded, 80.56, 0.05),
        "nested tensors are faster than padded eager at batch 128",
        padded > 0,
    )


@claim("S5-over16-converge-models")
def _models_over_16(r: Results) -> None:
    names = ("bert", "distilbert", "funnel_transformer", "mobile_bert", "squeeze_bert")
    cells = [("latency_ms", "eager", dtype, batch) for dtype in _DTYPES for batch in (32, 64, 128)]
    for (*_, dtype, batch), latencies in zip(cells, r.of("raw").over(names, *cells)):
        found = r.value(f"spread_{dtype}_b{batch}", spread(*latencies))
        about = f"over the models: {dtype} b={batch}: slowest over fastest below 1.3"
        r.check(about, found < 1.3)


@claim("S5-over16-converge-frameworks")
def _frameworks_over_16(r: Results) -> None:
    last = {framework: read_main(r, framework) for framework in WORDS}
    three = {key: [last[framework][key][7] for framework in WORDS] for key in MAIN}
    spreads = {key: r.value(f"spread_{key}_b128", spread(*three[key])) for key in MAIN}
    graphs = spread(*three["b16"], r.of("Figure 5").ms("bert", "cuda-graph", "fp16", 128))
    r.value("spread_b16_with_graphs_b128", graphs)
    lead = "slowest framework over fastest: "
    bert = most([spreads["b32"], spreads["b16"], graphs])
    r.check(f"{lead}BERT: below 1.3 at b=128", bert < 1.3)
    for key in ("r32", "r16"):
        r.check(f"{lead}ResNet-50 fp{key[1:]}: below 1.3 at b=128", spreads[key] < 1.3)


@claim("S5-inverted-residual-per-flop")
def _inverted_residuals(r: Results) -> None:
    raw = r.of("raw")
    models = ("resnet50", "mobilenet_v2", "mnasnet", "efficientnet_lite")
    macs = [raw.read("gmacs", model, "eager", "fp16", 128) for model in models]
    smallest = []
    for dtype in ("fp16", "fp32"):
        latencies = [raw.ms(model, "eager", dtype, 128) for model in models]
        per_mac = r.value(f"ms_per_gmac_{dtype}", ratios(latencies, macs))
        factor = least(per_mac[1:]) / per_mac[0]
        smallest.append(r.value(f"min_factor_{dtype}", factor))
    r.check(
        "inverted residuals take at least twice ResNet-50 per MAC at b=128",
        every(factor > 2 for factor in smallest),
        "each takes longer per MAC than ResNet-50 at batch 128",
        every(factor > 1 for factor in smallest),
    )


def _correlate(r: Results, *columns: str) -> dict[str, list[Any]]:
    """Over language models, and over all: rank correlations of columns with the latency at batch
    1 in fp16 in eager."""
    cells = [(column, "eager", "fp16", 1) for column in ("latency_ms", *columns)]
    found = {}
    for name, models in (("language", LANGUAGE), ("all", LANGUAGE + VISION)):
        latencies, *others = r.of("raw").over(models, *cells)
        found[name] = [spearman(other, latencies) for other in others]
    return found


@claim("S5-depth-proxy")
def _depth_as_proxy(r: Results) -> None:
    found = _correlate(r, "modules", "gmacs")
    for place, column in enumerate(("calls", "macs")):
        for name, rhos in found.items():
            r.value(f"rho_{column}_{name}", rhos[place])
    sets = (("all", "26 models"), ("language", "7 language models"))
    for name, words in sets:
        r.check(
            f"module-call count tracks b=1 latency over {words}",
            found[name][0] > 0.7,
            f"latency tends to rise with module calls over the {words}",
            found[name][0] > 0,
        )
    for name, words in sets:
        r.check(f"better than MACs over {words}", found[name][0] > found[name][1])


@claim("S5-flops-poor-small")
def _macs_at_small(r: Results) -> None:
    found = _correlate(r, "gmacs")
    lead = "MACs predict the latency at b=1 poorly (rank correlation under 0.5): "
    for name, words in (("language", "7 language models"), ("all", "26 models")):
        rho = r.value(f"rho_macs_{name}", found[name][0])
        r.check(f"{lead}{words}", rho < 0.5)


@claim("S5-flops-poor-large")
def _macs_at_large(r: Results) -> None:
    models = (
        "bert", "distilbert", "funnel_transformer", "albert", "mobile_bert", "squeeze_bert",
        "resnet18", "resnet50", "resnet152", "vit32", "mobilenet_v2", "mnasnet",
    )  # fmt: skip
    cells = [(column, "eager", "fp32", 128) for column in ("latency_ms", "gmacs")]
    latencies, macs = r.of("raw").over(models, *cells)
    rho = r.value("rho", spearman(macs, latencies))
    apart = r.value("ms_per_gmac_spread", spread(*ratios(latencies, macs)))
    r.check("at b=128: time per MAC differs by over 2x between models", apart > 2)
    r.check("at b=128: weak rank correlation at b=128", rho < 0.7)


@claim("S5-peak-2.75x", "paper", reason=NO_PEAK_RATE)
def _peak_rates(r: Results) -> None:
    ratio = r.value("ratio_a_v", r.read_speed("A100") / r.read_speed("V100"))
    r.check("within 0.02", within(ratio, 2.75, 0.02))


@claim("S6-bert-less-bound")
def _bert_is_less_bound(r: Results) -> None:
    knees = find_main_knees(r)
    for bits in ("32", "16"):
        about = f"BERT leaves the plateau before ResNet-50: fp{bits} eager"
        r.check(about, knees[f"b{bits}"] < knees[f"r{bits}"])


def _read_table3(r: Results, column: str) -> list[Any]:
    table = r.of("Table 3")
    return [table.read(column, "bert", runtime, "fp16") for runtime in TABLE_3]


@claim("B-latency-order")
def _order_of_latencies(r: Results) -> None:
    eager, script, graph, ort, ort_graph = _read_table3(r, "latency_ms")
    r.value("cut_vs_eager", [cut(eager, other) for other in (script, graph, ort, ort_graph)])
    lead = "for BERT at b=1: "
    r.check(
        f"{lead}compiled faster than eager, ahead-of-time faster than just-in-time",
        rising(ort, script, eager),
    )
    r.check(f"{lead}serialised faster than not", every([graph < eager, ort_graph < ort]))


@claim("B-utilisation-rises")
def _utilisation_rises(r: Results) -> None:
    lead = "active SMs and occupancy for BERT at b=1: "
    both = [
        r.value(name, _read_table3(r, column), counted=True)
        for name, column in (("sms", "sms_active_pct"), ("warps", "warp_occupancy_pct"))
    ]
    compiled = every(rising(eager, script, ort) for eager, script, _, ort, _ in both)
    r.check(f"{lead}compilation raises both", compiled)
    serialised = [
        pair for eager, _, graph, ort, last in both for pair in (eager < graph, ort < last)
    ]
    r.check(f"{lead}serialisation raises both", every(serialised))


@claim("B-suboptimal")
def _utilisation_is_low(r: Results) -> None:
    largest = [
        r.value(name, most(_read_table3(r, column)), counted=True)
        for name, column in (("max_sms", "sms_active_pct"), ("max_warps", "warp_occupancy_pct"))
    ]
    about = "active SMs and occupancy are below 100 % everywhere"
    r.check(about, every(share < 100 for share in largest))


def _read_gpt2(r: Results) -> tuple[list[Any], list[Any]]:
    figure = r.of("Figure 10")
    eager, script = (figure.series("gpt2", name, "fp16") for name in ("eager", "torchscript"))
    return eager, script


@claim("C-gpt2-bound")
def _gpt2_is_bound(r: Results) -> None:
    eager, script = _read_gpt2(r)
    for name, words, series in (("eager", "eager", eager), ("torchscript", "TorchScript", script)):
        size = r.value(f"knee_{name}", knee(series))
        r.check(
            f"GPT-2 generating: {words} plateau",
            size >= 8,
            f"{words} is flat up to batch 2",
            size >= 2,
        )
    r.value("eager_b128_over_b1", eager[7] / eager[0])
    leaves = every(series[7] > 1.5 * series[0] for series in (eager, script))
    r.check("GPT-2 generating: leaves the plateau by b=128", leaves)


@claim("C-gpt2-torchscript")
def _gpt2_in_torchscript(r: Results) -> None:
    eager, script = _read_gpt2(r)
    first = r.value("cut_b1", cut(eager[0], script[0]))
    last = r.value("cut_b128", cut(eager[7], script[7]))
    r.check("TorchScript for GPT-2: faster at b=1", first > 0)
    r.check("TorchScript for GPT-2: smaller gain at b=128", last < first)


@claim("D-low-flop-more-bound")
def _low_work_is_more_bound(r: Results) -> None:
    raw = r.of("raw")
    names = {
        "shuffle": ("shufflenet", "ShuffleNet"),
        "squeeze": ("squeezenet", "SqueezeNet"),
        "efflite": ("efficientnet_lite", "EfficientNet-Lite"),
        "mnas": ("mnasnet", "MnasNet"),
    }
    for bits in ("16", "32"):
        base = r.value(f"knee_r50_{bits}", knee(raw.series("resnet50", "eager", f"fp{bits}")))
        for key, (model, words) in names.items():
            size = r.value(f"knee_{key}_{bits}", knee(raw.series(model, "eager", f"fp{bits}")))
            r.check(f"leaves the plateau after ResNet-50: {words} fp{bits}", size > base)


@claim("E-wavlm-bound")
def _wavlm_is_bound(r: Results) -> None:
    figure = r.of("Figure 13")
    for key, runtime, dtype, words in _list_runs():
        first, second = figure.series("wavlm", runtime, dtype, (1, 2))
        over = r.value(f"b2_over_b1_{key}", second / first)
        r.check(f"WavLM: {words}: doubling the batch costs under 30 %", over < 1.3)


@claim("E-wavlm-earlier")
def _wavlm_is_earlier(r: Results) -> None:
    for bits in ("16", "32"):
        size, bert = (
            r.value(
                f"knee_{model}_fp{bits}", knee(r.of(figure).series(model, "eager", f"fp{bits}"))
            )
            for model, figure in (("wavlm", "Figure 13"), ("bert", "Figure 4"))
        )
        r.check(f"WavLM leaves the plateau before BERT: fp{bits} eager", size < bert)


@claim("E-wavlm-input")
def _wavlm_input(r: Results) -> None:
    samples = r.of("Figure 13").read("samples", "wavlm", "eager", "fp16")
    r.value("samples", samples, counted=True)
    r.check("samples are 2 x 16000", samples == 2 * 16000)


@claim("S4-smaller-models-more-bound")
def _smaller_is_more_bound(r: Results) -> None:
    raw = r.of("raw")
    names = {
        "r18": "resnet18", "r50": "resnet50", "r101": "resnet101", "r152": "resnet152",
        "db": "distilbert", "b": "bert",
    }  # fmt: skip
    knees = {
        f"{key}_{bits}": r.value(
            f"knee_{key}_{bits}", knee(raw.series(model, "eager", f"fp{bits}"))
        )
        for key, model in names.items()
        for bits in ("16", "32")
    }
    for bits in ("16", "32"):
        sizes = [knees[f"{key}_{bits}"] for key in ("r18", "r50", "r101", "r152")]
        about = f"ResNet family fp{bits}: knee does not grow with depth"
        r.check(about, falling_or_same(*sizes))
    for bits in ("16", "32"):
        about = f"DistilBERT at least BERT, fp{bits}"
        r.check(about, knees[f"db_{bits}"] >= knees[f"b_{bits}"])


@claim("S5-fnet-implied", "paper", reason=OWN_NUMBERS)
def _implied_fnet(r: Results) -> None:
    no_faster = []
    for dtype in ("fp16", "fp32"):
        bert = r.of("Figure 4").ms("bert", "onnxruntime", dtype)
        implied = r.value(f"implied_fnet_ms_{dtype}", bert * (1 - 0.1031))
        distilbert = r.of("raw").ms("distilbert", "eager", dtype)
        no_faster.append(implied >= r.value(f"distilbert_eager_ms_{dtype}", distilbert))
    about = "implied 12-layer FNet no faster than 6-layer DistilBERT in eager mode"
    r.check(about, either(no_faster))


@claim("S5-table1-other-cells", "paper", reason=OWN_NUMBERS)
def _other_cells_of_table1(r: Results) -> None:
    table1 = _read_table1(r, "bert-sa768-fc3072")
    half, single = (r.of("Figure 4").ms("bert", "eager", dtype) for dtype in ("fp16", "fp32"))
    figure3 = r.of("Figure 3").ms("bert", "eager", "fp16")
    draft = r.of("Figure 5 draft").ms("bert", "padded", "fp16")
    for name, other in (
        ("figure4_fp16", half), ("figure4_fp32", single), ("figure3", figure3),
        ("figure5_draft", draft),
    ):  # fmt: skip
        r.value(f"over_{name}", table1 / other)
    table3 = r.of("Table 3").ms("bert", "eager", "fp16")
    apart = spread(table1, half, single, figure3, table3, draft)
    r.value("largest_over_smallest", apart)
    r.check("all reported b=1 eager BERT latencies on the RTX-8000 within 1.3x", apart < 1.3)


@claim("B-table3-vs-figures", "paper", reason=OWN_NUMBERS)
def _table3_and_figures(r: Results) -> None:
    figure = r.of("Figure 4")
    (last,) = select(source="JaredFern/Framework-Tax@5284969:onnx/onnx_results/"
                     "pretrained-onnx-fp16.csv", batch=1)  # fmt: skip
    others = [
        figure.ms("bert", "eager", "fp16"),
        figure.ms("bert", "torchscript", "fp16"),
        r.of("Figure 5").ms("bert", "cuda-graph", "fp16"),
        figure.ms("bert", "onnxruntime", "fp16"),
        last.latency_ms,
    ]
    apart = [abs(one - other) for one, other in zip(_read_table3(r, "latency_ms"), others)]
    r.value("diffs_ms", apart)
    r.check("all five within 0.011 ms", most(apart) < 0.011)


@claim("X-repeat-3090", "paper", reason=OWN_NUMBERS)
def _repeats_on_3090(r: Results) -> None:
    for batch in (1, 64):
        latencies = [
            row.latency_ms
            for number in (1, 2)
            for row in select(
                model="bert",
                device="3090",
                dtype="fp16",
                batch=batch,
                note_has=f"run={number} of 2",
            )
        ]
        apart = r.value(f"spread_b{batch}", spread(*latencies))
        r.check(f"b={batch} within 1.2x", apart < 1.2)


@claim("X-repeat-1014", "paper", reason=OWN_NUMBERS)
def _repeats_of_1014(r: Results) -> None:
    for name, device in (("rtx8000", "RTX-8000"), ("v100", "V100")):
        for dtype in ("fp16", "fp32"):
            first = find_run_1014(device, dtype)
            second = r.of("raw").on(device).ms("bert", "eager", dtype)
            apart = r.value(f"spread_{name}_{dtype}", spread(first, second))
            r.check(f"{device} {dtype} within 1.2x", apart < 1.2)


def find_run_1014(device: str, dtype: str) -> float:
    """Eager BERT at batch 1 in the paper's earlier run, ms."""
    (row,) = (
        row
        for row in select(
            model="bert", framework="pytorch-eager", device=device, dtype=dtype, batch=1
        )
        if "2022_1014" in row.source
    )
    return float(row.latency_ms or 0.0)


@claim("X-seq-panel-batch", "paper", reason=OWN_NUMBERS)
def _batch_of_length_panel(r: Results) -> None:
    figure, panel = r.of("Figure 4"), r.of("Figure 4 over length")
    large, small = [], []
    for letter, runtime in (("e", "eager"), ("t", "torchscript"), ("o", "onnxruntime")):
        last = panel.ms("bert", runtime, "fp16", 128)
        over = [last / figure.ms("bert", runtime, "fp16", batch) for batch in (128, 1)]
        large.append(r.value(f"over_b128_{letter}", over[0]))
        small.append(r.value(f"over_b1_{letter}", over[1]))
    r.check(
        "its last point is within 15 % of the batch-128 length-128 cell",
        every(within(ratio, 1, 0.15) for ratio in large),
    )
    r.check("and over 5x the batch-1 length-128 cell", least(small) > 5)
