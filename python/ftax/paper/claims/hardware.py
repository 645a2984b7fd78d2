"""Claims of Sections 4.3 and 5 about GPUs: plateaus on each, and what their speed changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ftax.paper.claims.arithmetic import every, knee, least, most, spearman, spread
from ftax.paper.claims.claim import Results, claim
from ftax.paper.claims.frameworks import MAIN, list_main
from ftax.paper.claims.models import find_run_1014
from ftax.paper.reference import PAPER_GPUS

_OLDER = ("1080Ti", "V100", "2080Ti", "RTX-8000")  # before Ampere
_OTHERS = tuple(gpu for gpu in PAPER_GPUS if gpu != "1080Ti")


def _read_series(r: Results, gpu: str, key: str) -> list[Any]:
    """Figure 9: one model and dtype of `MAIN` in eager over the batch, on a GPU."""
    model, dtype, _ = MAIN[key]
    return r.of("Figure 9").on(gpu).series(model, "eager", dtype)


def _find_knees(r: Results, gpus: tuple[str, ...], key: str) -> list[Any]:
    return [knee(_read_series(r, gpu, key)) for gpu in gpus]


@claim("S4.3-bound-on-all-gpus", "gpus", PAPER_GPUS)
def _bound_on_all_gpus(r: Results) -> None:
    for key, words in list_main():
        model, dtype, _ = MAIN[key]
        size = r.value(f"knee_{key}", knee(r.of("Figure 9").series(model, "eager", dtype)))
        r.check(f"flat up to batch 2: {words}", size >= 2)


@claim("S4.2.2-funnel-large-other-gpus", "gpus", ("1080Ti", "2080Ti", "3090", "A6000"))
def _funnel_on_other_gpus(r: Results) -> None:
    raw = r.of("raw")
    # Of the 2080Ti and the A6000 the paper has batches up to 64.
    batch = 64 if r.is_paper and r.device in ("2080Ti", "A6000") else 128
    funnel, bert = (raw.ms(name, "eager", "fp32", batch) for name in ("funnel_transformer", "bert"))
    over = r.value("funnel_over_bert", funnel / bert)
    r.check("Funnel is slower than BERT at large batch", over > 1)


@claim("S4.3-knee-newer-larger", "named", (*_OLDER, "3090", "A100"))
def _knee_of_newer(r: Results) -> None:
    for key, words in list_main():
        older = r.value(f"knee_{key}_older", most(_find_knees(r, _OLDER, key)))
        for gpu, name in (("3090", "g3090"), ("A100", "a100")):
            (size,) = _find_knees(r, (gpu,), key)
            r.value(f"knee_{key}_{name}", size)
            about = f"{gpu} {words}: knee at least that of every pre-Ampere GPU"
            r.check(about, size >= older)


@claim("S4.3-1080ti-slower", "named", PAPER_GPUS)
def _slowest_is_1080ti(r: Results) -> None:
    smaller = {}
    for key, words in list_main():
        own = _read_series(r, "1080Ti", key)
        others = [_read_series(r, gpu, key) for gpu in _OTHERS]
        slowest = most(series[6] for series in others) / own[6]
        r.value(f"slowest_other_over_1080ti_{key}", slowest)
        r.check(f"{words}: slowest at b=64", slowest < 1)
        size = r.value(f"knee_{key}_1080", knee(own))
        smallest = r.value(f"min_other_knee_{key}", least(map(knee, others)))
        smaller[f"{words}: smallest knee (ties allowed)"] = size <= smallest
    for about, is_smaller in smaller.items():
        r.check(about, is_smaller)


@claim("S4.3-1080ti-bert-not-bound", "named", ("1080Ti", "3090"))
def _bert_on_1080ti(r: Results) -> None:
    for bits in ("16", "32"):
        first, second, *_ = _read_series(r, "1080Ti", f"b{bits}")
        r.value(f"b2_over_b1_1080ti_fp{bits}", second / first)
    knees = {
        gpu: [
            r.value(f"knee_{gpu.lower()}_fp{bits}", knee(_read_series(r, gpu, f"b{bits}")))
            for bits in ("16", "32")
        ]
        for gpu in ("1080Ti", "3090")
    }
    r.check("no plateau on the 1080Ti", every(size < 2 for size in knees["1080Ti"]))
    r.check("plateau on the 3090", every(size >= 4 for size in knees["3090"]))


def _correlate(r: Results, key: str, read: Callable[[list[Any]], Any]) -> Any:
    """The rank correlation of peak rates with what is read of each GPU's series."""
    speeds = [r.read_speed(gpu) for gpu in r.gpus]
    return spearman(speeds, [read(_read_series(r, gpu, key)) for gpu in r.gpus])


@claim("S4.3-gpu-speed-matters-only-large", "trend", PAPER_GPUS)
def _speed_matters_at_large(r: Results) -> None:
    weaker = {}
    for key, words in list_main():
        small = r.value(f"rho_b1_{key}", _correlate(r, key, lambda series: series[0]))
        large = r.value(f"rho_b64_{key}", _correlate(r, key, lambda series: series[6]))
        r.check(
            f"{words}: b=64 latency falls with peak TFLOPS",
            large <= -0.7,
            f"{words.replace(' fp', ' in fp')}: faster GPUs tend to be faster at batch 64",
            large < 0,
        )
        weaker[f"{words}: weaker at b=1"] = abs(small) < abs(large)
    for about, is_weaker in weaker.items():
        r.check(about, is_weaker)


@claim("S4.3-prominence-trend", "trend", PAPER_GPUS)
def _prominence_grows(r: Results) -> None:
    for key, words in list_main():
        rho = r.value(f"rho_tflops_knee_{key}", _correlate(r, key, knee))
        r.check(
            f"{words}: knee rises with peak TFLOPS",
            rho > 0.5,
            f"{words.replace(' fp', ' in fp')}: faster GPUs tend to a later knee",
            rho > 0,
        )


@claim("S4.3-host-sets-plateau", "named", ("1080Ti", "2080Ti", "A6000", "RTX-8000"))
def _host_sets_plateau(r: Results) -> None:
    for cpu, one, other in (("E5-2630", "RTX-8000", "2080Ti"), ("Silver 4110", "A6000", "1080Ti")):
        for bits in ("16", "32"):
            first, second = (_read_series(r, gpu, f"b{bits}")[0] for gpu in (one, other))
            names = [gpu.lower().replace("-", "") for gpu in (one, other)]
            apart = r.value(f"{names[0]}_vs_{names[1]}_bert_fp{bits}", spread(first, second))
            r.check(f"same CPU model ({cpu}) BERT fp{bits}", apart < 1.25)


@claim("S5-a100-slower-bert", "named", ("A100", "V100"))
def _a100_is_slower(r: Results) -> None:
    figure = r.of("Figure 9")
    for name, model, words in (("bert", "bert", "BERT"), ("resnet50", "resnet50", "ResNet-50")):
        for dtype in ("fp16", "fp32"):
            one, other = (figure.on(gpu).ms(model, "eager", dtype) for gpu in ("A100", "V100"))
            over = r.value(f"{name}_{dtype}", one / other)
            if r.is_paper and name == "bert":
                again = one / find_run_1014("V100", dtype)
                r.value(f"{name}_{dtype}_against_other_v100_run", again)
            r.check(f"{words} {dtype}", over > 1)
