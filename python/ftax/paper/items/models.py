"""Figures 6 to 8 and 10 to 13: models against models, all over the batch.

The surprising choice: each figure is drawn in both dtypes, the paper's in the one that it used.
"""

from __future__ import annotations

from collections.abc import Mapping

from ftax.paper.figures.plots import Line, Plot
from ftax.paper.figures.printed import PAPER_RUNTIMES, Printed, raw_run
from ftax.paper.setting import SOUND_LENGTH, TEXT_LENGTH

_BOTH = ("fp16", "fp32")
_SCALED = ("bert-6x768", "bert-base", "bert-24x768", "bert-12x384", "bert-1536")
_EFFICIENT = {
    "bert-base": "bert",
    "distilbert": "distilbert",
    "mobilebert": "mobile_bert",
    "squeezebert": "squeeze_bert",
}
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


def make_fig6() -> tuple[Plot, ...]:
    """BERT scaled in depth and in width. The paper's measurements of it were not published."""
    return tuple(
        Plot(
            title=f"{title}, eager, {dtype}",
            dtype=dtype,
            lines=tuple(
                Line(label=name, style=name, model=name, sequence=TEXT_LENGTH) for name in names
            ),
        )
        for dtype in _BOTH
        for title, names in (
            ("layers", _SCALED[:3]),
            ("width", (_SCALED[3], _SCALED[1], _SCALED[4])),
        )
    )


def make_fig7() -> tuple[Plot, ...]:
    """BERT and Funnel Transformer; the paper drew fp32, batches 1 to 8. Its text gives Funnel the
    work of the form without a decoder, which it did not measure and which is drawn too."""
    models = {"bert-base": "bert", "funnel": "funnel_transformer", "funnel-base": None}
    return tuple(_plot_models(dtype, models, text=True) for dtype in ("fp32", "fp16"))


def make_fig8() -> tuple[Plot, ...]:
    """BERT and its efficient variants."""
    return tuple(_plot_models(dtype, _EFFICIENT, text=True) for dtype in _BOTH)


def make_fig10() -> tuple[Plot, ...]:
    """GPT-2: 16 tokens generated one after the other, and one forward pass.

    The paper's 7.5 ms for eager are too short for 16 steps of decoding and fit one forward pass,
    which is why that one is measured and drawn too.
    """
    runtimes = ("eager", "torchscript")
    return tuple(
        Plot(
            title=f"GPT-2, {dtype}",
            dtype=dtype,
            lines=tuple(
                Line(label=f"{what}, {name}", style=f"{name}{suffix}", model=model,
                     runtime=f"{name}/python", sequence=length)
                for model, what, suffix, length in (
                    ("gpt2-generate", "16 tokens", "", TEXT_LENGTH),
                    ("gpt2", "one forward", "-once", TEXT_LENGTH),
                )
                for name in runtimes
            ),
            printed=tuple(
                Printed(
                    label=f"16 tokens, {name}",
                    style=name,
                    where={"figure": "Figure 10", "framework": PAPER_RUNTIMES[f"{name}/python"]},
                )
                for name in runtimes
                if dtype == "fp16"
            ),
        )
        for dtype in _BOTH
    )  # fmt: skip


def make_fig11() -> tuple[Plot, ...]:
    """Depth and width of residual networks in TorchScript; the paper drew fp32."""
    return tuple(_plot_models(dtype, _DEPTHS, runtime="torchscript") for dtype in ("fp32", "fp16"))


def make_fig12() -> tuple[Plot, ...]:
    """Small image models against ResNet-50 in eager; the paper drew fp16."""
    return tuple(_plot_models(dtype, _SMALL) for dtype in _BOTH)


def make_fig13() -> tuple[Plot, ...]:
    """WavLM on two seconds of sound."""
    return tuple(
        Plot(
            title=f"WavLM, {dtype}",
            dtype=dtype,
            lines=tuple(
                Line(
                    label=name,
                    style=name,
                    model="wavlm",
                    runtime=f"{name}/python",
                    sequence=SOUND_LENGTH,
                )
                for name in ("eager", "torchscript")
            ),
            printed=tuple(
                Printed(
                    label=name,
                    style=name,
                    where={
                        "figure": "Figure 13",
                        "dtype": dtype,
                        "framework": PAPER_RUNTIMES[f"{name}/python"],
                    },
                )
                for name in ("eager", "torchscript")
            ),
        )
        for dtype in _BOTH
    )


def _plot_models(
    dtype: str,
    models: Mapping[str, str | None],
    *,
    runtime: str = "eager",
    text: bool = False,
) -> Plot:
    """Models of one runtime beside the same ones in the paper's main run, by their names there;
    None for one that the paper has not."""
    framework = PAPER_RUNTIMES[f"{runtime}/python"]
    return Plot(
        title=f"{runtime}, {dtype}",
        dtype=dtype,
        lines=tuple(
            Line(
                label=name,
                style=name,
                model=name,
                runtime=f"{runtime}/python",
                sequence=TEXT_LENGTH if text else None,
            )
            for name in models
        ),
        printed=tuple(
            Printed(
                label=name,
                style=name,
                where={"source": raw_run(framework, dtype), "model": paper_name},
            )
            for name, paper_name in models.items()
            if paper_name is not None
        ),
    )
