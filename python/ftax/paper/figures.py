"""Figures 1 to 13 as declarations: in each plot what is measured, and what the paper printed.

Each figure is drawn in both dtypes, the paper's numbers in the one that it used. Figure 2 is a
sketch in the paper; here it is drawn from a measurement. Figure 4 over the length is drawn at the
largest batch measured: the paper does not state its batch, but its end point says 128.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ftax.paper.reference import BASELINE_GPU, PAPER_GPUS, PAPER_RUNTIMES, raw_run
from ftax.paper.sheet import Line, Plot, Printed
from ftax.paper.study_setting import SOUND_LENGTH, TEXT_LENGTH

_BOTH = ("fp16", "fp32")
_FRAMEWORKS = ("eager", "torchscript", "onnxruntime")

# The zoo's names, and the paper's.
_MAIN = (  # with their titles and lengths
    ("bert-base", "bert", "BERT", TEXT_LENGTH),
    ("resnet-50", "resnet50", "ResNet-50", None),
)
_FAMILY = {
    "bert-base": "bert",
    "distilbert": "distilbert",
    "funnel": "funnel_transformer",
    "albert": "albert",
    "mobilebert": "mobile_bert",
    "squeezebert": "squeeze_bert",
}
_EFFICIENT = {name: _FAMILY[name] for name in _FAMILY if name not in ("funnel", "albert")}
_DEPTHS = {
    "resnet-18": "resnet18",
    "resnet-50": "resnet50",
    "resnet-101": "resnet101",
    "resnet-152": "resnet152",
    "wide-resnet-50-2": "wide_resnet50_2",
}
_SMALL = {
    "resnet-50": "resnet50",
    "shufflenet-v2": "shufflenet",
    "squeezenet": "squeezenet",
    "mnasnet": "mnasnet",
    "efficientnet-lite1": "efficientnet_lite",
}


def make_fig1() -> tuple[Plot, ...]:
    """Latency against multiply-accumulates; the paper's were taken in fp32 on a 2080Ti."""
    pairs = [
        _pair(name, name, _where(1, model=paper), length=TEXT_LENGTH, source="2080Ti")
        for name, paper in _FAMILY.items()
    ]
    return tuple(
        _plot(dtype, dtype, pairs, printed_in="fp32", over="gmacs", scale="linear")
        for dtype in ("fp32", "fp16")
    )


def make_fig2() -> tuple[Plot, ...]:
    """Latency over the batch, split into what the device does and what it waits for."""
    eager = _pair("eager", "bert-base", length=TEXT_LENGTH)
    return tuple(_plot(f"BERT, eager, {dtype}", dtype, [eager], shows="split") for dtype in _BOTH)


def make_fig3() -> tuple[Plot, ...]:
    """Latency and the device's busy time, and the share that is left; the paper: fp16."""
    eager = _pair("eager", "bert-base", _where(3), length=TEXT_LENGTH)
    return tuple(
        _plot(f"BERT, {dtype}: {what}", dtype, [eager], printed_in="fp16", shows=shows)
        for dtype in _BOTH
        for shows, what in (("split", "latency"), ("share", "overhead share"))
    )


def make_fig4() -> tuple[Plot, ...]:
    """BERT and ResNet-50 in three frameworks, over the batch and over the length."""
    plots = []
    for model, paper, title, length in _MAIN:
        for dtype in _BOTH:
            where = {"note_has": "batch panel", "model": paper, "dtype": dtype}
            pairs = [
                _pair(name, model, _where(4, name, **where), runtime=name, length=length)
                for name in _FRAMEWORKS
            ]
            plots.append(_plot(f"{title}, {dtype}", dtype, pairs))
    where = {"note_has": "sequence-length panel"}
    pairs = [
        _pair(name, "bert-base", _where(4, name, **where), runtime=name) for name in _FRAMEWORKS
    ]
    for dtype in _BOTH:
        title = f"BERT, {dtype}, largest batch"
        plots.append(_plot(title, dtype, pairs, printed_in="fp16", over="sequence"))
    return tuple(plots)


def make_fig5() -> tuple[Plot, ...]:
    """BERT with CUDA graphs on dense texts, and with nested tensors on texts of natural lengths.

    The paper sets both beside eager on dense texts; ours adds eager on the padded ones, which is
    what nested tensors save on. The paper's draft of the figure has that line too.
    """
    where = {"figure": "Figure 5 draft", "framework": PAPER_RUNTIMES["eager/python"]}
    draft = Printed(label="eager, padded", style="padded", where=where)
    pairs = [
        _pair(label, "bert-base", where, style=name, runtime=name, length=TEXT_LENGTH)
        for name, label, where in (
            ("eager", "eager", _where(5, "eager", input="128")),
            ("cuda-graph", "CUDA graph", _where(5, "cuda-graph", input="128")),
            ("padded", "eager, padded", None),
            ("nested", "nested tensors, padded", _where(5, "nested", input="128-padded")),
        )
    ]
    return tuple(
        _plot(f"BERT, {dtype}", dtype, pairs, also=[draft], printed_in="fp16") for dtype in _BOTH
    )


def make_fig6() -> tuple[Plot, ...]:
    """BERT scaled in depth and in width. The paper's measurements of it were not published."""
    return tuple(
        _plot(
            f"{title}, eager, {dtype}",
            dtype,
            [_pair(name, name, length=TEXT_LENGTH) for name in names],
        )
        for dtype in _BOTH
        for title, names in (
            ("layers", ("bert-6x768", "bert-base", "bert-24x768")),
            ("width", ("bert-12x384", "bert-base", "bert-1536")),
        )
    )


def make_fig7() -> tuple[Plot, ...]:
    """BERT and Funnel Transformer; the paper drew fp32, batches 1 to 8. Its text gives Funnel the
    work of the form without a decoder, which it did not measure and which is drawn too."""
    models = {"bert-base": "bert", "funnel": "funnel_transformer", "funnel-base": None}
    return tuple(_plot_models(dtype, models, length=TEXT_LENGTH) for dtype in ("fp32", "fp16"))


def make_fig8() -> tuple[Plot, ...]:
    """BERT and its efficient variants."""
    return tuple(_plot_models(dtype, _EFFICIENT, length=TEXT_LENGTH) for dtype in _BOTH)


def make_fig9() -> tuple[Plot, ...]:
    """BERT and ResNet-50 in eager over the batch."""
    plots = []
    for model, paper, title, length in _MAIN:
        for dtype in _BOTH:
            line, _ = _pair("this machine", model, style="here", length=length)
            pair = (replace(line, is_machine=True), None)
            where = _where(9, model=paper, dtype=dtype)
            printed = [
                Printed(label=gpu, style=gpu, where={**where, "device": gpu}, source=gpu)
                for gpu in PAPER_GPUS
            ]
            plots.append(_plot(f"{title}, eager, {dtype}", dtype, [pair], also=printed))
    return tuple(plots)


def make_fig10() -> tuple[Plot, ...]:
    """GPT-2: 16 tokens generated one after the other, and one forward pass.

    The paper's 7.5 ms for eager are too short for 16 steps of decoding and fit one forward pass,
    which is why that one is measured and drawn too.
    """
    pairs = [
        _pair(
            f"{what}, {name}",
            model,
            _where(10, name) if model == "gpt2-generate" else None,
            style=f"{name}{suffix}",
            runtime=name,
            length=TEXT_LENGTH,
        )
        for model, what, suffix in (
            ("gpt2-generate", "16 tokens", ""),
            ("gpt2", "one forward", "-once"),
        )
        for name in ("eager", "torchscript")
    ]
    return tuple(_plot(f"GPT-2, {dtype}", dtype, pairs, printed_in="fp16") for dtype in _BOTH)


def make_fig11() -> tuple[Plot, ...]:
    """Depth and width of residual networks in TorchScript; the paper drew fp32."""
    return tuple(_plot_models(dtype, _DEPTHS, runtime="torchscript") for dtype in ("fp32", "fp16"))


def make_fig12() -> tuple[Plot, ...]:
    """Small image models against ResNet-50 in eager; the paper drew fp16."""
    return tuple(_plot_models(dtype, _SMALL) for dtype in _BOTH)


def make_fig13() -> tuple[Plot, ...]:
    """WavLM on two seconds of sound."""
    return tuple(
        _plot(
            f"WavLM, {dtype}",
            dtype,
            [
                _pair(
                    name, "wavlm", _where(13, name, dtype=dtype), runtime=name, length=SOUND_LENGTH
                )
                for name in ("eager", "torchscript")
            ],
        )
        for dtype in _BOTH
    )


def _plot_models(
    dtype: str,
    models: Mapping[str, str | None],
    *,
    runtime: str = "eager",
    length: int | None = None,
) -> Plot:
    """Models of one runtime beside the same ones in the paper's main run, by their names there;
    None for one that the paper has not."""
    source = raw_run(PAPER_RUNTIMES[f"{runtime}/python"], dtype)
    pairs = [
        _pair(
            name,
            name,
            None if paper is None else {"source": source, "model": paper},
            runtime=runtime,
            length=length,
        )
        for name, paper in models.items()
    ]
    return _plot(f"{runtime}, {dtype}", dtype, pairs)


def _where(number: int, runtime: str = "", **more: str) -> dict[str, str]:
    """What selects the rows of a figure, of a runtime if one is named."""
    framework = {"framework": PAPER_RUNTIMES[f"{runtime}/python"]} if runtime else {}
    return {"figure": f"Figure {number}", **framework, **more}


def _pair(
    label: str,
    model: str,
    where: Mapping[str, str] | None = None,
    *,
    style: str = "",
    runtime: str = "eager",
    length: int | None = None,
    source: str = BASELINE_GPU,
) -> tuple[Line, Printed | None]:
    """A model in a runtime, and the paper's rows of the same, drawn alike; None without any."""
    style = style or label
    line = Line(label=label, style=style, model=model, runtime=f"{runtime}/python", sequence=length)
    if where is None:
        return line, None
    return line, Printed(label=label, style=style, where=where, source=source)


def _plot(
    title: str,
    dtype: str,
    pairs: Iterable[tuple[Line, Printed | None]],
    *,
    also: Iterable[Printed] = (),
    printed_in: str = "",
    **more: Any,
) -> Plot:
    """A plot of pairs, and of what ``also`` was printed; the paper's in one dtype alone if it is
    named."""
    lines, printed = zip(*pairs, strict=True)
    told = [item for item in (*printed, *also) if item and printed_in in ("", dtype)]
    return Plot(title=title, dtype=dtype, lines=lines, printed=tuple(told), **more)
